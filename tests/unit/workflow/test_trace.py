"""A trace summarises its steps, names its critical path, and can be written without any text of the question."""

from __future__ import annotations

import json
from dataclasses import replace

from ops.core.response import NO_RESPONSE, Response
from ops.workflow.grammar import Step, Workflow
from ops.workflow.trace import StepTrace, WorkflowTrace

WORKFLOW = Workflow((Step(0, "SECRET a"), Step(1, "SECRET b"), Step(2, "lost"), Step(1, "SECRET c", (0, 1))))


def trace() -> WorkflowTrace:
    steps = (
        StepTrace(
            0,
            "zero",
            0,
            "SECRET a",
            (),
            "ok",
            Response("SECRET A", 5, 1, 0.5, 2.0, "", retries=1),
            key="k0",
            queued_s=0.5,
        ),
        StepTrace(1, "one", 1, "SECRET b", (), "ok", Response("SECRET B", 5, 2, 0.25, 3.0, "", cached=True), key="k1"),
        StepTrace(2, "two", 2, "lost", (), "pruned"),
        StepTrace(
            3, "one", 1, "SECRET c", (0, 1), "ok", Response("SECRET\nC", 9, 3, 0.125, 1.0, ""), key="k3", queued_s=0.25
        ),
    )
    return WorkflowTrace(WORKFLOW, "SECRET?", steps, "SECRET\nC", "answered", 4.5, 1000.0)


def test_totals() -> None:
    execution = trace()
    assert (execution.tokens, execution.cost_usd, execution.calls, execution.cached) == (25, 0.875, 3, 1)
    assert (execution.retries, execution.pruned, execution.queued_s) == (1, 1, 0.75)
    assert execution.edges == [(0, 3), (1, 3)]
    assert execution.latency_s == 4.0
    assert execution.critical_path == (1, 3)


def test_the_critical_path_of_a_failed_workflow_is_that_of_what_was_answered() -> None:
    steps = [replace(step) for step in trace().steps]
    steps[3] = replace(steps[3], status="unreachable", response=NO_RESPONSE, error="down")
    failed = replace(trace(), steps=tuple(steps), status="unreachable", answer=None)
    assert failed.critical_path == (1,)
    assert failed.error == "down"
    silent = tuple(replace(step, status="not_run", response=NO_RESPONSE) for step in steps)
    assert replace(failed, steps=silent).critical_path == ()


def test_a_row_of_json_holds_everything() -> None:
    row = json.loads(json.dumps(trace().as_row()))
    assert row["answer"] == "SECRET\nC"
    assert row["workflow"] == WORKFLOW.render()
    assert row["edges"] == [[0, 3], [1, 3]]
    assert row["critical_path"] == [1, 3]
    assert [step["key"] for step in row["steps"]] == ["k0", "k1", "", "k3"]
    assert (row["pruned"], row["retries"], row["queued_s"]) == (1, 1, 0.75)


def test_without_texts_no_text_is_left() -> None:
    failed = replace(trace(), status="refused", steps=(*trace().steps[:3], replace(trace().steps[3], error="SECRET")))
    line = json.dumps(failed.as_row(texts=False))
    assert "SECRET" not in line
    assert "lost" not in line
    row = json.loads(line)
    assert row["cost_usd"] == 0.875
    assert [(step["worker"], step["sees"]) for step in row["steps"]][3] == ("one", [0, 1])
