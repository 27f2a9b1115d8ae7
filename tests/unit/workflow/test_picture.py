"""The drawn workflow is valid SVG with all steps, for any texts and up to fifty steps."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.core.response import Response
from ops.workflow.grammar import Step, Workflow, parse
from ops.workflow.rendering import render
from ops.workflow.rendering.svg import SHORTCUTS
from ops.workflow.trace import StepTrace, WorkflowTrace
from tests.bench.pictures import AGGREGATE, RUN, TREE, pictures, traced

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("algebraist", "librarian", "analyst")
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
    shown = texts(render(TREE, "svg", NAMES))
    assert [text for text in shown if "Model" in text] == [
        "1 · Model 0 · algebraist", "2 · Model 3", "3 · Model 5", "4 · Model 0 · algebraist",
    ]  # fmt: skip
    assert "Derive a candidate for the" in shown
    assert shown[0] == "question"
    assert shown[-1] == "answer"


def test_an_arrow_for_everything_that_is_seen() -> None:
    # Arrows: the question to each step without other input, each visible response, and the answer.
    assert arrows(render(AGGREGATE, "svg")) == 2 + 2 + 1
    assert arrows(render(TREE, "svg")) == 2 + 4 + 1
    assert arrows(render(Workflow.single(0), "svg")) == 2
    assert arrows(render(Workflow(()), "svg")) == 1
    many = Workflow(tuple(Step(0, "Go on.", "all") for _ in range(9)))
    assert SHORTCUTS < 9 * 8 / 2 - 8
    assert arrows(render(many, "svg")) == 1 + 8 + 1


def test_a_trace_adds_what_was_said_and_what_it_cost() -> None:
    shown = texts(render(traced(), "svg"))
    assert "→ Iron has 26, copper has 29." in shown
    assert any(re.fullmatch(r"\d+ tokens · \$0.00040 · 0.6 s", text) for text in shown)
    assert shown[-1] == "answer: 754"
    grey = [text for text in shown if "answer cannot see it" in text]
    assert len(grey) == 1
    assert render(RUN, "svg").count('stroke-dasharray="4 3"') == 1


def test_a_failure_is_named() -> None:
    workflow = Workflow((Step(0, "a"), Step(1, "b", "all")))
    steps = (
        StepTrace(0, "librarian", 0, "a", (), "unreachable", error="503 four times"),
        StepTrace(1, "analyst", 1, "b", (0,), "not_run"),
    )
    shown = texts(render(WorkflowTrace(workflow, "Q", steps, None, "unreachable"), "svg"))
    assert "unreachable 503 four times" in shown
    assert "not run" in shown
    assert shown[-1] == "no answer: unreachable"


@pytest.mark.parametrize("count", [1, 5, 17, 50])
@pytest.mark.parametrize("kind", ["chain", "independent", "in groups"])
def test_boxes_lie_apart_and_readers_lie_below(count: int, kind: str) -> None:
    sees = {"chain": lambda i: i > 0, "independent": lambda i: i == count - 1, "in groups": lambda i: i % 7 == 6}[kind]
    workflow = Workflow(tuple(Step(i % 7, LONG, "all" if sees(i) else "none") for i in range(count)))
    picture = render(workflow, "svg", NAMES)
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
        assert all(frames[seen][3] < frames[index][1] for seen in workflow.visible(index))
    assert all(frames[-1][1] >= top for _, top, _, _ in frames)
    assert width < 1300


def test_long_subtasks_are_cut_and_wide_letters_count_twice() -> None:
    for words in (LONG, "x" * 300, "解方程式并写出最终答案" * 9):
        question, _, *lines, answer = texts(render(Workflow.single(0, words), "svg"))
        assert (question, answer) == ("question", "answer")
        assert 2 <= len(lines) <= 3
        assert lines[-1].endswith("…")
        assert all(len(line) <= (17 if ord(words[0]) > 255 else 33) for line in lines)


@given(st.text(st.characters(), min_size=1), st.text(st.characters()))
@settings(max_examples=200, deadline=None)
def test_no_text_becomes_markup(subtask: str, response: str) -> None:
    printable = "".join(character for character in subtask if not "\ud800" <= character <= "\udfff")
    workflow = Workflow.single(0, printable if printable.strip() else "x")
    step = StepTrace(
        0, f"<b>{response}", 0, workflow.steps[0].subtask, (), "ok", Response(response, 0, 0, 0.0, 0.0, "")
    )
    trace = WorkflowTrace(workflow, "Q", (step,), response, "answered")
    for picture in (render(workflow, "svg", (response,)), render(trace, "svg")):
        picture.encode()
        tags = {node.tag.removeprefix(SVG) for node in ET.fromstring(picture).iter()}
        assert tags == {"svg", "style", "defs", "marker", "path", "rect", "g", "text"}


def test_the_pages_pictures_are_what_the_code_draws() -> None:
    for name, svg in pictures().items():
        assert (IMAGES / name).read_text(encoding="utf-8") == svg, f"{name}: run `make docs`"


def test_the_readmes_picture_shows_a_valid_workflow() -> None:
    drawing = ET.fromstring((IMAGES / "question.svg").read_text(encoding="utf-8"))
    code = "\n".join(node.text or "" for node in drawing.iter(f"{SVG}text") if node.get("class") == "code")
    assert len(getattr(parse(code, offered=3).workflow, "steps", ())) == 3
