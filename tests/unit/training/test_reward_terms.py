"""Reward terms: without weights the reward is 0, 0.5 or 1; a weight adds to it, rollout by rollout, and is logged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ops.config import Prompting, Worker
from ops.core.errors import WorkerUnreachable
from ops.core.problem import Problem
from ops.core.response import Message
from ops.planning.text import describe
from ops.training.rewards.reward import StepStatistics, merged, reward_function
from ops.training.run.plan import CURVE
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.builders import Answering
from tests.unit.training.tiny import tiny_plan

OFFERED = [Worker(name=name, model=f"local/{name}") for name in ("knows", "lies", "away")]
ALONE, WRONG, AWAY = (Workflow.single(ordinal).render() for ordinal in range(3))
CHECKED = Workflow((Step(1, "Guess."), Step(0, "Check it.", "all"))).render()
COMPLETIONS = [ALONE, CHECKED, WRONG, "no", AWAY]
PLAIN = [1.0, 1.0, 0.5, 0.0, None]


def says(worker: Worker, _: Sequence[Message]) -> str:
    if worker.name == "away":
        raise WorkerUnreachable("away")
    return "\\boxed{7}" if worker.name == "knows" else "\\boxed{8}"


def step(weights: Mapping[str, float] | None) -> tuple[list[float | None], StepStatistics]:
    seen: list[StepStatistics] = []
    problems = {"math500/a": Problem("a", "math500", "math", "train", "Question?", "7", "math")}
    prompting = Prompting(style="compact")
    function = reward_function(problems, Team(OFFERED, Answering(says), prompting), seen.append, weights)
    rewards = asyncio.run(function(completions=COMPLETIONS, problem=["math500/a"] * len(COMPLETIONS), epoch=[0]))  # type: ignore[arg-type]
    return rewards, seen[0]


@pytest.mark.parametrize("weights", [None, {}])
def test_without_weights_nothing_is_added_or_logged(weights: Mapping[str, float] | None) -> None:
    rewards, found = step(weights)
    assert rewards == PLAIN
    assert [name for name in found.values if name.startswith("term/")] == []


@pytest.mark.parametrize(
    ("term", "weight", "added"),
    [
        ("cost", -40.0, (-0.04, -0.08, -0.04)),
        ("latency", -0.1, (-0.05, -0.1, -0.05)),
        ("steps", 0.01, (0.01, 0.02, 0.01)),
    ],
)
def test_a_weight_acts_on_executed_workflows(term: str, weight: float, added: tuple[float, ...]) -> None:
    rewards, found = step({term: weight})
    assert rewards[:3] == pytest.approx([plain + more for plain, more in zip(PLAIN, added, strict=False)])
    assert rewards[3:] == [0.0, None]
    assert found.values[f"term/{term}"] == pytest.approx(sum(added) / 4)  # four rollouts are scorable
    assert found.values["share/right"] == 2 / 5


def test_terms_add_up_and_those_of_several_ranks_are_one_mean() -> None:
    rewards, found = step({"cost": -40.0, "steps": 0.01})
    assert rewards[0] == pytest.approx(0.97)
    both = merged([found, found])
    assert both.values["term/cost"] == pytest.approx(found.values["term/cost"]) == pytest.approx(-0.04)
    assert both.values["term/steps"] == pytest.approx(found.values["term/steps"])


@pytest.mark.slow
def test_the_curve_logs_each_term_and_the_plan_names_it(tmp_path: Path) -> None:
    from ops.training.grpo.trainer import run

    plan, folder = tiny_plan(tmp_path, steps=1, reward_terms={"steps": -0.01})
    assert "0, 0.5 or 1, and -0.01 × steps (steps)" in describe(plan.setup)
    run(plan, folder, lambda *_: None)
    [row] = map(json.loads, (folder / CURVE).read_text(encoding="utf-8").splitlines())
    outcomes = row["share/right"] + 0.5 * row["share/wrong"]
    assert row["term/steps"] < 0
    assert row["reward"] == pytest.approx(outcomes + row["term/steps"])
