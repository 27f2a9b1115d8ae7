"""A trace summarises its steps, and is written as a row, as text, as a table and as a picture. No model's text can
break their markup, and a row can be written without any text of the question."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.core.response import NO_RESPONSE, Response
from ops.core.usage import Usage
from ops.workflow.grammar import Step, Workflow, parse_workflow
from ops.workflow.rendering import render_workflow
from ops.workflow.rendering.svg import MAX_IMPLIED_ARROWS
from ops.workflow.trace import StepTrace, WorkflowTrace
from tests.bench.pictures import AGGREGATE, ANSWER, RUN, TREE, pictures, traced

NAMES = ("algebraist", "librarian", "analyst")
WORKFLOW = Workflow((Step(1, "Look it up."), Step(0, "Never used."), Step(0, "Guess."), Step(2, "Compute it.", (0, 2))))
FOUND = Response("It is 3 | 4.", Usage(20, 5), 0.125, 0.25, "", cached=True)
GUESSED = Response("Perhaps 12", Usage(5, 2), 0.25, 3.0, "", retries=1)
COMPUTED = Response("Answer:\n12", Usage(40, 8), 0.5, 1.0, "")
STEPS = (
    StepTrace(0, "librarian", 1, "Look it up.", (), "ok", FOUND, key="k0", queued_s=0.5),
    StepTrace(1, "algebraist", 0, "Never used.", (), "pruned"),
    StepTrace(2, "algebraist", 0, "Guess.", (), "ok", GUESSED, key="k2"),
    StepTrace(3, "analyst", 2, "Compute it.", (0, 2), "ok", COMPUTED, key="k3", queued_s=0.25),
)
TRACE = WorkflowTrace(WORKFLOW, "What is it?", STEPS, "Answer:\n12", "answered", 4.5, 1000.0)
FAILED = WorkflowTrace(
    Workflow((Step(0, "a"), Step(1, "b", "all"))),
    "Q?",
    (
        StepTrace(0, "librarian", 0, "a", (), "unreachable", error="503 four times"),
        StepTrace(1, "analyst", 1, "b", (0,), "not_run"),
    ),
    None,
    "unreachable",
)


def test_totals() -> None:
    assert (TRACE.prompt_tokens, TRACE.completion_tokens, TRACE.tokens) == (65, 15, 80)
    assert (TRACE.cost_usd, TRACE.calls, TRACE.cached) == (0.875, 3, 1)
    assert (TRACE.retries, TRACE.pruned, TRACE.queued_s) == (1, 1, 0.75)
    assert TRACE.edges == [(0, 3), (2, 3)]
    assert TRACE.latency_s == 4.0
    assert TRACE.critical_path == (2, 3)


def test_the_critical_path_of_a_failed_workflow_is_that_of_what_was_answered() -> None:
    slow = replace(STEPS[0], response=replace(FOUND, latency_s=9.0))
    last = replace(STEPS[3], status="unreachable", response=NO_RESPONSE, error="down")
    failed = replace(TRACE, steps=(slow, *STEPS[1:3], last), status="unreachable", answer=None)
    assert failed.critical_path == (0,)
    assert failed.error == "down"
    silent = tuple(replace(step, status="not_run", response=NO_RESPONSE) for step in STEPS)
    assert replace(failed, steps=silent).critical_path == ()


def test_a_row_of_json_holds_everything() -> None:
    row = json.loads(json.dumps(TRACE.to_row()))
    assert row["answer"] == "Answer:\n12"
    assert row["workflow"] == WORKFLOW.render()
    assert row["edges"] == [[0, 3], [2, 3]]
    assert row["critical_path"] == [2, 3]
    assert [step["key"] for step in row["steps"]] == ["k0", "", "k2", "k3"]
    assert (row["calls"], row["latency_s"]) == (3, 4.0)
    assert (row["pruned"], row["retries"], row["queued_s"]) == (1, 1, 0.75)


def test_without_texts_no_text_is_left() -> None:
    failed = replace(TRACE, status="refused", steps=(*STEPS[:3], replace(STEPS[3], error="secret words")))
    line = json.dumps(failed.to_row(include_texts=False))
    texts = (TRACE.question, "secret words", *(part for step in STEPS for part in (step.subtask, step.response.text)))
    assert [text for text in texts if text and json.dumps(text)[1:-1] in line] == []
    row = json.loads(line)
    assert row["cost_usd"] == 0.875
    assert [(step["worker"], step["sees"]) for step in row["steps"]][3] == ("analyst", [0, 2])


# ── text and tables ──────────────────────────────────────────────────────────


def test_workers_are_ordinals_and_names_where_they_are_given() -> None:
    assert "Model 1" in render_workflow(WORKFLOW, "text")
    assert "librarian" in render_workflow(WORKFLOW, "text", NAMES)
    assert "Model" not in render_workflow(WORKFLOW, "text", NAMES)


@pytest.mark.parametrize("text", ['"] --> s9["', "<script>alert(1)</script>", "a\nb --> c", "`x` #quot; [y] | z;"])
def test_no_text_breaks_out_of_a_cell(text: str) -> None:
    workflow = Workflow((Step(0, text),))
    row = render_workflow(workflow, "markdown").splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert "<script" not in row


def test_text_shows_worker_subtask_sight_answer_and_cost() -> None:
    text = render_workflow(TRACE, "text")
    assert "1. librarian  (sees question)" in text
    assert "4. analyst  (sees question, step 1, step 3)" in text
    assert "asked:  Compute it." in text
    assert "answer: It is 3 | 4." in text
    assert "25 tokens, $0.125000, 0.25 s, cached" in text
    assert "not run: the answer cannot depend on it" in text
    assert text.endswith("Answer: Answer: 12\n3 calls (1 cached), 80 tokens, $0.875000, 4.00 s on the critical path")
    wordy = Workflow((Step(0, "word " * 50),))
    assert max(map(len, render_workflow(wordy, "text").splitlines())) <= 100


def test_text_of_a_workflow_that_was_not_run() -> None:
    assert render_workflow(WORKFLOW, "text").splitlines()[0] == "1. Model 1  (sees question)"
    assert "answer" not in render_workflow(WORKFLOW, "text")
    assert render_workflow(Workflow(()), "text") == "(no steps: keeps the previous answer)"


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_failures_are_shown_with_their_reason(form: str) -> None:
    text = render_workflow(FAILED, form)
    assert "unreachable: 503 four times" in text
    assert "not run: another step had failed" in text
    assert "none (unreachable)" in text


def test_markdown_is_one_row_a_step_with_totals() -> None:
    lines = render_workflow(TRACE, "markdown").splitlines()
    assert lines[0] == "| step | worker | subtask | sees | answer | tokens | USD |"
    assert lines[2] == "| 1 | librarian | Look it up. | question | It is 3 \\| 4. | 25 | 0.125000 |"
    assert lines[3].startswith("| 2 | algebraist | Never used. | question | not run")
    assert "**Answer:** Answer: 12" in lines
    assert len(render_workflow(WORKFLOW, "markdown").splitlines()) == 6


# ── pictures ─────────────────────────────────────────────────────────────────

SVG = "{http://www.w3.org/2000/svg}"
IMAGES = Path(__file__).parents[3] / "docs" / "images"
LONG = "Name the two strongest rival diagnoses and say of each which finding it cannot explain, and why that decides."


def texts(picture: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(picture).iter(f"{SVG}text")]


def boxes(picture: str) -> list[tuple[float, float, float, float]]:
    """Return (left, top, right, bottom) of each step's frame."""
    frames = [node for node in ET.fromstring(picture).iter(f"{SVG}rect") if node.get("rx") == "6"]
    corners = [tuple(float(node.get(name, "")) for name in ("x", "y", "width", "height")) for node in frames]
    return [(x, y, x + width, y + height) for x, y, width, height in corners]


def arrows(picture: str) -> int:
    return sum(node.get("marker-end") is not None for node in ET.fromstring(picture).iter(f"{SVG}path"))


def test_shows_ordinals_names_and_subtasks() -> None:
    shown = texts(render_workflow(TREE, "svg", NAMES))
    assert [text for text in shown if "Model" in text] == [
        "1 · Model 0 · algebraist", "2 · Model 3", "3 · Model 5", "4 · Model 0 · algebraist",
    ]  # fmt: skip
    assert "Derive a candidate for the" in shown
    assert shown[0] == "question"
    assert shown[-1] == "answer"


@pytest.mark.parametrize(
    ("workflow", "count"),
    [
        # Arrows: the question to each step without other input, each visible response, and the answer.
        pytest.param(AGGREGATE, 2 + 2 + 1, id="aggregate"),
        pytest.param(TREE, 2 + 4 + 1, id="tree"),
        pytest.param(Workflow.single(0), 2, id="one step"),
        pytest.param(Workflow(()), 1, id="no step"),
        pytest.param(Workflow(tuple(Step(0, "Go on.", "all") for _ in range(9))), 1 + 8 + 1, id="without shortcuts"),
    ],
)
def test_an_arrow_for_everything_that_is_seen(workflow: Workflow, count: int) -> None:
    assert arrows(render_workflow(workflow, "svg")) == count
    assert MAX_IMPLIED_ARROWS < 9 * 8 / 2 - 8


def test_a_trace_adds_what_was_said_and_what_it_cost() -> None:
    shown = texts(render_workflow(traced(), "svg"))
    assert "→ EXPR: 17*23" in shown
    assert any(re.fullmatch(r"\d+ tokens · \$0.\d+ · 0.9 s", text) for text in shown)
    assert shown[-1] == f"answer: {ANSWER}"
    grey = [text for text in shown if "answer cannot see it" in text]
    assert len(grey) == 1
    assert render_workflow(RUN, "svg").count('stroke-dasharray="4 3"') == 1


def test_a_picture_names_a_failure() -> None:
    shown = texts(render_workflow(FAILED, "svg"))
    assert "unreachable 503 four times" in shown
    assert "not run" in shown
    assert shown[-1] == "no answer: unreachable"


@pytest.mark.parametrize("count", [1, 5, 17, 50])
@pytest.mark.parametrize("kind", ["chain", "independent", "in groups"])
def test_boxes_lie_apart_and_readers_lie_below(count: int, kind: str) -> None:
    sees = {"chain": lambda i: i > 0, "independent": lambda i: i == count - 1, "in groups": lambda i: i % 7 == 6}[kind]
    workflow = Workflow(tuple(Step(i % 7, LONG, "all" if sees(i) else "none") for i in range(count)))
    picture = render_workflow(workflow, "svg", NAMES)
    frames = boxes(picture)
    width, height = (float(ET.fromstring(picture).get(name, "")) for name in ("width", "height"))
    assert len(frames) == count
    for left, top, right, bottom in frames:
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    assert len({(left, top) for left, top, _, _ in frames}) == count
    for i, (left, top, right, bottom) in enumerate(frames):
        for left2, top2, right2, bottom2 in frames[:i]:
            assert right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top
    for index in range(count):
        assert all(frames[seen][3] < frames[index][1] for seen in workflow.visible_steps(index))
    assert all(frames[-1][1] >= top for _, top, _, _ in frames)
    assert width < 1300


@pytest.mark.parametrize(
    ("words", "longest"),
    [(LONG, 33), ("x" * 300, 33), ("解方程式并写出最终答案" * 9, 17)],
    ids=["words", "one", "wide"],
)
def test_long_subtasks_are_cut_and_wide_letters_count_twice(words: str, longest: int) -> None:
    question, _, *lines, answer = texts(render_workflow(Workflow.single(0, words), "svg"))
    assert (question, answer) == ("question", "answer")
    assert 2 <= len(lines) <= 3
    assert lines[-1].endswith("…")
    assert max(map(len, lines)) <= longest


@given(st.text(st.characters(), min_size=1), st.text(st.characters()))
@settings(max_examples=200, deadline=None)
def test_no_text_becomes_markup(subtask: str, response: str) -> None:
    printable = "".join(character for character in subtask if not "\ud800" <= character <= "\udfff")
    workflow = Workflow.single(0, printable if printable.strip() else "x")
    answer = Response(response, Usage(0, 0), 0.0, 0.0, "")
    step = StepTrace(0, f"<b>{response}", 0, workflow.steps[0].subtask, (), "ok", answer)
    trace = WorkflowTrace(workflow, "Q", (step,), response, "answered")
    for picture in (render_workflow(workflow, "svg", (response,)), render_workflow(trace, "svg")):
        picture.encode()
        tags = {node.tag.removeprefix(SVG) for node in ET.fromstring(picture).iter()}
        assert tags == {"svg", "style", "defs", "marker", "path", "rect", "g", "text"}


def test_the_pages_pictures_are_what_the_code_draws() -> None:
    for name, svg in pictures().items():
        assert (IMAGES / name).read_text(encoding="utf-8") == svg, f"{name}: run `make docs`"


def test_the_readmes_picture_shows_a_valid_workflow() -> None:
    drawing = ET.fromstring((IMAGES / "question.svg").read_text(encoding="utf-8"))
    code = "\n".join(node.text or "" for node in drawing.iter(f"{SVG}text") if node.get("class") == "code")
    assert len(getattr(parse_workflow(code, offered=3).workflow, "steps", ())) == 3
