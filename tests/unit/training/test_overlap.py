"""With a staleness, workers answer one step's rollouts during the updates on those of earlier steps."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from ops.config import Grpo
from ops.core.errors import OverBudget
from ops.training.grpo import trainer
from ops.training.run.training_run import read_curve
from ops.training.step.overlap import OverlappedTrainer
from tests.unit.training.tiny import VARIED, tiny_plan, train, watch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STEPS = 6
SETTINGS: dict[str, Any] = VARIED | {
    "temperature": 1.2, "staleness": 1, "learning_rate": 1e-2, "max_completion_tokens": 24,
}  # fmt: skip
"""Eight problems, two per step: the second epoch begins at step 5."""


class Written(NamedTuple):
    """Rollouts at generation: the step and the weights."""

    step: int
    weights: dict[str, torch.Tensor]
    completions: list[list[int]]


class Learned(NamedTuple):
    """Rollouts at the update: the step, the weights of the policy that is updated, and TRL's batch."""

    step: int
    weights: dict[str, torch.Tensor]
    batch: dict[str, torch.Tensor]

    @property
    def said(self) -> torch.Tensor:
        """Return the mask of the completions."""
        return self.batch["completion_mask"].bool()

    @property
    def completions(self) -> set[tuple[int, ...]]:
        rows = zip(self.batch["completion_ids"], self.said, strict=True)
        return {tuple(ids[said].tolist()) for ids, said in rows}

    @torch.no_grad()
    def logps(self, model: Any, weights: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return log-probabilities (nats) of the completions' tokens by a model with these weights."""
        model.load_state_dict(weights)
        ids, mask = (
            torch.cat([self.batch[f"prompt_{name}"], self.batch[f"completion_{name}"]], dim=1)
            for name in ("ids", "mask")
        )
        width = self.said.size(1)
        read = model(input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
        logps = (read.logits[:, -width - 1 : -1] / SETTINGS["temperature"]).log_softmax(-1)
        said: torch.Tensor = logps.gather(-1, ids[:, -width:, None])[..., 0]
        return said[self.said]


class Watched(NamedTuple):
    staleness: int
    written: list[Written]
    learned: list[Learned]
    curve: list[dict[str, Any]]
    policy: Path


def test_it_is_taken_where_it_is_asked_for() -> None:
    assert trainer.select_trainer_class(Grpo(staleness=1)) is OverlappedTrainer
    assert trainer.select_trainer_class(Grpo()) is trainer.TimedTrainer


@pytest.fixture(scope="module", params=[1, 3])
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    settings = SETTINGS | {"staleness": request.param}
    plan, folder = tiny_plan(tmp_path_factory.mktemp("overlap"), steps=STEPS, checkpoint_every=50, **settings)
    with pytest.MonkeyPatch.context() as patch:
        written = watch(
            patch, OverlappedTrainer, "_start_rollouts",
            lambda flight, own, _: Written(own.state.global_step, weights_of(own), flight.generated[1]),
        )  # fmt: skip
        learned = watch(
            patch, OverlappedTrainer, "_compute_loss",
            lambda _, own, model, inputs: Learned(own.state.global_step, weights_of(own), inputs),
        )  # fmt: skip
        train(plan, folder)
    return Watched(request.param, written, learned, read_curve(folder), plan.base_policy)


def weights_of(own: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in own.model.state_dict().items()}


def test_a_rollout_is_learned_from_that_many_updates_after_it_was_written(watched: Watched) -> None:
    # The first step waits for its own rollouts.
    assert [each.step for each in watched.written] == [max(0, step - watched.staleness) for step in range(STEPS)]
    for step, written in enumerate(watched.written):
        parts = [learned.completions for learned in watched.learned if learned.step == step]
        assert set.union(*parts) == set(map(tuple, written.completions))
        lengths = [len(each) for each in written.completions]
        assert watched.curve[step]["completion_tokens"] == pytest.approx(sum(lengths) / len(lengths))


def test_the_loss_knows_the_probabilities_that_a_rollout_was_written_with(watched: Watched) -> None:
    model = AutoModelForCausalLM.from_pretrained(watched.policy)
    gaps: dict[int, float] = {}
    for learned in watched.learned:
        old = learned.batch["old_per_token_logps"][learned.said]
        assert torch.allclose(old, learned.logps(model, watched.written[learned.step].weights), atol=1e-4)
        gap = (old - learned.logps(model, learned.weights)).abs().max().item()
        gaps[learned.step] = max(gap, gaps.get(learned.step, 0.0))
    assert max(gaps[step] for step in range(1, STEPS)) > 1e-3, "updates lie between, not all of them of nothing"
    assert gaps[0] < 1e-4, "none does"


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
    make = trainer.build_reward_function

    def made(*arguments: Any, **settings: Any) -> Any:
        reward, batch = make(*arguments, **settings), iter(range(100))

        async def slow(**columns: Any) -> list[float | None]:
            await before(next(batch))
            return await reward(**columns)

        return slow

    patch.setattr(trainer, "build_reward_function", made)


def test_workers_answer_while_the_step_before_is_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, folder = tiny_plan(tmp_path, **SETTINGS)
    ended, waited = Ended(), list[bool]()

    async def after_the_first_update(batch: int) -> None:
        if batch == 1:  # without overlap this would never arrive
            waited.append(await asyncio.to_thread(ended.first.wait, 60))

    asking(monkeypatch, after_the_first_update)
    train(plan, folder, callbacks=[ended])
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
            train(plan, folder)
    # A restarted run continues from the checkpoint: the failed step generates for itself.
    result = train(plan, folder)
    assert result is not None and result.steps == 4
    assert [row["step"] for row in read_curve(folder)] == [1, 2, 3, 4]
