"""The two diagrams of the README: one question's way through a workflow, and the pipeline in nine boxes.

Boxes and arrows in SVG, for light and dark pages, readable at the width of a phone.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from ops.spending.books import usd
from ops.workflow.trace import StepTrace, WorkflowTrace

WIDTH, MARGIN, LINE = 520, 10, 19
_STYLE = """
text{font:14px ui-sans-serif,system-ui,'Segoe UI','Noto Sans','DejaVu Sans',sans-serif;fill:#1f2933}
.title{font-weight:600}.code{font:12.5px ui-monospace,'DejaVu Sans Mono',monospace;white-space:pre}.soft{fill:#52606d}
.page{fill:#ffffff}.box{fill:#f5f7fa;stroke:#9aa5b1}.model{fill:#e6f0ff;stroke:#4e79a7}.good{fill:#e6f4ea;stroke:#2f855a}
.arrow{fill:none;stroke:#52606d;stroke-width:1.6}.head{fill:#52606d}
@media (prefers-color-scheme: dark){
text{fill:#e6edf3}.soft{fill:#aab6c2}.page{fill:#0d1117}.box{fill:#161b22;stroke:#57606a}
.model{fill:#12233d;stroke:#6ea8fe}.good{fill:#12301f;stroke:#56b981}.arrow{stroke:#aab6c2}.head{fill:#aab6c2}}
"""


class Box(NamedTuple):
    """A box with a title and lines below it; the position is its top left corner."""

    x: float
    y: float
    width: float
    title: str
    lines: Sequence[str] = ()
    style: str = "box"
    text: str = "soft"

    @property
    def height(self) -> float:
        return 15 + LINE * (1 + len(self.lines))

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    def svg(self) -> str:
        """Return the box as SVG elements."""
        corner = f'<rect x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.height:g}"'
        frame = f'{corner} rx="6" class="{self.style}"/>'
        rows = [(self.title, "title"), *((line, self.text) for line in self.lines)]
        words = [
            f'<text x="{self.x + 10:g}" y="{self.y + 20 + LINE * number:g}" class="{style}">{escape(line)}</text>'
            for number, (line, style) in enumerate(rows)
        ]
        return "".join([frame, *words])


def _arrow(*points: tuple[float, float]) -> str:
    path = "L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path d="M{path}" class="arrow" marker-end="url(#head)"/>'


def _document(height: float, label: str, parts: Sequence[str]) -> str:
    head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}" '
        f'role="img" aria-label="{escape(label)}"><style>{_STYLE}</style>\n'
        f'<defs>{head}<path d="M0 0L8 4L0 8z" class="head"/></marker></defs>\n'
        f'<rect width="100%" height="100%" rx="8" class="page"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def question_way(trace: WorkflowTrace) -> str:
    """Draw a question, the Conductor's workflow for it, the workers' steps (all but the last independent), and the
    answer."""
    wide, gap = WIDTH - 2 * MARGIN, 34.0
    question = Box(MARGIN, MARGIN, wide, "Question", [trace.question])
    written = trace.workflow.render().replace('", "', '",\n            "').splitlines()
    title = "Conductor: a small language model writes a workflow"
    conductor = Box(MARGIN, question.bottom + gap, wide, title, written, "model", "code")
    *first, last = trace.steps
    width = (wide - 20 * (len(first) - 1)) / len(first)
    top = conductor.bottom + gap
    boxes = [
        Box(MARGIN + number * (width + 20), top, width, _head(step), _lines(step)) for number, step in enumerate(first)
    ]
    final = Box(MARGIN, boxes[0].bottom + gap, wide, _head(last), [f"sees both answers; “{last.subtask}”", _said(last)])
    cost = sum(step.response.cost_usd for step in trace.steps)
    sums = f"{len(trace.steps)} calls, {usd(cost)}; the first two calls run at the same time"
    answer = Box(MARGIN, final.bottom + gap, wide, last.response.text, [sums], "good")
    arrows = [_arrow((question.middle, question.bottom), (question.middle, conductor.y))]
    for box in boxes:
        arrows += [_arrow((box.middle, conductor.bottom), (box.middle, box.y))]
        arrows += [_arrow((box.middle, box.bottom), (box.middle, final.y))]
    arrows.append(_arrow((final.middle, final.bottom), (final.middle, answer.y)))
    drawn = [box.svg() for box in (question, conductor, *boxes, final, answer)]
    return _document(answer.bottom + MARGIN, "The way of one question through a workflow", [*drawn, *arrows])


def _head(step: StepTrace) -> str:
    return f"Model {step.ordinal}: {step.worker}"


def _lines(step: StepTrace) -> list[str]:
    return [f"“{step.subtask}”", _said(step)]


def _said(step: StepTrace) -> str:
    return f"→ {step.response.text}"


STAGES = (
    ("1 Problems", "load, check,", "decontaminate"),
    ("2 Responses", "ask each worker", "once; cache it"),
    ("3 Training mix", "keep informative", "problems"),
    ("4 Cold start", "learn the grammar", "from examples"),
    ("5 GRPO", "reward 0, 0.5, 1;", "rollouts cached"),
    ("6 Evaluation", "7 benchmarks,", "all baselines"),
    ("7 Promotion gate", "paired tests, price,", "latency, format"),
    ("8 Serving", "one model on", "OpenAI's routes"),
    ("9 Retraining", "when the pool", "changes or drifts"),
)
"""The pipeline: title and two lines for each box."""


def pipeline() -> str:
    """Draw the nine boxes in three rows, and the arrow from retraining back to the responses."""
    width, gap, down = 152.0, 22.0, 38.0
    boxes: list[Box] = []
    for number, (title, *lines) in enumerate(STAGES):
        row, column = divmod(number, 3)
        y = MARGIN + row * (15 + 3 * LINE + down)
        boxes.append(Box(MARGIN + column * (width + gap), y, width, title, lines, "good" if number == 7 else "box"))
    arrows = []
    for before, after in pairwise(boxes):
        middle = before.y + before.height / 2
        if before.y == after.y:
            arrows.append(_arrow((before.x + width, middle), (after.x, middle)))
        else:
            between = before.bottom + down / 2
            turns = ((before.middle, between), (after.middle, between))
            arrows.append(_arrow((before.middle, before.bottom), *turns, (after.middle, after.y)))
    last, back = boxes[-1], boxes[1]
    below, left = last.bottom + 20, MARGIN / 2
    above = back.bottom + down / 2 - 8
    turns = ((last.middle, below), (left, below), (left, above), (back.middle, above))
    arrows.append(_arrow((last.middle, last.bottom), *turns, (back.middle, back.bottom)))
    words = "a new or changed worker adds one column of responses"
    note = f'<text x="{WIDTH / 2:g}" y="{below + 18:g}" class="soft" text-anchor="middle">{words}</text>'
    return _document(below + 26, "The pipeline in nine boxes", [*(box.svg() for box in boxes), *arrows, note])
