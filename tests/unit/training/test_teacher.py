"""A teacher of the cold start: its workflows that answer right become SFT examples."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ops.cache import ResponseCache
from ops.conductor.policy import PolicyCard
from ops.config import ColdStart, Setup, Teacher
from ops.config.loading import check_against_pool
from ops.core.errors import ConfigError
from ops.planning.estimate import Measured
from ops.planning.lengths import lengths
from ops.planning.stages import Stages
from ops.spending.ledger import Ledger
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.cold_start.teacher import Taught, taught, teachers_team
from ops.workers.call import Account
from ops.workers.client import WorkerClient
from ops.workflow.grammar import Workflow, parse
from tests.unit.training.taught import POOL, PROBLEMS, RECIPE, laid_out, sft_examples, store
from tests.unit.training.tiny import SCRATCH

STATIC = Teacher.model_validate({"policy": {"kind": "static", "workflow": [{"worker": "algebraist"}]}, "samples": 2})
PROMPTED = Teacher.model_validate({"policy": {"kind": "prompted", "worker": "algebraist"}})
CARD = PolicyCard(
    recipe=RECIPE.name, pool=POOL, offered=POOL.names, prompting=RECIPE.prompting, execution=RECIPE.execution,
    max_completion_tokens=64,
)  # fmt: skip


def with_teacher(setup: Setup, teacher: Teacher | None) -> Setup:
    cold_start = RECIPE.cold_start.model_copy(update={"teacher": teacher})  # type: ignore[union-attr]
    return replace(setup, recipe=RECIPE.model_copy(update={"cold_start": cold_start}))


def learned(tmp_path: Path, teacher: Teacher) -> Taught:
    client = WorkerClient(ResponseCache(tmp_path / "cache"), Ledger(tmp_path / "ledger"), Account("run", "test", 1.0))
    try:
        return asyncio.run(taught(laid_out(tmp_path / "work"), CARD, teacher, PROBLEMS, client))
    finally:
        client.cache.close()
        client.ledger.close()


def test_right_workflows_are_kept_once_with_what_all_cost_and_become_examples(tmp_path: Path) -> None:
    found = learned(tmp_path, STATIC)
    assert found.tried == 2 * len(PROBLEMS) and 0 < found.right < found.tried and found.usd > 0
    assert len(found.workflows) == found.right // 2, "an embedded tool answers alike each time"
    alone = Workflow.single(POOL.names.index("algebraist"))
    assert all(workflows == [alone] for workflows in found.workflows.values())
    setup = laid_out(tmp_path / "taught")
    store(setup.workspace)
    settings = ColdStart(success_share=1.0, attempts=0)
    examples = sft_examples(setup, settings, 400, taught=found.workflows)
    by_question = {problem.question: problem.key for problem in PROBLEMS}
    for example in examples:
        key = next(key for question, key in by_question.items() if question in example["prompt"][-1]["content"])
        if key in found.workflows:
            assert parse(example["completion"][0]["content"], offered=len(POOL.names)).workflow == alone


def test_a_teacher_that_writes_no_workflow_teaches_nothing(tmp_path: Path) -> None:
    found = learned(tmp_path, PROMPTED)  # a tool that answers the question in place of writing a workflow
    assert (found.tried, found.right, found.workflows) == (len(PROBLEMS), 0, {})
    assert found.usd > 0, "its calls were paid for"


def test_the_teacher_reads_the_explained_grammar(tmp_path: Path) -> None:
    assert RECIPE.prompting.style == "compact"
    [message] = teachers_team(laid_out(tmp_path), CARD, None).messages(PROBLEMS[0])  # type: ignore[arg-type]
    assert "access_list" in message["content"]


def test_a_teacher_is_part_of_the_policys_key_and_none_changes_no_key(tmp_path: Path) -> None:
    setup = laid_out(tmp_path)
    without = base_policy_folder(setup)
    assert base_policy_folder(with_teacher(setup, None)) == without
    keys = {base_policy_folder(with_teacher(setup, each)) for each in (STATIC, PROMPTED)}
    assert len(keys | {without}) == 3


def test_the_plan_counts_writing_and_the_teachers_workflows(tmp_path: Path) -> None:
    setup = laid_out(tmp_path)

    def cold_start(teacher: Teacher | None) -> tuple[float, float]:
        asked = with_teacher(setup, teacher)
        cost = Stages(asked, lengths(asked), {}, Measured()).cold_start()
        assert cost is not None
        return cost.calls.low, cost.usd.expected

    (none, _), (prompted, usd), (static, _) = (cold_start(each) for each in (None, PROMPTED, STATIC))
    places = 4 * RECIPE.curation.per_domain
    assert prompted - none >= 2 * places * 0.5, "one call writes, one works; equal ones are paid once"
    assert usd > 0 and static > none


@pytest.mark.parametrize(("policy", "field"), [
    ({"kind": "prompted", "worker": "nobody"}, "cold_start.teacher.policy.worker"),
    ({"kind": "static", "workflow": [{"worker": "nobody"}]}, "cold_start.teacher.policy.workflow.0.worker"),
])  # fmt: skip
def test_a_teacher_that_names_an_unknown_worker_is_refused(
    tmp_path: Path, policy: dict[str, object], field: str
) -> None:
    setup = with_teacher(laid_out(tmp_path), Teacher.model_validate({"policy": policy}))
    with pytest.raises(ConfigError, match=f"{field}.*nobody"):
        check_against_pool(setup.recipe, setup.pool)


def test_a_cold_start_learns_from_its_teacher(tmp_path: Path) -> None:
    setup = laid_out(tmp_path / "work")
    store(setup.workspace)
    cold_start = ColdStart(steps=1, batch=4, success_share=1.0, attempts=0, teacher=STATIC)
    recipe = RECIPE.model_copy(update={"cold_start": cold_start, "policy": SCRATCH})
    client = WorkerClient(ResponseCache(tmp_path / "cache"), Ledger(tmp_path / "ledger"), Account("run", "test", 1.0))
    try:
        folder = make_base_policy(replace(setup, recipe=recipe), client)
        asked = client.counts
    finally:
        client.cache.close()
        client.ledger.close()
    assert PolicyCard.read(folder).recipe == recipe.name
    assert asked.live + asked.cached == 2 * len(PROBLEMS), "the teacher was asked about every problem"
