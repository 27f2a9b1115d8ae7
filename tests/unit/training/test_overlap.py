"""With a staleness, workers answer one step's rollouts during the updates on those of earlier steps."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM, TrainerCallback

from ops.config import Grpo
from ops.core.errors import OverBudget
from ops.training.grpo import trainer
from ops.training.grpo.trainer import run
from ops.training.step.overlap import OverlappedTrainer
from tests.unit.training.tiny import tiny_plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEPS = 6
TEMPERATURE = 1.5
SETTINGS: dict[str, Any] = {
    "staleness": 1, "learning_rate": 1e-2, "max_completion_tokens": 24, "temperature": TEMPERATURE,
}  # fmt: skip
"""Eight problems, two per step: the second epoch begins at step 5. At
this temperature some completions are invalid, so that the policy changes.
"""


class Written(NamedTuple):
    """Rollouts at generation: the step and the weights."""

    step: int
    weights: dict[str, torch.Tensor]
    completions: list[list[int]]


class Learned(NamedTuple):
    """Rollouts at the update."""

    step: int
    weights: dict[str, torch.Tensor]
    """The policy that is updated."""
    ids: torch.Tensor
    """Prompts and completions, padded like the mask."""
    mask: torch.Tensor
    said: torch.Tensor
    """Mask of the completions."""
    old: torch.Tensor
    """The loss's log-probabilities of the generating policy (nats)."""


class Watched(NamedTuple):
    staleness: int
    written: list[Written]
    learned: list[Learned]
    curve: list[dict[str, Any]]
    policy: Path


def test_it_is_taken_where_it_is_asked_for() -> None:
    assert trainer.trainer_class(Grpo(staleness=1)) is OverlappedTrainer
    assert trainer.trainer_class(Grpo()) is trainer.TimedTrainer
    with pytest.raises(ValidationError, match="less than or equal to 4"):
        Grpo(staleness=5)
    with pytest.raises(ValidationError, match="by what the step before showed"):
        Grpo(staleness=1, sampling="signal")
    with pytest.raises(ValidationError, match="needs a vllm_correction"):
        Grpo(staleness=1, vllm=True, vllm_correction="none")


@pytest.fixture(scope="module", params=[1, 3])
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    settings = SETTINGS | {"staleness": request.param}
    plan, folder = tiny_plan(tmp_path_factory.mktemp("overlap"), steps=STEPS, checkpoint_every=50, **settings)
    written, learned = list[Written](), list[Learned]()
    start, loss = OverlappedTrainer._start, OverlappedTrainer._compute_loss

    def started(self: Any, rows: Any) -> Any:
        flight = start(self, rows)
        written.append(Written(self.state.global_step, weights_of(self), flight.generated[1]))
        return flight

    def computed(self: Any, model: Any, inputs: Any) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        old = inputs["old_per_token_logps"]
        said = inputs["completion_mask"].bool()
        learned.append(Learned(self.state.global_step, weights_of(self), ids, mask, said, old))
        return loss(self, model, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OverlappedTrainer, "_start", started)
        patch.setattr(OverlappedTrainer, "_compute_loss", computed)
        run(plan, folder, lambda *_: None)
    lines = (folder / "curve.jsonl").read_text(encoding="utf-8").splitlines()
    return Watched(request.param, written, learned, [json.loads(line) for line in lines], plan.base_policy)


def weights_of(own: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in own.model.state_dict().items()}


def completions(learned: Learned) -> set[tuple[int, ...]]:
    width = learned.said.size(1)
    return {tuple(row[-width:][said].tolist()) for row, said in zip(learned.ids, learned.said, strict=True)}


def test_a_rollout_is_learned_from_that_many_updates_after_it_was_written(watched: Watched) -> None:
    # The first step waits for its own rollouts.
    assert [each.step for each in watched.written] == [max(0, step - watched.staleness) for step in range(STEPS)]
    for step, written in enumerate(watched.written):
        parts = [completions(learned) for learned in watched.learned if learned.step == step]
        assert set.union(*parts) == set(map(tuple, written.completions))
        lengths = [len(each) for each in written.completions]
        assert watched.curve[step]["completion_tokens"] == pytest.approx(sum(lengths) / len(lengths))


def test_the_loss_knows_the_probabilities_that_a_rollout_was_written_with(watched: Watched) -> None:
    model = AutoModelForCausalLM.from_pretrained(watched.policy)
    gaps: dict[int, float] = {}
    for learned in watched.learned:
        old = learned.old[learned.said]
        assert torch.allclose(old, _logps(model, watched.written[learned.step].weights, learned), atol=1e-4)
        gap = (old - _logps(model, learned.weights, learned)).abs().max().item()
        gaps[learned.step] = max(gap, gaps.get(learned.step, 0.0))
    assert max(gaps[step] for step in range(1, STEPS)) > 1e-3, "updates lie between, not all of them of nothing"
    assert gaps[0] < 1e-4, "none does"


@torch.no_grad()
def _logps(model: Any, weights: dict[str, torch.Tensor], learned: Learned) -> torch.Tensor:
    """Return log-probabilities of the completions' tokens by a model with these weights."""
    model.load_state_dict(weights)
    width = learned.said.size(1)
    positions = (learned.mask.cumsum(1) - 1).clamp(min=0)
    read = model(input_ids=learned.ids, attention_mask=learned.mask, position_ids=positions)
    logps = (read.logits[:, -width - 1 : -1] / TEMPERATURE).log_softmax(-1)
    said: torch.Tensor = logps.gather(-1, learned.ids[:, -width:, None])[..., 0]
    return said[learned.said]


def test_a_line_of_the_curve_describes_its_own_rollouts(watched: Watched) -> None:
    assert [row["step"] for row in watched.curve] == list(range(1, STEPS + 1))
    for row in watched.curve:
        assert row["rollouts"] == 8
        assert row["reward"] == pytest.approx(row["share/right"] + 0.5 * row["share/wrong"])
        assert row["seconds/hidden"] >= 0
    assert len({row["reward"] for row in watched.curve}) > 1


class Ended(TrainerCallback):  # type: ignore[misc]
    """Record the end of the first update."""

    def __init__(self) -> None:
        self.first = threading.Event()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.first.set()


def asking(patch: pytest.MonkeyPatch, before: Any) -> None:
    """Await `before(n)` before the workers of the n-th batch are called."""
    make = trainer.reward_function

    def made(*arguments: Any, **settings: Any) -> Any:
        reward, batch = make(*arguments, **settings), iter(range(100))

        async def slow(**columns: Any) -> list[float | None]:
            await before(next(batch))
            return await reward(**columns)

        return slow

    patch.setattr(trainer, "reward_function", made)


def test_workers_answer_while_the_step_before_is_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, folder = tiny_plan(tmp_path, **SETTINGS)
    ended, waited = Ended(), list[bool]()

    async def after_the_first_update(batch: int) -> None:
        if batch == 1:  # without overlap this would never arrive
            waited.append(await asyncio.to_thread(ended.first.wait, 60))

    asking(monkeypatch, after_the_first_update)
    run(plan, folder, lambda *_: None, [ended])
    assert waited == [True]


def test_an_error_of_workers_ends_the_run_when_its_step_is_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, folder = tiny_plan(tmp_path, **SETTINGS | {"steps": 4})

    async def spent(batch: int) -> None:
        if batch == 2:
            raise OverBudget("the cap")

    with monkeypatch.context() as patch:
        asking(patch, spent)
        with pytest.raises(OverBudget, match="the cap"):
            run(plan, folder, lambda *_: None)
    # A restarted run continues from the checkpoint: the failed step generates for itself.
    result = run(plan, folder, lambda *_: None)
    assert result is not None
    assert result.steps == 4
    rows = [json.loads(line) for line in (folder / "curve.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
