"""Draw the README's workflow and docs/method.md's two; those with answers are executed by the embedded workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ops.config import Worker, load_pool
from ops.core.messages import Message, Sample
from ops.core.response import Response
from ops.core.usage import Usage
from ops.synthetic.plugin import answer
from ops.workflow.execution import execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.rendering import render_workflow
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
        text, usd = reply.choices[0].message.content, worker.price.usd(usage)
        return Response(text, usage, usd, worker.latency_s or 0.0, "stop")


def traced(workflow: Workflow = RUN) -> WorkflowTrace:
    """Execute a workflow and return its trace. Raises `ValueError` if its answer is wrong."""
    offered = [POOL.worker(name) for name in NAMES]
    trace = asyncio.run(execute_workflow(workflow, QUESTION, Team(offered, Embedded())))
    if trace.answer is None or not trace.answer.endswith(f"Answer: {ANSWER}"):
        raise ValueError(f"{QUESTION} was answered with {trace.answer!r}")
    return trace


def question_picture() -> str:
    """Draw the README's picture: a question, a workflow for it, its executed steps and the answer."""
    trace = traced(CHAIN)
    code = ["model_id = [2, 0, 1]"]
    subtasks = [f'"{step.subtask}"' for step in CHAIN.steps]
    code += [f"subtasks = [{subtasks[0]},", f"            {subtasks[1]},", f"            {subtasks[2]}]"]
    code += ['access_list = [[], ["all"], ["all"]]']
    boxes = [("box", "Question", "soft", [QUESTION])]
    boxes += [("model", "Conductor: a small language model writes a workflow", "code", code)]
    for step in trace.steps:
        sees = ("", "sees the formula; ", "sees both; ")[step.index]
        lines = [f"{sees}“{step.subtask}”", f"→ {step.response.text.splitlines()[-1]}"]
        boxes.append(("box", f"Model {CHAIN.steps[step.index].worker}: {step.worker}", "soft", lines))
    cost = sum(step.response.cost_usd for step in trace.steps)
    boxes.append(("good", f"Answer: {ANSWER}", "soft", [f"3 calls, ${cost:.5f}"]))
    parts, y = [], 10
    for number, (kind, title, style, lines) in enumerate(boxes):
        height = 34 + 19 * len(lines)
        texts = [f'<text x="20" y="{y + 20}" class="title">{escape(title)}</text>']
        texts += [
            f'<text x="20" y="{y + 39 + 19 * i}" class="{style}">{escape(line)}</text>' for i, line in enumerate(lines)
        ]
        parts.append(f'<rect x="10" y="{y}" width="500" height="{height}" rx="6" class="{kind}"/>{"".join(texts)}')
        y += height
        if number < len(boxes) - 1:
            parts.append(f'<path d="M260 {y}L260 {y + 24}" class="arrow" marker-end="url(#head)"/>')
            y += 24
    return _FRAME.format(height=y + 10, body="\n".join(parts))


_FRAME = """\
<svg xmlns="http://www.w3.org/2000/svg" width="520" height="{height}" viewBox="0 0 520 {height}" role="img" \
aria-label="The way of one question through a workflow"><style>
text{{font:14px ui-sans-serif,system-ui,'Segoe UI','Noto Sans','DejaVu Sans',sans-serif;fill:#1f2933}}
.title{{font-weight:600}}.code{{font:12.5px ui-monospace,'DejaVu Sans Mono',monospace;white-space:pre}}\
.soft{{fill:#52606d}}
.page{{fill:#ffffff}}.box{{fill:#f5f7fa;stroke:#9aa5b1}}.model{{fill:#e6f0ff;stroke:#4e79a7}}\
.good{{fill:#e6f4ea;stroke:#2f855a}}
.arrow{{fill:none;stroke:#52606d;stroke-width:1.6}}.head{{fill:#52606d}}
@media (prefers-color-scheme: dark){{
text{{fill:#e6edf3}}.soft{{fill:#aab6c2}}.page{{fill:#0d1117}}.box{{fill:#161b22;stroke:#57606a}}
.model{{fill:#12233d;stroke:#6ea8fe}}.good{{fill:#12301f;stroke:#56b981}}.arrow{{stroke:#aab6c2}}.head{{fill:#aab6c2}}}}
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
        "question.svg": question_picture(),
        "workflow-aggregate.svg": render_workflow(AGGREGATE, "svg"),
        "workflow-run.svg": render_workflow(traced(), "svg"),
    }
