"""Untrained policies: which settings are refused, and what a worker that writes badly costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ops.conductor.policy import PolicyCard, load_model
from ops.conductor.untrained import WRITE_SUBTASK, PromptedConductor, StaticConductor
from ops.conductor.writer import load_conductor
from ops.config import Evaluation, Pool, PromptedPolicy, Prompting, Recipe, StaticPolicy, UntrainedPolicy, Worker
from ops.config.loading import check_against_pool
from ops.core.errors import ConfigError, DataError, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message, Sample
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.evaluation.runner import evaluate
from ops.results.outcome_rows import OutcomeRow
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow
from ops.workflow.team import Team
from tests.builders import make_problem

WORKERS = (Worker(name="writer", model="local/writer"), Worker(name="solver", model="local/solver"))
POOL = Pool(name="two", workers=WORKERS)
PROMPTED: dict[str, Any] = {"kind": "prompted", "worker": "writer"}
LISTED = [{"worker": "solver"}, {"worker": "solver", "subtask": "Check it.", "access": [0]}]
STATIC: dict[str, Any] = {"kind": "static", "workflow": LISTED}
FINE = {"prompting": {"access": "fine_grained"}}


def recipe(policy: dict[str, Any], **more: Any) -> Recipe:
    return Recipe.from_file_values({"name": "r", "pool": "two", "benchmarks": {}, "policy": policy} | more)


@pytest.mark.parametrize(("policy", "more", "said"), [
    (PROMPTED, {"cold_start": {}}, "cold_start is a stage of training: leave it out"),
    (PROMPTED, {"recursive": {}}, "recursive is a stage of training"),
    (PROMPTED, {"prompting": {"style": "compact"}}, "set prompting.style: full"),
    (PROMPTED, {"evaluation": {"writer": "vllm"}}, "policy.kind prompted has none"),
    (PROMPTED | {"model": "x"}, {}, "Extra inputs"),
    (STATIC, {}, r"policy.workflow.1.access lists steps: write \[\], all, or set prompting.access: fine_grained"),
    (STATIC, {"prompting": {"access": "fine_grained", "max_steps": 1}}, "2 steps, and prompting.max_steps allows 1"),
    (STATIC | {"workflow": []}, {}, "at least 1 item"),
    (STATIC | {"workflow": [{"worker": "solver", "subtask": " "}]}, {}, "should match pattern"),
    (STATIC | {"workflow": [{"worker": "solver", "access": [0]}]}, FINE, "are not earlier steps"),
    (STATIC | {"workflow": [*LISTED, {"worker": "solver", "access": [1, 1]}]}, FINE, "are not earlier steps"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(policy: dict[str, Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        recipe(policy, **more)


@pytest.mark.parametrize(("policy", "field"), [
    (PROMPTED | {"worker": "absent"}, "policy.worker"),
    (STATIC | {"workflow": [{"worker": "solver"}, {"worker": "absent"}]}, "policy.workflow.1.worker"),
])  # fmt: skip
def test_a_worker_that_the_pool_lacks_is_refused_by_name(policy: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match="workers of the pool are: writer, solver") as refused:
        check_against_pool(recipe(policy), POOL)
    assert refused.value.field == field
    check_against_pool(recipe(PROMPTED), POOL)
    check_against_pool(recipe(STATIC, **FINE), POOL)


def test_which_recipes_train() -> None:
    assert [recipe(each, **FINE).is_trained for each in (PROMPTED, STATIC)] == [False, False]
    assert recipe({"kind": "pretrained", "model": "m"}).is_trained


def card(policy: UntrainedPolicy) -> PolicyCard:
    return PolicyCard(
        recipe="r", pool=POOL, offered=("solver", "writer"), prompting=Prompting(access="fine_grained"),
        max_completion_tokens=64, untrained=policy,
    )  # fmt: skip


def stored(folder: Path, policy: UntrainedPolicy) -> PolicyCard:
    card(policy).write(folder)
    return PolicyCard.read(folder)


def test_a_static_policy_writes_its_workflow_with_the_cards_ordinals(tmp_path: Path) -> None:
    stored(tmp_path, StaticPolicy.from_file_values(STATIC))
    conductor = load_conductor(tmp_path, Workspace(tmp_path))
    assert isinstance(conductor, StaticConductor)
    text = Workflow((Step(0, SOLVE_SUBTASK), Step(0, "Check it.", (0,)))).render()
    assert conductor.write([[{"role": "user", "content": "?"}]] * 2) == [text, text]


def test_a_policy_without_weights_says_so_where_weights_are_needed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a prompted policy, which has no weights"):
        load_model(tmp_path, stored(tmp_path, PromptedPolicy(worker="writer")))


def test_a_pool_without_the_worker_that_writes_is_refused(tmp_path: Path) -> None:
    smaller = Pool(name="one", workers=WORKERS[1:])
    made = stored(tmp_path, PromptedPolicy(worker="writer"))
    with pytest.raises(DataError, match="is writer, which pool 'one' does not have"):
        made.build_team(smaller, tmp_path, made.execution)


class Pair:
    """A client: `writes` gives what the writer says or raises; the solver says 7."""

    def __init__(self, writes: Callable[[], str]) -> None:
        self.writes = writes

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        if WRITE_SUBTASK in messages[-1]["content"]:
            return Response(self.writes(), Usage(100, 50), 0.02, 1.0, "stop")
        return Response("\\boxed{7}", Usage(10, 5), 0.001, 0.5, "stop")


def scored(writes: Callable[[], str]) -> OutcomeRow:
    made = card(PromptedPolicy(worker="writer"))
    conductor = PromptedConductor(made, PromptedPolicy(worker="writer"))
    team = Team((WORKERS[1], WORKERS[0]), Pair(writes), Prompting())
    [row] = asyncio.run(evaluate(conductor, [make_problem(answer="7", grader="math")], team, Evaluation()))
    return row


def refused() -> str:
    raise WorkerRefused("writer", "content policy")


def unreachable() -> str:
    raise WorkerUnreachable("writer", "away")


@pytest.mark.parametrize(("writes", "outcome", "is_valid", "usd"), [
    (Workflow.single(0).render, "right", True, 0.021),
    (Workflow.single(4).render, "invalid", False, 0.02),
    (lambda: "No idea.", "invalid", False, 0.02),
    (lambda: " ", "wrong", False, 0.02),
    (refused, "wrong", False, 0.0),
    (unreachable, "unscorable", False, 0.0),
])  # fmt: skip
def test_what_is_written_badly_is_a_format_failure_with_its_cost(
    writes: Callable[[], str], outcome: str, is_valid: bool, usd: float
) -> None:
    row = scored(writes)
    assert (row.outcome, row.format_ok) == (outcome, is_valid)
    assert row.cost_usd == pytest.approx(usd)
    assert row.workers == (("solver",) if is_valid else ())
