"""A fine-tuning whose first step is mostly invalid is stopped before workers are called; other trainings continue."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ops.config import Adaptive, Prompting, Recursive, Worker
from ops.spending.ledger import Ledger
from ops.training.grpo.trainer import run
from ops.training.rewards.outage import FirstStep, InvalidFirstStep
from ops.training.run.plan import RunPlan, read_curve
from ops.workflow.grammar import Workflow
from ops.workflow.team import NO_CLIENT, Team
from tests.unit.training.tiny import tiny_plan


def plan_of(folder: Path, **more: Any) -> tuple[RunPlan, Path]:
    """Make a training of the tiny policy, which always names `guesser`, a worker that is not on offer."""
    plan, run_folder = tiny_plan(folder, steps=1)
    pool = plan.pool.model_copy(update={"workers": tuple(w for w in plan.pool.workers if w.name != "guesser")})
    return plan.model_copy(update={"pool": pool, **more}), run_folder


def calls(plan: RunPlan) -> int:
    """Return the number of paid worker calls."""
    return sum(spent.calls for spent in Ledger(plan.setup.workspace.ledger).by_run().values())


@pytest.mark.slow
@pytest.mark.parametrize("stage", [{}, {"recursive": Recursive(steps=1)}], ids=["plain", "recursive"])
def test_training_from_a_champion_without_valid_workflows_stops_before_any_call(
    tmp_path: Path, stage: dict[str, Any]
) -> None:
    plan, folder = plan_of(tmp_path, from_champion=True, **stage)
    with pytest.raises(InvalidFirstStep) as error:
        run(plan, folder, lambda *_: None)
    assert calls(plan) == 0 and not read_curve(folder)
    said = str(error.value)
    assert "\n" not in said and "unknown_worker" in said
    assert "guards.max_invalid_first_step" in said and f"`podium run tiny --seed {plan.recipe.seed}`" in said


@pytest.mark.slow
def test_another_training_may_begin_with_invalid_completions(tmp_path: Path) -> None:
    plan, folder = plan_of(tmp_path)
    assert run(plan, folder, lambda *_: None) is not None
    [row] = read_curve(folder)
    assert row["share/invalid"] > 0.5


VALID, INVALID = Workflow.single(0).render(), "no workflow"


@pytest.mark.parametrize(
    ("texts", "cut_off", "allowed", "stopped"),
    [
        ([VALID, VALID, INVALID, INVALID], (), 0.5, False),
        ([VALID, INVALID, INVALID, INVALID], (), 0.5, True),
        ([VALID, VALID, INVALID, INVALID], (0,), 0.5, True),
        ([INVALID] * 4, (), 1.0, False),
    ],
    ids=["half", "most", "cut off", "guard is off"],
)
def test_more_invalid_completions_than_allowed_stop_the_first_step_alone(
    texts: list[str], cut_off: tuple[int, ...], allowed: float, stopped: bool
) -> None:
    worker = Worker(name="a", model="local/a")
    team = Team((worker,), NO_CLIENT, Prompting(style="compact", few_shots="none"))
    first = FirstStep(allowed, "quickstart", 1)
    with pytest.raises(InvalidFirstStep) if stopped else nullcontext():
        first.check(texts, [team] * len(texts), cut_off)
    first.check([INVALID] * 4, [team] * 4)


def test_a_stage_on_subsets_offers_all_workers_where_there_are_fewer_than_its_largest_size() -> None:
    assert Adaptive(smallest=2, largest=9).drawn(1, 1, "math500/1", 0) == (0,)
    assert len(Adaptive(smallest=2, largest=9).drawn(5, 1, "math500/1", 0)) <= 5
