"""Trainings of the adaptive stage (every question offers a random subset of the workers), of the recursive stage (half
of a question's rollouts continue from the answers of the other half), and with questions that are chosen by signal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import AutoTokenizer

from ops.conductor.policy import PolicyCard
from ops.conductor.rollout import Rollout, execute_rollouts
from ops.config import Adaptive, Recursive, RoundLimits
from ops.core.problem import Problem
from ops.training.grpo.trainer import RoundsTrainer
from ops.training.rewards import outage
from ops.training.run.training_run import read_curve
from ops.training.step.timed_trainer import TimedTrainer
from ops.workflow.grammar import Workflow
from ops.workflow.literals import FormatFailure
from ops.workflow.team import Team
from tests.unit.training.tiny import VARIED, assert_same_training, tiny_plan, train, watch

pytestmark = pytest.mark.slow
QUESTIONS, GROUP = 2, 4
FIRST, OTHERS = (0, 1, 4, 5), (2, 3, 6, 7)
"""Places of the first rounds, and of the rounds that continue them."""
LIMITS = RoundLimits(rounds=2, answer_tokens=16)
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "adaptive": ({"adaptive": Adaptive(steps=6)}, {"steps": 6, "learning_rate": 1e-3}),
    "recursive": (
        {"recursive": Recursive(steps=4, gamma=0.4, limits=LIMITS)}, {"steps": 4, "learning_rate": 1e-3}
    ),
    "signal": ({}, {"steps": 5, "sampling": "signal", **VARIED}),
    "signal on subsets": (
        {"adaptive": Adaptive(steps=5, smallest=5)}, {"steps": 5, "sampling": "signal", **VARIED}
    ),
}  # fmt: skip
"""The stage and GRPO's settings of each run."""


class Batch(NamedTuple):
    """Rollouts that were executed together."""

    losses: int
    """Calls of the trainer's loss before them."""
    keys: list[str]
    """The problem of each."""
    teams: list[Team]
    rollouts: list[Rollout]


@dataclass
class Trained:
    """One run: the executed rollouts, and TRL's rows, step by step."""

    folder: Path
    executed: list[Batch] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    """Largest difference between log-probabilities scored by parts and all together."""

    @property
    def calls(self) -> list[list[tuple[str, tuple[int, ...], str]]]:
        """Return (problem, ordinals on offer, completion) of each rollout, step by step."""
        steps: dict[int, list[tuple[str, tuple[int, ...], str]]] = {}
        for losses, keys, teams, rollouts in self.executed:
            made = zip(keys, teams, rollouts, strict=True)
            steps.setdefault(losses, []).extend((key, tuple(team.ordinals), each.text) for key, team, each in made)
        return list(steps.values())

    @property
    def rounds(self) -> list[dict[int, Rollout]]:
        """Return place → rollout of each step of first rounds and others."""
        pairs = zip(self.executed[::2], self.executed[1::2], strict=True)
        places = (*FIRST, *OTHERS)
        return [dict(zip(places, (*one.rollouts, *other.rollouts), strict=True)) for one, other in pairs]


def trained(folder: Path, name: str, cut_at: int | None = None) -> Trained:
    stage, grpo = RUNS[name]
    plan, run_folder = tiny_plan(folder, **grpo)
    made = Trained(run_folder)

    async def executing(texts: Sequence[str], problems: Sequence[Problem], team: Any, **more: Any) -> Any:
        rollouts = await execute_rollouts(texts, problems, team, **more)
        teams = [team] * len(texts) if isinstance(team, Team) else list(team)
        made.executed.append(Batch(len(losses), [problem.key for problem in problems], teams, rollouts))
        return rollouts

    def scored(batch: dict[str, Any], own: Any, *_: Any) -> None:
        made.batches.append(batch)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        with torch.no_grad():
            ours, theirs = (
                kind._get_per_token_logps_and_entropies(own, own.model, ids, mask, batch["completion_ids"].shape[1])
                for kind in (RoundsTrainer, TimedTrainer)
            )
        shown = batch["completion_mask"].bool()
        made.differences.append(float((ours[0] - theirs[0])[shown].abs().max()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outage, "execute_rollouts", executing)
        losses = watch(patch, TimedTrainer, "_compute_loss", lambda *_: None)
        watch(patch, RoundsTrainer, "_generate_and_score_completions", scored)
        train(plan.model_copy(update=stage), run_folder, cut_at)
    return made


Whole = Callable[[str], Trained]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return an uninterrupted run of `RUNS`, which is made once."""
    return cache(lambda name: trained(tmp_path_factory.mktemp("whole"), name))


@pytest.mark.parametrize(
    "name", ["adaptive", "recursive", "signal", pytest.param("signal on subsets", marks=pytest.mark.long)]
)
def test_an_interrupted_run_makes_the_same_calls_and_updates(whole: Whole, tmp_path: Path, name: str) -> None:
    undisturbed, resumed = whole(name), trained(tmp_path, name, cut_at=3)
    calls = resumed.calls
    assert calls[2] == calls[3]  # the third step ended before its checkpoint, and is repeated
    assert calls[:3] + calls[4:] == undisturbed.calls
    assert len(assert_same_training(undisturbed.folder, resumed.folder)) == len(undisturbed.calls)


@pytest.mark.parametrize(("name", "steps", "rounds"), [("adaptive", 6, None), ("recursive", 4, LIMITS)])
def test_the_policys_card_has_its_steps_and_limits(whole: Whole, name: str, steps: int, rounds: object) -> None:
    folder = whole(name).folder
    card = PolicyCard.read(folder / "policy")
    assert (card.trained_steps, card.rounds) == (steps, rounds)
    assert PolicyCard.read(folder.parent / "base").rounds is None


def test_every_rollout_is_read_and_executed_by_what_its_prompt_offered(whole: Whole) -> None:
    executed = refused = 0
    for _, keys, teams, rollouts in whole("adaptive").executed:
        for key, team, rollout in zip(keys, teams, rollouts, strict=True):
            if rollout.trace is not None:
                executed += 1
                assert {step.worker for step in rollout.trace.steps} <= {team.names[at] for at in team.ordinals}, key
            if rollout.parsed.failure == FormatFailure.UNKNOWN_WORKER:
                refused += 1
                assert rollout.reward == 0.0
    assert executed and refused  # the policy names a single worker, which is sometimes on offer


def test_a_group_shares_its_offer_and_epochs_differ(whole: Whole) -> None:
    offers: dict[str, list[tuple[int, ...]]] = {}
    for step in whole("adaptive").calls:
        assert len({call[:2] for call in step}) == QUESTIONS and len(step) == QUESTIONS * GROUP
        for key, ordinals in sorted({call[:2] for call in step}):
            offers.setdefault(key, []).append(ordinals)
    assert len(offers) == 8  # the first epoch asks every problem, in four steps
    again = [both for both in offers.values() if len(both) == 2]
    assert len(again) == 4 and any(first != second for first, second in again)


def test_by_signal_no_problem_waits_for_an_epoch_to_end(whole: Whole) -> None:
    batches = whole("signal").executed
    assert len({batch.losses for batch in batches}) == len(batches) == 5  # no question is repeated
    for _, keys, *_ in batches:
        assert keys == [key for key in keys[::GROUP] for _ in range(GROUP)]
        assert len(set(keys)) == QUESTIONS


def test_half_of_the_rollouts_continue_from_the_answers_of_the_others(whole: Whole) -> None:
    run = whole("recursive")
    tokenizer, shown = AutoTokenizer.from_pretrained(run.folder / "policy"), 0
    assert len(run.rounds) == 4
    for step, batch in zip(run.rounds, run.batches, strict=True):
        prompts = [ids[kept.bool()] for ids, kept in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True)]
        for place, rollout in step.items():
            prompt = tokenizer.decode(prompts[place], skip_special_tokens=True)
            if rollout.previous is None:
                assert "Again?" not in prompt
                continue
            shown += 1
            assert place in OTHERS and rollout.previous.trace is not None and rollout.previous.trace.answer is not None
            assert any(rollout.previous is step[other] for other in FIRST if other // GROUP == place // GROUP)
            assert rollout.previous.text in prompt and prompt.count("Again?") == 1
    assert shown > len(run.rounds)


def test_a_first_round_earns_the_blend_and_the_group_is_normalised_as_one(whole: Whole) -> None:
    spread, run = 0, whole("recursive")
    for step, batch in zip(run.rounds, run.batches, strict=True):
        own = {place: rollout.reward for place, rollout in step.items()}
        earned = []
        for place in range(8):
            later = [own[other] for other in OTHERS if step[other].previous is step[place]]
            earned.append(own[place] if not later else 0.6 * own[place] + 0.4 * sum(later) / len(later))  # type: ignore
        groups = torch.tensor(earned).view(QUESTIONS, GROUP)
        expected = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        assert batch["advantages"].cpu() == pytest.approx(expected.flatten(), abs=1e-3)
        spread += int((groups.std(1) > 0).sum())
    assert spread  # at least one group has a gradient
    assert max(run.differences) < 1e-4, "rows are scored in two parts as they would be together"


def test_the_curve_distinguishes_the_rounds(whole: Whole) -> None:
    run = whole("recursive")
    for row, step in zip(read_curve(run.folder), run.rounds, strict=True):
        first = [rollout for rollout in step.values() if rollout.previous is None]
        later = [rollout for rollout in step.values() if rollout.previous is not None]
        assert row["rollouts"] == 8 and row["round_2/rollouts"] == len(later)
        assert row["round_1/right"] == sum(rollout.outcome == "right" for rollout in first) / len(first)
        if later:
            assert row["round_2/loops"] + row["round_2/kept"] == sum(r.has_kept_answer for r in later) / len(later)


def test_both_rounds_are_of_the_questions_that_the_signal_chooses(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, sampling="signal")
    train(plan.model_copy(update={"recursive": Recursive(steps=2, limits=LIMITS)}), folder)
    rows = read_curve(folder)
    assert [row["rollouts"] for row in rows] == [8, 8]
    assert [row["round_2/rollouts"] for row in rows if not 0 < row["round_2/rollouts"] <= 4] == []


class Engine:
    """A replacement for vLLM, which needs a GPU: it accepts TRL's requests, and answers in vLLM's form.

    The probabilities that it returns identify a row's prompt and a token's place.
    """

    def __init__(self, trainer: RoundsTrainer) -> None:
        tokenizer, team = trainer.processing_class, trainer._round_rewards._team
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


def test_vllm_is_asked_for_both_rounds_by_the_same_call(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path)
    engines: list[Engine] = []
    make = RoundsTrainer.__init__

    def with_engine(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        engines.append(Engine(self))
        self.use_vllm, self.vllm_generation, self._last_loaded_step = True, engines[0], -1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundsTrainer, "__init__", with_engine)
        batches = watch(patch, RoundsTrainer, "_generate_and_score_completions", lambda batch, *_: batch)
        train(plan.model_copy(update={"recursive": Recursive(steps=2, limits=LIMITS)}), folder)
    [engine] = engines
    assert engine.asked == [(4, 2), (4, 1)] * 2  # first rounds share prompts, others do not
    assert engine.synced == 2
    for batch in batches:
        lengths, shown = batch["prompt_mask"].sum(1), batch["completion_mask"].bool()
        assert all(lengths[later] > lengths[first] for first, later in zip(FIRST, OTHERS, strict=True))
        expected = -(lengths[:, None] + torch.arange(shown.shape[1])) / 1000
        assert torch.allclose(batch["sampling_per_token_logps"][shown], expected[shown])
