"""The recursive stage: GRPO in which half of a question's rollouts continue from the answers of the other half."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from ops.conductor.policy import PolicyCard
from ops.conductor.rollout import Rollout, roll_out
from ops.config import Recipe, Recursive, RoundLimits, Setup, load_pool, load_recipe
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.training.grpo.trainer import RoundsTrainer, run
from ops.training.rewards import outage
from ops.training.run.plan import CURVE, RunPlan, write_run
from ops.training.stages.rounds import blended, chosen, followed, recursive_places
from ops.training.step.timed_trainer import TimedTrainer
from ops.workflow.grammar import Workflow
from tests.unit.training.tiny import tiny_plan, train

CONFIG = Workspace.find().config
STEPS = 4  # two questions, four rollouts each
FIRST, OTHERS = (0, 1, 4, 5), (2, 3, 6, 7)
"""Places of the first rounds, and of the rounds that continue them."""
LIMITS = RoundLimits(rounds=2, answer_tokens=16)


@dataclass
class Trained:
    """One run: the executed rollouts, and TRL's rows, step by step."""

    folder: Path
    executed: list[list[Rollout]] = field(default_factory=list)
    """First rounds, then the others, of each step."""
    batches: list[dict[str, Any]] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    """Largest difference between log-probabilities scored by parts and all together."""

    @property
    def curve(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / CURVE).read_text(encoding="utf-8").splitlines()]

    @property
    def steps(self) -> list[dict[int, Rollout]]:
        """Return place → rollout of each step."""
        pairs = zip(self.executed[::2], self.executed[1::2], strict=True)
        return [dict(zip((*FIRST, *OTHERS), (*first, *later), strict=True)) for first, later in pairs]


def trained(folder: Path, *, cut_at: int | None = None) -> Trained:
    folder.mkdir()
    plan, run_folder = tiny_plan(folder, steps=STEPS, learning_rate=1e-3)
    plan = plan.model_copy(update={"recursive": Recursive(steps=STEPS, gamma=0.4, limits=LIMITS)})
    made = Trained(run_folder)
    score_rows = RoundsTrainer._generate_and_score_completions

    async def executing(*arguments: Any, **more: Any) -> Any:
        made.executed.append(await roll_out(*arguments, **more))
        return made.executed[-1]

    def scoring(self: Any, inputs: Any) -> Any:
        batch = score_rows(self, inputs)
        made.batches.append(batch)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        with torch.no_grad():
            ours, theirs = (
                kind._get_per_token_logps_and_entropies(self, self.model, ids, mask, batch["completion_ids"].shape[1])
                for kind in (RoundsTrainer, TimedTrainer)
            )
        shown = batch["completion_mask"].bool()
        made.differences.append(float((ours[0] - theirs[0])[shown].abs().max()))
        return batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outage, "roll_out", executing)
        patch.setattr(RoundsTrainer, "_generate_and_score_completions", scoring)
        train(plan, run_folder, cut_at)
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("recursive") / "whole")


@pytest.mark.slow
def test_half_of_the_rollouts_continue_from_the_answers_of_the_others(whole: Trained) -> None:
    tokenizer, shown = AutoTokenizer.from_pretrained(whole.folder / "policy"), 0
    assert len(whole.steps) == STEPS
    for step, batch in zip(whole.steps, whole.batches, strict=True):
        prompts = [ids[kept.bool()] for ids, kept in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)]
        for place, rollout in step.items():
            prompt = tokenizer.decode(prompts[place], skip_special_tokens=True)
            if rollout.after is None:
                assert "Again?" not in prompt
                continue
            shown += 1
            assert place in OTHERS and rollout.after.trace is not None and rollout.after.trace.answer is not None
            assert any(rollout.after is step[other] for other in FIRST if other // 4 == place // 4)
            assert rollout.after.text in prompt and prompt.count("Again?") == 1
    assert shown > len(whole.steps)


@pytest.mark.slow
def test_a_first_round_earns_the_blend_and_the_group_is_normalised_as_one(whole: Trained) -> None:
    spread = 0
    for step, batch in zip(whole.steps, whole.batches, strict=True):
        own = {place: rollout.reward for place, rollout in step.items()}
        earned = []
        for place in range(8):
            later = [own[other] for other in OTHERS if step[other].after is step[place]]
            earned.append(own[place] if not later else 0.6 * own[place] + 0.4 * sum(later) / len(later))  # type: ignore
        groups = torch.tensor(earned).view(2, 4)
        expected = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        assert batch["advantages"].cpu() == pytest.approx(expected.flatten(), abs=1e-3)
        spread += int((groups.std(1) > 0).sum())
    assert spread  # at least one group has a gradient


@pytest.mark.slow
def test_the_rows_are_scored_in_two_parts_as_they_would_be_together(whole: Trained) -> None:
    assert max(whole.differences) < 1e-4


@pytest.mark.slow
def test_the_curve_distinguishes_the_rounds(whole: Trained) -> None:
    for row, step in zip(whole.curve, whole.steps, strict=True):
        first = [rollout for rollout in step.values() if rollout.after is None]
        later = [rollout for rollout in step.values() if rollout.after is not None]
        assert row["rollouts"] == 8 and row["round_2/rollouts"] == len(later)
        assert row["round_1/right"] == sum(rollout.outcome == "right" for rollout in first) / len(first)
        if later:
            assert row["round_2/loops"] + row["round_2/kept"] == sum(r.keeps for r in later) / len(later)


@pytest.mark.slow
def test_an_interrupted_run_continues_as_without_the_interruption(whole: Trained, tmp_path: Path) -> None:
    resumed = trained(tmp_path / "cut", cut_at=3)
    # The third step ended before its checkpoint, and is repeated.
    texts = [[rollout.text for rollout in step.values()] for step in resumed.steps]
    assert texts[:3] + texts[4:] == [[rollout.text for rollout in step.values()] for step in whole.steps]
    assert [row["reward"] for row in resumed.curve] == [row["reward"] for row in whole.curve]
    assert [row["step"] for row in resumed.curve] == list(range(1, STEPS + 1))


@pytest.mark.slow
def test_the_policys_card_has_the_limits_of_its_rounds(whole: Trained) -> None:
    card = PolicyCard.read(whole.folder / "policy")
    assert (card.rounds, card.trained_steps) == (LIMITS, STEPS)
    assert PolicyCard.read(whole.folder.parent / "base").rounds is None


@pytest.mark.slow
def test_both_rounds_are_of_the_questions_that_the_signal_chooses(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, steps=2, sampling="signal")
    plan = plan.model_copy(update={"recursive": Recursive(steps=2, limits=LIMITS)})
    run(plan, folder, lambda *_: None)
    rows = Trained(folder).curve
    assert len(rows) == 2
    for row in rows:
        assert row["rollouts"] == 8
        assert 0 < row["round_2/rollouts"] <= row["rollouts"] / 2


class Engine:
    """A replacement for vLLM, which needs a GPU: it accepts TRL's requests, and answers in vLLM's form.

    The probabilities that it returns identify a row's prompt and a token's place.
    """

    def __init__(self, trainer: RoundsTrainer) -> None:
        tokenizer, team = trainer.processing_class, trainer._recursive._team
        texts = [Workflow.single(ordinal).render() for ordinal in range(len(team.workers))]
        self._ids = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in texts]
        self.asked: list[tuple[int, int]] = []
        """The numbers of prompts and of completions per prompt, call by call."""
        self.synced = 0

    def sync_weights(self) -> None:
        self.synced += 1

    def generate(self, prompts: list[list[int]], images: None, num_generations: int, profiler: Any) -> Any:
        self.asked.append((len(prompts), num_generations))
        for start in range(0, len(prompts), num_generations):  # a server receives each prompt once
            alike = prompts[start : start + num_generations]
            assert all(prompt == alike[0] for prompt in alike)
        said = [self._ids[place % len(self._ids)] for place in range(len(prompts))]
        logps = [
            [[-(len(prompt) + at) / 1000] for at in range(len(ids))] for prompt, ids in zip(prompts, said, strict=True)
        ]
        return prompts, said, logps, None


@pytest.mark.slow
def test_vllm_is_asked_for_both_rounds_by_the_same_call(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, steps=2)
    plan = plan.model_copy(update={"recursive": Recursive(steps=2, limits=LIMITS)})
    engines: list[Engine] = []
    batches: list[dict[str, Any]] = []
    make, score = RoundsTrainer.__init__, RoundsTrainer._generate_and_score_completions

    def with_engine(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        engines.append(Engine(self))
        self.use_vllm, self.vllm_generation, self._last_loaded_step = True, engines[0], -1

    def scoring(self: Any, inputs: Any) -> Any:
        batches.append(score(self, inputs))
        return batches[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundsTrainer, "__init__", with_engine)
        patch.setattr(RoundsTrainer, "_generate_and_score_completions", scoring)
        run(plan, folder, lambda *_: None)
    [engine] = engines
    assert engine.asked == [(4, 2), (4, 1)] * 2  # first rounds share prompts, others do not
    assert engine.synced == 2
    for batch in batches:
        lengths, shown = batch["prompt_mask"].sum(1), batch["completion_mask"].bool()
        assert all(lengths[later] > lengths[first] for first, later in zip(FIRST, OTHERS, strict=True))
        expected = -(lengths[:, None] + torch.arange(shown.shape[1])) / 1000
        assert torch.allclose(batch["sampling_per_token_logps"][shown], expected[shown])


def test_the_second_half_of_a_questions_rollouts_are_recursive() -> None:
    assert recursive_places(["a"] * 4 + ["b"] * 2) == [False, False, True, True, False, True]


@pytest.mark.parametrize(
    ("ready", "expected"),
    [
        ("aaa---", [None, None, None, 0, 1, 2]),
        ("-a----", [None, None, None, 1, 1, 1]),
        ("a-a---", [None, None, None, 0, 2, 0]),
        ("------", [None] * 6),  # no round to continue: all are first rounds
        ("---aaa", [None] * 6),
    ],
)
def test_recursive_rollouts_continue_the_first_rounds(ready: str, expected: list[int | None]) -> None:
    able = [mark == "a" for mark in ready]
    assert followed(["q"] * 6, able) == expected
    both = followed(["p", "p"] + ["q"] * 6, [True, False, *able])
    assert both == [None, 0, *(None if place is None else place + 2 for place in expected)]


@pytest.mark.parametrize(
    ("own", "later", "gamma", "reward"),
    [
        (0.5, [1.0], 0.25, 0.625),
        (1.0, [0.5], 0.25, 0.875),
        (1.0, [1.0], 0.25, 1.0),
        (0.5, [1.0, 0.0], 0.25, 0.5),
        (0.5, [1.0, None], 0.25, 0.625),
        (0.5, [1.0], 0.0, 0.5),
        (0.5, [1.0], 1.0, 1.0),
        (0.0, [], 0.25, 0.0),  # not a workflow, so no round follows
        (1.0, [None], 0.25, 1.0),
        (None, [], 0.25, None),
    ],
)
def test_the_blend(own: float | None, later: list[float | None], gamma: float, reward: float | None) -> None:
    assert blended(own, later, gamma) == reward


def test_the_problems_are_drawn_of_the_benchmarks_that_are_named() -> None:
    mix = [
        Problem(str(number), name, "math", "train", f"{number}?", "1", "math")
        for number in range(10)
        for name in ("rlpr", "math500", "livecodebench")
    ]
    assert chosen(mix, Recursive(), 1) == mix
    named = Recursive(benchmarks=("rlpr", "livecodebench"), per_benchmark=4)
    some = chosen(mix, named, 1)
    assert sorted(problem.benchmark for problem in some) == ["livecodebench"] * 4 + ["rlpr"] * 4
    assert some == sorted(some, key=mix.index) == chosen(mix, named, 1)
    assert some != chosen(mix, named, 2)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({"rollouts_per_question": 6, "questions_per_step": 1, "micro_batch": 4}, "recursive over grpo: .*not a mult"),
        ({"rollouts_per_question": 5, "questions_per_step": 8, "micro_batch": 8}, "recursive over grpo: .*be halved"),
        ({"benchmarks": ["math500", "history"]}, "recursive.benchmarks names history"),
        ({"gamma": 1.5}, "less than or equal to 1"),
        ({"limits": {"calls_ratio": 0.5}}, "greater than or equal to 1"),
        ({"rounds": 3}, "Extra inputs"),
    ],
)
def test_an_impossible_stage_is_refused_with_the_recipe(stage: dict[str, Any], words: str) -> None:
    quick = load_recipe(CONFIG, "quickstart").model_dump()
    with pytest.raises(ValueError, match=f"(?s){words}"):
        Recipe.model_validate(quick | {"recursive": stage})
    Recipe.model_validate(quick | {"recursive": {"benchmarks": ["math500"]}})


@pytest.mark.slow
def test_too_few_problems_are_named_before_training(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, questions_per_step=4)
    plan = plan.model_copy(update={"recursive": Recursive(benchmarks=("rlpr",), per_benchmark=3)})
    with pytest.raises(DataError, match=r"holds 3 problems for the stage.*recursive\.questions_per_step"):
        run(plan, folder, lambda *_: None)


def test_a_section_changes_only_its_own_stages_key(tmp_path: Path) -> None:
    recipe, pool = load_recipe(CONFIG, "quickstart"), load_pool(CONFIG, "quickstart")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "training_mix.jsonl").write_text("", encoding="utf-8")
    policy = tmp_path / "runs" / "quickstart-0123" / "policy"
    policy.mkdir(parents=True)
    PolicyCard(
        recipe="q", pool=pool, offered=pool.names, prompting=recipe.prompting, max_completion_tokens=8
    ).write(policy)  # fmt: skip
    setup, stage = Setup(Workspace(tmp_path), recipe, pool), Recursive(steps=7, learning_rate=1e-5)
    with_section = Setup(setup.workspace, recipe.model_copy(update={"recursive": stage}), pool)
    assert write_run(with_section, policy) == write_run(setup, policy)
    folder = write_run(with_section, policy, recursive=stage)
    assert folder == write_run(with_section, policy, recursive=stage) != write_run(setup, policy)
    plan = RunPlan.read(folder)
    assert plan.recursive == stage
    assert (plan.recipe.grpo.steps, plan.recipe.grpo.learning_rate) == (7, 1e-5)
    other = stage.model_copy(update={"gamma": 0.5})
    assert write_run(with_section, policy, recursive=other) != folder
