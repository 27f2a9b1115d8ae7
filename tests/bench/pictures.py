"""Draw the pictures of docs/images: the pipeline, and three workflows, two of which the embedded workers execute.

A picture is 400 pixels wide with text of 14 pixels, so that it is legible on a telephone. It has colours for a light
and for a dark background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from textwrap import wrap

from ops.config import Worker, load_pool
from ops.core.messages import Message, Sample
from ops.core.response import Response
from ops.core.usage import Usage
from ops.synthetic.plugin import answer
from ops.workflow.execution import execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace

AGGREGATE = Workflow((
    Step(4, "Name the condition that the findings point to, and what threatens the patient first."),
    Step(1, "Say of each option how it acts and how fast."),
    Step(2, "Choose the option that acts on the threat first. Finish with its letter.", "all"),
))  # fmt: skip
"""Two independent steps, and one that reads both."""

TREE = Workflow((
    Step(0, "Derive a candidate for the limit."),
    Step(3, "Look for a gap in the derivation and close it.", "all"),
    Step(5, "Compute the first hundred terms and estimate the limit from them."),
    Step(0, "State the limit, making sure that proof and numbers agree.", "all"),
))  # fmt: skip
"""A chain of two steps beside an independent step."""

RUN = Workflow((
    Step(2, "Write it as a formula."),
    Step(5, "Guess the answer."),
    Step(0, "Compute the result.", (0,)),
))  # fmt: skip
"""Fine-grained access: the last step does not read the guess, so the guess is not executed."""
CHAIN = Workflow((
    Step(2, "Write it as a formula."),
    Step(0, "Compute the result.", "all"),
    Step(1, "Check the answer.", "all"),
))  # fmt: skip
"""The README's workflow."""

QUESTION, ANSWER = "What is 17 * 23?", "391"
POOL = load_pool(Path(__file__).parents[2] / "config", "quickstart")
NAMES = ("algebraist", "solver", "analyst", "programmer", "editor", "guesser")


class Embedded:
    """A client that asks the embedded workers."""

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        reply = answer(messages, model=worker.model, sample=sample)
        usage = Usage(reply.usage.prompt_tokens, reply.usage.completion_tokens)
        assert worker.price is not None  # the quickstart's pool states every price
        text, usd = reply.choices[0].message.content, worker.price.compute_usd(usage)
        return Response(text, usage, usd, worker.latency_s or 0.0, "stop")


def traced(workflow: Workflow = RUN) -> WorkflowTrace:
    """Execute a workflow and return its trace. Raises `ValueError` if its answer is wrong."""
    offered = [POOL.worker(name) for name in NAMES]
    trace = asyncio.run(execute_workflow(workflow, QUESTION, Team(offered, Embedded())))
    if trace.answer is None or not trace.answer.endswith(f"Answer: {ANSWER}"):
        raise ValueError(f"{QUESTION} was answered with {trace.answer!r}")
    return trace


WIDTH, MARGIN, LINE = 400, 10, 19
HALF = (WIDTH - 3 * MARGIN) // 2
"""The width of each of two boxes side by side."""


@dataclass
class Drawing:
    """Boxes with a title and lines of text, and arrows between them."""

    label: str
    parts: list[str] = field(default_factory=list)
    bottom: int = 0

    def box(self, x: int, y: int, width: int, kind: str, title: str, lines: Sequence[str], style: str = "soft") -> int:
        """Draw a box; return the y of its lower edge. `kind` and `style` are classes of the style sheet."""
        height = 34 + LINE * len(lines)
        texts = [f'<text x="{x + 10}" y="{y + 20}" class="title">{escape(title)}</text>']
        texts += [
            f'<text x="{x + 10}" y="{y + 20 + LINE * number}" class="{style}">{escape(line)}</text>'
            for number, line in enumerate(lines, 1)
        ]
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>{"".join(texts)}'
        )
        self.bottom = max(self.bottom, y + height)
        return y + height

    def arrow(self, *points: tuple[int, int]) -> None:
        path = "L".join(f"{x} {y}" for x, y in points)
        self.parts.append(f'<path d="M{path}" class="arrow" marker-end="url(#head)"/>')

    def svg(self) -> str:
        return _FRAME.format(
            width=WIDTH, height=self.bottom + MARGIN, label=escape(self.label), body="\n".join(self.parts)
        )


def question_picture() -> str:
    """Draw a question, a workflow for it, its executed steps and the answer."""
    trace = traced(CHAIN)
    code = ["model_id = [2, 0, 1]"]
    subtasks = [f'"{step.subtask}"' for step in CHAIN.steps]
    code += [f"subtasks = [{subtasks[0]},", f"            {subtasks[1]},", f"            {subtasks[2]}]"]
    code += ['access_list = [[], ["all"], ["all"]]']
    boxes = [("box", "Question", "soft", [QUESTION])]
    boxes += [("model", "The Conductor writes a workflow", "code", code)]
    for step in trace.steps:
        sees = ("", "sees the formula; ", "sees both; ")[step.index]
        lines = [f"{sees}“{step.subtask}”", f"→ {step.response.text.splitlines()[-1]}"]
        boxes.append(("box", f"Model {CHAIN.steps[step.index].worker}: {step.worker}", "soft", lines))
    cost = sum(step.response.cost_usd for step in trace.steps)
    boxes.append(("good", f"Answer: {ANSWER}", "soft", [f"3 calls, ${cost:.5f}"]))
    drawing, y = Drawing("The way of one question through a workflow"), MARGIN
    for number, (kind, title, style, lines) in enumerate(boxes):
        if number:
            drawing.arrow((WIDTH // 2, y), (WIDTH // 2, y + 24))
            y += 24
        y = drawing.box(MARGIN, y, WIDTH - 2 * MARGIN, kind, title, lines, style)
    return drawing.svg()


def two_then_one(workflow: Workflow, trace: WorkflowTrace | None = None) -> str:
    """Draw a workflow of three steps: two side by side, and one below them.

    An arrow leads to the last step from each step that it sees. With a trace, a step has the name of its worker and its
    response, and a step that was not executed is grey.
    """
    drawing = Drawing("A workflow of three steps")
    left, right, middle = MARGIN, 2 * MARGIN + HALF, (WIDTH - HALF) // 2
    y = drawing.box(middle, MARGIN, HALF, "box", "Question", [QUESTION] if trace else [])
    start = y + 28
    texts = []
    for index, step in enumerate(workflow.steps):
        lines = wrap(step.subtask, 22)
        title = f"Step {index}: model {step.worker}"
        executed = trace is None or trace.steps[index].status == "ok"
        if trace is not None:
            title = f"Step {index}: {trace.steps[index].worker}"
            said = trace.steps[index].response.text.splitlines()[-1] if executed else ""
            lines += wrap(f"→ {said}" if executed else "not executed: no step sees its response", 22)
        texts.append((title, lines, executed))
    most = max(len(lines) for _, lines, _ in texts[:2])
    ends = []
    for (title, lines, executed), x in zip(texts[:2], (left, right), strict=True):
        drawing.arrow((WIDTH // 2, y), (x + HALF // 2, start))
        kind = "box" if executed else "off"
        ends.append((x + HALF // 2, drawing.box(x, start, HALF, kind, title, [*lines, *[""] * (most - len(lines))])))
    below = ends[0][1] + 28
    visible = workflow.visible_steps(2)
    for index, (x, end) in enumerate(ends):
        if index in visible:
            drawing.arrow((x, end), (WIDTH // 2, below))
    title, lines, _ = texts[2]
    y = drawing.box(middle, below, HALF, "box", title, lines)
    drawing.arrow((WIDTH // 2, y), (WIDTH // 2, y + 24))
    drawing.box(middle, y + 24, HALF, "good", f"Answer: {ANSWER}" if trace else "Answer", [])
    return drawing.svg()


PIPELINE = (
    ("1 Problems", "load the questions,", "remove contamination"),
    ("2 Responses", "ask each model of the", "pool once, and store it"),
    ("3 Training mix", "keep the informative", "questions"),
    ("4 Cold start", "learn the form of", "workflows by example"),
    ("5 GRPO", "execute workflows,", "reward right answers"),
    ("6 Evaluation", "test questions, with", "all baselines"),
    ("7 Promotion gate", "paired tests, price,", "latency, format"),
    ("8 Serving", "one model on", "OpenAI's routes"),
    ("9 Retraining", "if the pool changes", "or a model drifts"),
)
"""The pipeline in nine boxes: a title and two lines each."""


def pipeline_picture() -> str:
    """Draw the pipeline in two columns, read from left to right, with the way back from retraining to the responses."""
    drawing, gap, height, width = Drawing("The pipeline in nine boxes"), 26, 72, 174
    columns = (MARGIN, MARGIN + width + 22)
    for number, (title, *lines) in enumerate(PIPELINE):
        x, y = columns[number % 2], MARGIN + (number // 2) * (height + gap)
        drawing.box(x, y, width, "good" if title.endswith("Serving") else "box", title, lines)
        if number + 1 == len(PIPELINE):
            break
        if number % 2 == 0:
            drawing.arrow((x + width, y + 36), (columns[1], y + 36))
        else:
            end, right, left = y + height, x + width // 2, columns[0] + width // 2
            drawing.arrow((right, end), (right, end + gap // 2), (left, end + gap // 2), (left, end + gap))
    last, first, edge = MARGIN + 4 * (height + gap) + 20, MARGIN + 20, WIDTH - 6
    drawing.arrow((columns[0] + width, last), (edge, last), (edge, first), (columns[1] + width, first))
    for number, line in enumerate(("a new or changed model", "adds one column of", "responses")):
        drawing.parts.append(f'<text x="{columns[1] + 4}" y="{last + 20 + 18 * number}" class="soft">{line}</text>')
    drawing.bottom += 8
    return drawing.svg()


_FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" \
aria-label="{label}"><style>
text{{font:14px ui-sans-serif,system-ui,'Segoe UI','Noto Sans','DejaVu Sans',sans-serif;fill:#1f2933}}
.title{{font-weight:600}}.code{{font:12.5px ui-monospace,'DejaVu Sans Mono',monospace;white-space:pre}}\
.soft{{fill:#3e4c59}}
.page{{fill:#ffffff}}.box{{fill:#f5f7fa;stroke:#9aa5b1}}.model{{fill:#e6f0ff;stroke:#4e79a7}}\
.good{{fill:#e6f4ea;stroke:#2f855a}}.off{{fill:none;stroke:#9aa5b1;stroke-dasharray:5 4}}
.arrow{{fill:none;stroke:#52606d;stroke-width:1.6}}.head{{fill:#52606d}}
@media (prefers-color-scheme: dark){{
text{{fill:#e6edf3}}.soft{{fill:#c3ccd5}}.page{{fill:#0d1117}}.box{{fill:#161b22;stroke:#57606a}}
.model{{fill:#12233d;stroke:#6ea8fe}}.good{{fill:#12301f;stroke:#56b981}}.off{{stroke:#57606a}}
.arrow{{stroke:#aab6c2}}.head{{fill:#aab6c2}}}}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0 0L8 4L0 8z" class="head"/></marker></defs>
<rect width="100%" height="100%" rx="8" class="page"/>
{body}
</svg>
"""


def pictures() -> dict[str, str]:
    """Return file name in docs/images → its SVG."""
    return {
        "pipeline.svg": pipeline_picture(),
        "question.svg": question_picture(),
        "workflow-aggregate.svg": two_then_one(AGGREGATE),
        "workflow-run.svg": two_then_one(RUN, traced()),
    }
