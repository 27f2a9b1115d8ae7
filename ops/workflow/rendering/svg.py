"""A drawn workflow: the question above, the answer below, what is seen as arrows; where its boxes lie."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from ops.spending.books import usd
from ops.workflow.grammar import Step, Workflow
from ops.workflow.rendering.text import workflow_of
from ops.workflow.strategy import direct
from ops.workflow.trace import StepTrace, WorkflowTrace

PER_ROW = 4
"""Boxes side by side; more of one layer go into rows below each other."""
CROWDED = 12
"""From this number of steps on, boxes are smaller."""
WIDTH, GAP, MARGIN, SIDE, LINE, COLUMNS = 254.0, 22.0, 24.0, 44.0, 15.0, 32
UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold."""


class Line(NamedTuple):
    """A line of words, and its style: a class of the picture's style sheet."""

    text: str
    style: str


class StepBox(NamedTuple):
    """A step's box: its top left corner and its text."""

    x: float
    y: float
    height: float
    lines: list[Line]

    @property
    def middle(self) -> float:
        return self.x + WIDTH / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height


def layers(workflow: Workflow) -> list[list[int]]:
    """Steps from top to bottom: each as low as its readers allow, so that arrows are short; the last one lowest."""
    edges = direct(workflow)
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


def place(layers: list[list[int]], texts: list[list[Line]]) -> tuple[dict[int, StepBox], float, float]:
    """The boxes, the picture's width, and where the last of them ends (with the gap below it)."""
    rows = [layer[start : start + PER_ROW] for layer in layers for start in range(0, len(layer), PER_ROW)]
    most = max((len(row) for row in rows), default=1)
    width = 2 * SIDE + most * WIDTH + (most - 1) * GAP
    boxes, y = {}, MARGIN + 24 + 2 * GAP
    for row in rows:
        height = max(12 + LINE * len(texts[step]) for step in row)
        x = (width - len(row) * WIDTH - (len(row) - 1) * GAP) / 2
        for column, step in enumerate(row):
            boxes[step] = StepBox(x + column * (WIDTH + GAP), y, height, texts[step])
        y += height + 2 * GAP
    return boxes, width, y


def box_lines(run: Workflow | WorkflowTrace, index: int, names: Sequence[str]) -> list[Line]:
    """What stands in a step's box: its worker, its subtask, and how it went."""
    workflow = workflow_of(run)
    step, crowded = workflow.steps[index], len(workflow.steps) >= CROWDED
    name = run.steps[index].worker if isinstance(run, WorkflowTrace) else _name(step, names)
    head = f"{index + 1} · Model {step.worker}" + (f" · {name}" if name else "")
    lines = [Line(cut_to_columns(head, COLUMNS - 2), "head")]
    lines += [Line(line, "task") for line in _wrapped(step.subtask, 1 if crowded else 3)]
    if isinstance(run, WorkflowTrace):
        lines += _outcome(run.steps[index], crowded=crowded)
    elif index not in workflow.needed():
        lines.append(Line("not run: the answer cannot see it", "said"))
    return lines


def _name(step: Step, names: Sequence[str]) -> str:
    return names[step.worker] if step.worker < len(names) else ""


def _outcome(step: StepTrace, *, crowded: bool) -> list[Line]:
    if step.status == "pruned":
        return [Line("not run: the answer cannot see it", "said")]
    if step.status != "ok":
        return [Line(cut_to_columns(f"{step.status.replace('_', ' ')} {step.error}".strip(), COLUMNS), "bad")]
    response = step.response
    cached = " · cached" if response.cached else ""
    price = f"{response.tokens} tokens · {usd(response.cost_usd)} · {response.latency_s:.2g} s{cached}"
    said = [] if crowded else _wrapped(f"→ {response.text}", 2)
    return [*(Line(line, "said") for line in said), Line(price, "price")]


def flat(text: str) -> str:
    """`text` on one line, of characters that XML can hold."""
    return " ".join(UNPRINTABLE.sub("�", text).split())


def letter_columns(character: str) -> int:
    """How many columns a character takes."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut_to_columns(text: str, columns: int) -> str:
    """The beginning of `text`, wide characters counting twice, with … where something is missing."""
    line = flat(text)
    if sum(map(letter_columns, line)) <= columns:
        return line
    kept = ""
    for character in line:
        columns -= letter_columns(character)
        if columns < 1:
            break
        kept += character
    return kept.rstrip(" .,;:") + "…"


def _wrapped(text: str, lines: int) -> list[str]:
    """At most `lines` lines of a box's width, broken between words where there are any; the last one is cut."""
    rest, wrapped = flat(text), list[str]()
    while rest and len(wrapped) < lines - 1:
        head = _fitting(rest)
        wrapped.append(head.rstrip())
        rest = rest[len(head) :].lstrip()
    return [*wrapped, cut_to_columns(rest, COLUMNS)] if rest else wrapped


def _fitting(text: str) -> str:
    width, end = 0, 0
    while end < len(text) and (width := width + letter_columns(text[end])) <= COLUMNS:
        end += 1
    blank = text.rfind(" ", 0, end + 1)
    return text[:end] if end == len(text) or blank < end // 2 else text[:blank]


SHORTCUTS = 12
"""Most arrows that are drawn although others imply them; with more, none of them is."""
_COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f", "#edc948", "#ff9da7", "#79706e"
)  # fmt: skip
_INK, _SOFT, _PALE, _GOOD, _BAD = "#1f2933", "#6b7785", "#b8c2cc", "#2f855a", "#c53030"


def svg(run: Workflow | WorkflowTrace, names: Sequence[str] = ()) -> str:
    """The picture as SVG text: one box a step, coloured by worker; steps that cannot reach the answer in grey.

    A box names the worker by ordinal and, where `names` (by ordinal) or a trace has it, by name. A
    trace adds the beginning of each response, tokens, USD and seconds. Arrows that others imply are thin, and
    left out when there are many. No text in it can become markup.
    """
    workflow = workflow_of(run)
    texts = [box_lines(run, index, names) for index in range(len(workflow.steps))]
    boxes, width, end = place(layers(workflow), texts)
    answer = _answer(run)
    outcome = _GOOD if answer.startswith("answer") else _BAD
    parts = [*_arrows(workflow, boxes, width / 2, end, outcome), _pill(width / 2, MARGIN, "question", _INK)]
    needed = workflow.needed()
    for index, box in sorted(boxes.items()):
        parts.append(_drawn(run, index, box, used=index in needed, last=index == len(workflow.steps) - 1))
    parts.append(_pill(width / 2, end, answer, outcome))
    return _document(width, end + 24 + MARGIN, workflow, parts)


def _answer(run: Workflow | WorkflowTrace) -> str:
    if isinstance(run, WorkflowTrace):
        if run.answer is None:
            return f"no answer: {run.status.replace('_', ' ')}"
        return cut_to_columns(f"answer: {re.sub('^answer: *', '', flat(run.answer), flags=re.IGNORECASE)}", 60)
    return "answer" if run.steps else "answer: the previous one is kept"


def _arrows(workflow: Workflow, boxes: dict[int, StepBox], middle: float, end: float, outcome: str) -> list[str]:
    needed, straight = workflow.needed(), set(direct(workflow))
    parts = []
    first_row = min((box.y for box in boxes.values()), default=0.0)
    for later, box in boxes.items():
        ink = _INK if later in needed else _PALE
        if not workflow.visible(later):
            near = box.y == first_row
            parts.append(_curve(middle, MARGIN + 24, box.middle, box.y, ink) if near else _stub(box, ink))
        above = [boxes[earlier] for earlier in workflow.visible(later) if (earlier, later) in straight]
        parts.extend(_curve(source.middle, source.bottom, box.middle, box.y, ink) for source in above)
    implied = [
        (earlier, later) for later in boxes for earlier in workflow.visible(later) if (earlier, later) not in straight
    ]
    if len(implied) <= SHORTCUTS:
        parts += [_arc(boxes[earlier], boxes[later], boxes.values()) for earlier, later in implied]
    last = len(workflow.steps) - 1
    top = boxes[last].bottom if last >= 0 else MARGIN + 24
    return [*parts, _curve(boxes[last].middle if last >= 0 else middle, top, middle, end, outcome)]


def _curve(x0: float, y0: float, x1: float, y1: float, colour: str) -> str:
    bend = (y1 - y0) / 2
    path = f"M{x0:.0f} {y0:.0f}C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1 - 5:.0f}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6" marker-end="url(#{_marker(colour)})"/>'


def _stub(box: StepBox, colour: str) -> str:
    """The question again, as a dot: an arrow from far above would cross other steps."""
    x, y = box.x + 26, box.y - 18
    return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{colour}"/>' + _curve(x, y, x, box.y, colour)


def _arc(above: StepBox, below: StepBox, boxes: Iterable[StepBox]) -> str:
    """A thin arrow to the right of everything between, for what a step sees anyway through another one."""
    x0, x1 = above.x + WIDTH, below.x + WIDTH
    y0, y1 = above.y + above.height / 2, below.y + below.height / 2
    between = max(box.x + WIDTH for box in boxes if above.y <= box.y <= below.y)
    clear = between + min(36.0, 8 + (y1 - y0) / 16)
    out = max(x0, x1) + (clear - max(x0, x1)) * 4 / 3  # such a curve goes three quarters of the way to its handles
    path = f"M{x0:.0f} {y0:.0f}C{out:.0f} {y0:.0f} {out:.0f} {y1:.0f} {x1 + 4:.0f} {y1:.0f}"
    return f'<path d="{path}" fill="none" stroke="{_SOFT}" stroke-width="0.9" marker-end="url(#{_marker(_SOFT)})"/>'


def _marker(colour: str) -> str:
    return f"head{colour[1:]}"


def _drawn(run: Workflow | WorkflowTrace, index: int, box: StepBox, *, used: bool, last: bool) -> str:
    workflow = workflow_of(run)
    failed = isinstance(run, WorkflowTrace) and run.steps[index].status not in ("ok", "pruned")
    worker = _COLOURS[workflow.steps[index].worker % len(_COLOURS)] if used else _PALE
    edge = _BAD if failed else _GOOD if last else worker
    dashes = "" if used else ' stroke-dasharray="4 3"'
    frame = (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{WIDTH:.0f}" height="{box.height:.0f}" rx="6" '
        f'fill="{"#ffffff" if used else "#f4f5f7"}" stroke="{edge}" stroke-width="{2.4 if last else 1.2}"{dashes}/>'
        f'<rect x="{box.x + 1.5:.1f}" y="{box.y + 5:.0f}" width="5" height="{box.height - 10:.0f}" fill="{worker}"/>'
    )
    off = "" if used else " off"
    lines = (
        f'<text x="{box.x + 14:.0f}" y="{box.y + 17 + LINE * number:.0f}" class="{line.style}{off}">'
        f"{escape(UNPRINTABLE.sub('�', line.text))}</text>"
        for number, line in enumerate(box.lines)
    )
    return f"<g>{frame}{''.join(lines)}</g>"


def _pill(middle: float, y: float, text: str, colour: str) -> str:
    width = 24 + 7.4 * sum(map(letter_columns, text))
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


def _document(width: float, height: float, workflow: Workflow, parts: Sequence[str]) -> str:
    heads = "".join(
        f'<marker id="{_marker(colour)}" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="6" markerHeight="6" '
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
