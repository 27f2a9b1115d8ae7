"""Draw a workflow as an SVG picture.

The question is at the top and the answer at the bottom. An arrow leads from each step to the steps that see it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from ops.core.status import Status
from ops.spending.bookings import format_usd
from ops.workflow.grammar import Step, Workflow
from ops.workflow.rendering.text import get_workflow
from ops.workflow.strategy import direct_edges
from ops.workflow.trace import StepTrace, WorkflowTrace

BOXES_PER_ROW = 4
"""The largest number of boxes in a row. A layer with more boxes is split into several rows."""
CROWDED_STEPS = 12
"""The number of steps from which on the boxes are smaller."""
BOX_WIDTH, BOX_GAP, TOP_MARGIN, SIDE_MARGIN, LINE_HEIGHT, BOX_COLUMNS = 254.0, 22.0, 24.0, 44.0, 15.0, 32
UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""A pattern for characters that XML does not allow."""


class Line(NamedTuple):
    """A line of text in a box."""

    text: str
    """The text of the line."""
    style: str
    """The class of the line in the picture's style sheet."""


class StepBox(NamedTuple):
    """The box of a step. All lengths are in pixels."""

    x: float
    """The left edge of the box."""
    y: float
    """The top edge of the box."""
    height: float
    """The height of the box."""
    lines: list[Line]
    """The lines of text in the box."""

    @property
    def middle(self) -> float:
        """Return the horizontal centre of the box."""
        return self.x + BOX_WIDTH / 2

    @property
    def bottom(self) -> float:
        """Return the bottom edge of the box."""
        return self.y + self.height


def assign_layers(workflow: Workflow) -> list[list[int]]:
    """Return the steps of each layer from top to bottom.

    Each step is as low as the steps that see it allow, so that arrows are short. The last step is in the lowest layer.
    """
    edges = direct_edges(workflow)
    count = len(workflow.steps)
    layer = [0] * count
    for earlier, later in sorted(edges, key=lambda edge: edge[1]):
        layer[later] = max(layer[later], layer[earlier] + 1)
    if count and (others := layer[:-1]):
        layer[-1] = max(layer[-1], max(others) + 1)
    for step in reversed(range(count)):
        if below := [layer[later] for earlier, later in edges if earlier == step]:
            layer[step] = min(below) - 1
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for step in range(count):
        rows[layer[step]].append(step)
    return [row for row in rows if row]


def place_boxes(layers: list[list[int]], texts: list[list[Line]]) -> tuple[dict[int, StepBox], float, float]:
    """Return the boxes by step, the width of the picture, and the lower end of the last row including its gap."""
    rows = [layer[start : start + BOXES_PER_ROW] for layer in layers for start in range(0, len(layer), BOXES_PER_ROW)]
    most = max((len(row) for row in rows), default=1)
    width = 2 * SIDE_MARGIN + most * BOX_WIDTH + (most - 1) * BOX_GAP
    boxes, y = {}, TOP_MARGIN + 24 + 2 * BOX_GAP
    for row in rows:
        height = max(12 + LINE_HEIGHT * len(texts[step]) for step in row)
        x = (width - len(row) * BOX_WIDTH - (len(row) - 1) * BOX_GAP) / 2
        for column, step in enumerate(row):
            boxes[step] = StepBox(x + column * (BOX_WIDTH + BOX_GAP), y, height, texts[step])
        y += height + 2 * BOX_GAP
    return boxes, width, y


def build_box_lines(run: Workflow | WorkflowTrace, index: int, names: Sequence[str]) -> list[Line]:
    """Return the lines in the box of a step, which name its worker, its subtask and, for a trace, its outcome."""
    workflow = get_workflow(run)
    step, crowded = workflow.steps[index], len(workflow.steps) >= CROWDED_STEPS
    name = run.steps[index].worker if isinstance(run, WorkflowTrace) else _worker_name(step, names)
    head = f"{index + 1} · Model {step.worker}" + (f" · {name}" if name else "")
    lines = [Line(truncate_to_columns(head, BOX_COLUMNS - 2), "head")]
    lines += [Line(line, "task") for line in _wrap(step.subtask, 1 if crowded else 3)]
    if isinstance(run, WorkflowTrace):
        lines += _outcome_lines(run.steps[index], crowded=crowded)
    elif index not in workflow.needed_steps():
        lines.append(Line("not run: the answer cannot see it", "said"))
    return lines


def _worker_name(step: Step, names: Sequence[str]) -> str:
    return names[step.worker] if step.worker < len(names) else ""


def _outcome_lines(step: StepTrace, *, crowded: bool) -> list[Line]:
    if step.status == Status.PRUNED:
        return [Line("not run: the answer cannot see it", "said")]
    if step.status != Status.OK:
        return [Line(truncate_to_columns(f"{step.status.replace('_', ' ')} {step.error}".strip(), BOX_COLUMNS), "bad")]
    response = step.response
    cached = " · cached" if response.cached else ""
    price = f"{response.tokens} tokens · {format_usd(response.cost_usd)} · {response.latency_s:.2g} s{cached}"
    said = [] if crowded else _wrap(f"→ {response.text}", 2)
    return [*(Line(line, "said") for line in said), Line(price, "price")]


def to_printable_line(text: str) -> str:
    """Return the text on one line, with a replacement for each character that XML does not allow."""
    return " ".join(UNPRINTABLE.sub("�", text).split())


def count_columns(character: str) -> int:
    """Return the number of columns that a character takes, which is 2 for wide East Asian characters."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def truncate_to_columns(text: str, columns: int) -> str:
    """Return the beginning of a text with at most `columns` columns; a shortened text ends with an ellipsis."""
    line = to_printable_line(text)
    if sum(map(count_columns, line)) <= columns:
        return line
    kept = ""
    for character in line:
        columns -= count_columns(character)
        if columns < 1:
            break
        kept += character
    return kept.rstrip(" .,;:") + "…"


def _wrap(text: str, lines: int) -> list[str]:
    """Return the text as at most `lines` lines of a box's width, broken between words if possible.

    The last line is shortened if the text is too long.
    """
    rest, wrapped = to_printable_line(text), list[str]()
    while rest and len(wrapped) < lines - 1:
        head = _take_fitting(rest)
        wrapped.append(head.rstrip())
        rest = rest[len(head) :].lstrip()
    return [*wrapped, truncate_to_columns(rest, BOX_COLUMNS)] if rest else wrapped


def _take_fitting(text: str) -> str:
    width, end = 0, 0
    while end < len(text) and (width := width + count_columns(text[end])) <= BOX_COLUMNS:
        end += 1
    blank = text.rfind(" ", 0, end + 1)
    return text[:end] if end == len(text) or blank < end // 2 else text[:blank]


MAX_IMPLIED_ARROWS = 12
"""The largest number of arrows that are drawn although other arrows imply them. If there are more, all are omitted."""
_COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f", "#edc948", "#ff9da7", "#79706e"
)  # fmt: skip
_INK, _SOFT, _PALE, _GOOD, _BAD = "#1f2933", "#6b7785", "#b8c2cc", "#2f855a", "#c53030"


def render_svg(run: Workflow | WorkflowTrace, names: Sequence[str] = ()) -> str:
    """Return a workflow or its trace as an SVG picture.

    Each step has a box with the colour of its worker, or a grey one if the step cannot influence the answer. The box
    names the worker by ordinal and, if `names` (by ordinal) or the trace contains it, by name. For a trace, it also
    shows the beginning of the response, the tokens, the cost in USD and the latency in seconds. Arrows that other
    arrows imply are thin, and are left out if there are many. All texts are escaped, so that they cannot add markup.
    """
    workflow = get_workflow(run)
    texts = [build_box_lines(run, index, names) for index in range(len(workflow.steps))]
    boxes, width, end = place_boxes(assign_layers(workflow), texts)
    answer = _answer_label(run)
    outcome = _GOOD if answer.startswith("answer") else _BAD
    parts = [
        *_draw_arrows(workflow, boxes, width / 2, end, outcome),
        _draw_pill(width / 2, TOP_MARGIN, "question", _INK),
    ]
    needed = workflow.needed_steps()
    for index, box in sorted(boxes.items()):
        parts.append(_draw_box(run, index, box, used=index in needed, last=index == len(workflow.steps) - 1))
    parts.append(_draw_pill(width / 2, end, answer, outcome))
    return _assemble_document(width, end + 24 + TOP_MARGIN, workflow, parts)


def _answer_label(run: Workflow | WorkflowTrace) -> str:
    if isinstance(run, WorkflowTrace):
        if run.answer is None:
            return f"no answer: {run.status.replace('_', ' ')}"
        return truncate_to_columns(
            f"answer: {re.sub('^answer: *', '', to_printable_line(run.answer), flags=re.IGNORECASE)}", 60
        )
    return "answer" if run.steps else "answer: the previous one is kept"


def _draw_arrows(workflow: Workflow, boxes: dict[int, StepBox], middle: float, end: float, outcome: str) -> list[str]:
    needed, straight = workflow.needed_steps(), set(direct_edges(workflow))
    parts = []
    first_row = min((box.y for box in boxes.values()), default=0.0)
    for later, box in boxes.items():
        ink = _INK if later in needed else _PALE
        if not workflow.visible_steps(later):
            near = box.y == first_row
            parts.append(
                _draw_curve(middle, TOP_MARGIN + 24, box.middle, box.y, ink) if near else _draw_question_dot(box, ink)
            )
        above = [boxes[earlier] for earlier in workflow.visible_steps(later) if (earlier, later) in straight]
        parts.extend(_draw_curve(source.middle, source.bottom, box.middle, box.y, ink) for source in above)
    implied = [
        (earlier, later)
        for later in boxes
        for earlier in workflow.visible_steps(later)
        if (earlier, later) not in straight
    ]
    if len(implied) <= MAX_IMPLIED_ARROWS:
        parts += [_draw_arc(boxes[earlier], boxes[later], boxes.values()) for earlier, later in implied]
    last = len(workflow.steps) - 1
    top = boxes[last].bottom if last >= 0 else TOP_MARGIN + 24
    return [*parts, _draw_curve(boxes[last].middle if last >= 0 else middle, top, middle, end, outcome)]


def _draw_curve(x0: float, y0: float, x1: float, y1: float, colour: str) -> str:
    bend = (y1 - y0) / 2
    path = f"M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1 - 5:.0f}"
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" marker-end="url(#{_marker_id(colour)})"/>'
    )


def _draw_question_dot(box: StepBox, colour: str) -> str:
    """Draw a dot that stands for the question, because an arrow from the top would cross other steps."""
    x, y = box.x + 26, box.y - 18
    return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{colour}"/>' + _draw_curve(x, y, x, box.y, colour)


def _draw_arc(above: StepBox, below: StepBox, boxes: Iterable[StepBox]) -> str:
    """Draw a thin arrow to a step from one that it also sees through other steps, to the right of all boxes between."""
    x0, x1 = above.x + BOX_WIDTH, below.x + BOX_WIDTH
    y0, y1 = above.y + above.height / 2, below.y + below.height / 2
    between = max(box.x + BOX_WIDTH for box in boxes if above.y <= box.y <= below.y)
    clear = between + min(36.0, 8 + (y1 - y0) / 16)
    out = max(x0, x1) + (clear - max(x0, x1)) * 4 / 3  # the curve reaches 3/4 of the way to its handles
    path = f"M{x0:.0f} {y0:.0f}C{out:.0f} {y0:.0f} {out:.0f} {y1:.0f} {x1 + 4:.0f} {y1:.0f}"
    return f'<path d="{path}" fill="none" stroke="{_SOFT}" stroke-width="0.9" marker-end="url(#{_marker_id(_SOFT)})"/>'


def _marker_id(colour: str) -> str:
    return f"head{colour[1:]}"


def _draw_box(run: Workflow | WorkflowTrace, index: int, box: StepBox, *, used: bool, last: bool) -> str:
    workflow = get_workflow(run)
    failed = isinstance(run, WorkflowTrace) and run.steps[index].status not in (Status.OK, Status.PRUNED)
    worker = _COLOURS[workflow.steps[index].worker % len(_COLOURS)] if used else _PALE
    edge = _BAD if failed else _GOOD if last else worker
    dashes = "" if used else ' stroke-dasharray="4 3"'
    frame = (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{BOX_WIDTH:.0f}" height="{box.height:.0f}" rx="6" '
        f'fill="{"#ffffff" if used else "#f4f5f7"}" stroke="{edge}" stroke-width="{2.4 if last else 1.2}"{dashes}/>'
        f'<rect x="{box.x + 1.5:.1f}" y="{box.y + 5:.0f}" width="5" height="{box.height - 10:.0f}" fill="{worker}"/>'
    )
    off = "" if used else " off"
    lines = (
        f'<text x="{box.x + 14:.0f}" y="{box.y + 17 + LINE_HEIGHT * number:.0f}" class="{line.style}{off}">'
        f"{escape(UNPRINTABLE.sub('�', line.text))}</text>"
        for number, line in enumerate(box.lines)
    )
    return f"<g>{frame}{''.join(lines)}</g>"


def _draw_pill(middle: float, y: float, text: str, colour: str) -> str:
    width = 24 + 7.4 * sum(map(count_columns, text))
    return (
        f'<g><rect x="{middle - width / 2:.0f}" y="{y:.0f}" width="{width:.0f}" height="24" rx="12" fill="{colour}"/>'
        f'<text x="{middle:.0f}" y="{y + 16:.0f}" class="pill">{escape(text)}</text></g>'
    )


_STYLE = (
    "text{font:12px ui-sans-serif,system-ui,'Segoe UI','Noto Sans','DejaVu Sans',sans-serif}"
    f".head{{font-weight:600;fill:{_INK}}}.task{{fill:{_INK}}}.said{{font-style:italic;fill:{_SOFT}}}"
    f".price{{font-size:10px;fill:{_SOFT}}}.bad{{fill:{_BAD}}}.off{{fill:{_SOFT}}}"
    ".pill{fill:#ffffff;text-anchor:middle;font-weight:600}"
)


def _assemble_document(width: float, height: float, workflow: Workflow, parts: Sequence[str]) -> str:
    heads = "".join(
        f'<marker id="{_marker_id(colour)}" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="6" markerHeight="6" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        for colour in (_INK, _SOFT, _PALE, _GOOD, _BAD)
    )
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        f'aria-label="workflow of {len(workflow.steps)} steps"><style>{_STYLE}</style><defs>{heads}</defs>\n'
        f'<rect width="100%" height="100%" fill="#fbfcfd"/>\n{body}\n</svg>\n'
    )
