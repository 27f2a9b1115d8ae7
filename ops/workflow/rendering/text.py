"""A few plain lines a step, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from ops.workflow.grammar import Workflow
from ops.workflow.rendering.words import answer, cut, one_line, sees, silence, totals, worker_names, workflow_of
from ops.workflow.trace import StepTrace, Trace

WIDTH = 100
"""Characters of a line."""


def text(run: Workflow | Trace, names: Sequence[str] = ()) -> str:
    """Worker, subtask and sight of each step; a trace adds answers and costs."""
    lines: list[str] = []
    workflow = workflow_of(run)
    for index, (worker, step) in enumerate(zip(worker_names(run, names), workflow.steps, strict=True)):
        lines.append(cut(f"{index + 1}. {worker}  (sees {sees(workflow, index)})", WIDTH))
        lines.append(cut(f"   asked:  {one_line(step.subtask)}", WIDTH))
        if isinstance(run, Trace):
            lines += _outcome(run.steps[index])
    if isinstance(run, Trace):
        lines += [cut(f"Answer: {answer(run)}", WIDTH), totals(run)]
    return "\n".join(lines) or "(no steps: keeps the previous answer)"


def _outcome(step: StepTrace) -> list[str]:
    if step.status != "ok":
        return [cut(f"   {silence(step)}", WIDTH)]
    response = step.response
    cached = ", cached" if response.cached else ""
    return [
        cut(f"   answer: {one_line(response.text)}", WIDTH),
        f"   {response.tokens} tokens, ${response.cost_usd:.6f}, {response.latency_s:.2f} s{cached}",
    ]
