"""Where the boxes of a drawn workflow lie, and what stands in them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from ops.spending.money import usd
from ops.workflow.grammar import Step, Workflow
from ops.workflow.rendering.words import workflow_of
from ops.workflow.strategy import direct
from ops.workflow.trace import StepTrace, Trace

PER_ROW = 4
"""Boxes side by side; more of one layer go into rows below each other."""
CROWDED = 12
"""From so many steps on boxes are smaller."""
WIDTH, GAP, MARGIN, SIDE, LINE, COLUMNS = 254.0, 22.0, 24.0, 44.0, 15.0, 32
UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold."""


class Line(NamedTuple):
    """A line of words, and its style: a class of the picture's style sheet."""

    text: str
    style: str


class StepBox(NamedTuple):
    """A step: where it lies (its top left corner) and what stands in it."""

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


def box_lines(run: Workflow | Trace, index: int, names: Sequence[str]) -> list[Line]:
    """What stands in a step's box: its worker, its subtask, and how it went."""
    workflow = workflow_of(run)
    step, crowded = workflow.steps[index], len(workflow.steps) >= CROWDED
    name = run.steps[index].worker if isinstance(run, Trace) else _name(step, names)
    head = f"{index + 1} · Model {step.worker}" + (f" · {name}" if name else "")
    lines = [Line(cut_to_columns(head, COLUMNS - 2), "head")]
    lines += [Line(line, "task") for line in _wrapped(step.subtask, 1 if crowded else 3)]
    if isinstance(run, Trace):
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
