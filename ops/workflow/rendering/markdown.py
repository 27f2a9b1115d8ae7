"""A Markdown table, one row a step."""

from __future__ import annotations

from collections.abc import Sequence

from ops.workflow.grammar import Workflow
from ops.workflow.rendering.words import answer, cut, one_line, sees, silence, totals, worker_names, workflow_of
from ops.workflow.trace import StepTrace, Trace


def markdown(run: Workflow | Trace, names: Sequence[str] = ()) -> str:
    """The table; a trace adds answers, tokens and USD, and a line of totals."""
    workflow = workflow_of(run)
    head = ["step", "worker", "subtask", "sees", *(["answer", "tokens", "USD"] if isinstance(run, Trace) else [])]
    lines = [_row(head), _row(["---"] * len(head))]
    for index, (worker, step) in enumerate(zip(worker_names(run, names), workflow.steps, strict=True)):
        cells = [str(index + 1), worker, cut(one_line(step.subtask), 160), sees(workflow, index)]
        lines.append(_row([*cells, *(_outcome(run.steps[index]) if isinstance(run, Trace) else [])]))
    if isinstance(run, Trace):
        lines += ["", f"**Answer:** {_escape(cut(answer(run), 300))}", "", totals(run)]
    return "\n".join(lines)


def _outcome(step: StepTrace) -> list[str]:
    response = one_line(step.response.text) if step.status == "ok" else silence(step)
    return [cut(response, 160), str(step.response.tokens), f"{step.response.cost_usd:.6f}"]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(text: str) -> str:
    """Text that cannot break out of a Markdown table or bring HTML with it."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
