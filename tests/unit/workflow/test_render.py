"""Pictures and texts of a workflow show the executed steps, and no model's text can break their markup."""

from __future__ import annotations

import re

import pytest

from ops.core.response import Response
from ops.workflow.grammar import Step, Workflow
from ops.workflow.rendering import render
from ops.workflow.trace import StepTrace, WorkflowTrace

WORKFLOW = Workflow((Step(1, "Look it up."), Step(0, "Never used."), Step(2, "Compute it.", (0,))))
TRACE = WorkflowTrace(
    WORKFLOW,
    "Q?",
    (
        StepTrace(
            0, "librarian", 1, "Look it up.", (), "ok", Response("It is 3 | 4.", 20, 5, 0.00002, 0.3, "", cached=True)
        ),
        StepTrace(1, "algebraist", 0, "Never used.", (), "pruned"),
        StepTrace(2, "analyst", 2, "Compute it.", (0,), "ok", Response("Answer:\n12", 40, 8, 0.00007, 0.9, "")),
    ),
    "Answer:\n12",
    "answered",
    0.01,
)


def steps(*accesses: object) -> Workflow:
    return Workflow(tuple(Step(0, "x", access) for access in accesses))  # type: ignore[arg-type]


def test_workers_are_ordinals_and_names_where_they_are_given() -> None:
    names = ("algebraist", "librarian", "analyst")
    assert "Model 1" in render(WORKFLOW, "text")
    assert "librarian" in render(WORKFLOW, "text", names)
    assert "Model" not in render(WORKFLOW, "text", names)


@pytest.mark.parametrize("text", ['"] --> s9["', "<script>alert(1)</script>", "a\nb --> c", "`x` #quot; [y] | z;"])
def test_no_text_breaks_out_of_a_cell(text: str) -> None:
    workflow = Workflow((Step(0, text),))
    row = render(workflow, "markdown").splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert "<script" not in row


def test_text_shows_worker_subtask_sight_answer_and_cost() -> None:
    text = render(TRACE, "text")
    assert "1. librarian  (sees question)" in text
    assert "3. analyst  (sees question, step 1)" in text
    assert "asked:  Compute it." in text
    assert "answer: It is 3 | 4." in text
    assert "25 tokens, $0.000020, 0.30 s, cached" in text
    assert "not run: the answer cannot depend on it" in text
    assert text.endswith("Answer: Answer: 12\n2 calls (1 cached), 73 tokens, $0.000090, 1.20 s on the critical path")
    wordy = Workflow((Step(0, "word " * 50),))
    assert max(map(len, render(wordy, "text").splitlines())) <= 100


def test_text_of_a_workflow_that_was_not_run() -> None:
    assert render(WORKFLOW, "text").splitlines()[0] == "1. Model 1  (sees question)"
    assert "answer" not in render(WORKFLOW, "text")
    assert render(Workflow(()), "text") == "(no steps: keeps the previous answer)"


def test_failures_are_shown_with_their_reason() -> None:
    failed = WorkflowTrace(
        steps("none", "all"),
        "Q?",
        (
            StepTrace(0, "librarian", 0, "x", (), "unreachable", error="503 four times"),
            StepTrace(1, "analyst", 0, "x", (0,), "not_run"),
        ),
        None,
        "unreachable",
    )
    for text in (render(failed, "text"), render(failed, "markdown")):
        assert "unreachable: 503 four times" in text
        assert "not run: another step had failed" in text
        assert "none (unreachable)" in text


def test_markdown_is_one_row_a_step_with_totals() -> None:
    lines = render(TRACE, "markdown").splitlines()
    assert lines[0] == "| step | worker | subtask | sees | answer | tokens | USD |"
    assert lines[2] == "| 1 | librarian | Look it up. | question | It is 3 \\| 4. | 25 | 0.000020 |"
    assert lines[3].startswith("| 2 | algebraist | Never used. | question | not run")
    assert "**Answer:** Answer: 12" in lines
    assert len(render(WORKFLOW, "markdown").splitlines()) == 5
