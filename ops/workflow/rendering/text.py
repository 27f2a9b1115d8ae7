"""Render a workflow as plain lines for a terminal or as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.documents import format_markdown_table
from ops.core.status import Status
from ops.workflow.grammar import Workflow
from ops.workflow.trace import StepTrace, WorkflowTrace


def get_workflow(run: Workflow | WorkflowTrace) -> Workflow:
    """Return the workflow of a trace, or the workflow itself."""
    return run.workflow if isinstance(run, WorkflowTrace) else run


def step_worker_names(run: Workflow | WorkflowTrace, names: Sequence[str]) -> list[str]:
    """Return the name of each step's worker.

    A trace contains the names. For a workflow they come from `names`, by ordinal, or are of the form `Model 0`.
    """
    if isinstance(run, WorkflowTrace):
        return [step.worker for step in run.steps]
    return [names[step.worker] if step.worker < len(names) else f"Model {step.worker}" for step in run.steps]


def describe_context(workflow: Workflow, index: int) -> str:
    """Return a phrase that lists what a step sees, such as `question, step 1`."""
    seen = workflow.visible_steps(index)
    return "question" if not seen else "question, " + ", ".join(f"step {other + 1}" for other in seen)


def describe_missing_response(step: StepTrace) -> str:
    """Return a phrase that says why a step has no response."""
    if step.status == Status.PRUNED:
        return "not run: the answer cannot depend on it"
    if step.status == Status.NOT_RUN:
        return "not run: another step had failed"
    return f"{step.status}: {join_lines(step.error)}"


def describe_answer(trace: WorkflowTrace) -> str:
    """Return the answer on one line, or the status of a workflow that gave no answer."""
    return f"none ({trace.status})" if trace.answer is None else join_lines(trace.answer)


def describe_totals(trace: WorkflowTrace) -> str:
    """Return a line with the calls, the tokens, the cost in USD and the critical path in seconds of an execution."""
    calls = "1 call" if trace.calls == 1 else f"{trace.calls} calls"
    return (
        f"{calls} ({trace.cached} cached), {trace.tokens} tokens, "
        f"${trace.cost_usd:.6f}, {trace.latency_s:.2f} s on the critical path"
    )


def join_lines(text: str) -> str:
    """Return a text on one line, with single blanks between its words."""
    return " ".join(text.split())


def truncate(text: str, length: int) -> str:
    """Return at most `length` characters of a text; a shortened text ends with an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


LINE_WIDTH = 100
"""The length of a line of `render_text` in characters."""


def render_text(run: Workflow | WorkflowTrace, names: Sequence[str] = ()) -> str:
    """Return lines with the worker, the subtask and the context of each step.

    For a trace, they also contain the answer of each step and its cost in USD. `names` gives the workers by ordinal.
    """
    lines: list[str] = []
    workflow = get_workflow(run)
    for index, (worker, step) in enumerate(zip(step_worker_names(run, names), workflow.steps, strict=True)):
        lines.append(truncate(f"{index + 1}. {worker}  (sees {describe_context(workflow, index)})", LINE_WIDTH))
        lines.append(truncate(f"   asked:  {join_lines(step.subtask)}", LINE_WIDTH))
        if isinstance(run, WorkflowTrace):
            lines += _outcome_lines(run.steps[index])
    if isinstance(run, WorkflowTrace):
        lines += [truncate(f"Answer: {describe_answer(run)}", LINE_WIDTH), describe_totals(run)]
    return "\n".join(lines) or "(no steps: keeps the previous answer)"


def _outcome_lines(step: StepTrace) -> list[str]:
    if step.status != Status.OK:
        return [truncate(f"   {describe_missing_response(step)}", LINE_WIDTH)]
    response = step.response
    cached = ", cached" if response.cached else ""
    return [
        truncate(f"   answer: {join_lines(response.text)}", LINE_WIDTH),
        f"   {response.tokens} tokens, ${response.cost_usd:.6f}, {response.latency_s:.2f} s{cached}",
    ]


def render_markdown(run: Workflow | WorkflowTrace, names: Sequence[str] = ()) -> str:
    """Return a Markdown table of the steps.

    For a trace, it also has the answer, the tokens and the cost in USD of each step, and a line with the totals
    follows. `names` gives the workers by ordinal.
    """
    workflow = get_workflow(run)
    answered = ["answer", "tokens", "USD"] if isinstance(run, WorkflowTrace) else []
    head = ["step", "worker", "subtask", "sees", *answered]
    rows = []
    for index, (worker, step) in enumerate(zip(step_worker_names(run, names), workflow.steps, strict=True)):
        cells = [str(index + 1), worker, truncate(join_lines(step.subtask), 160), describe_context(workflow, index)]
        cells += _outcome_cells(run.steps[index]) if isinstance(run, WorkflowTrace) else []
        rows.append([_escape(cell) for cell in cells])
    lines = [format_markdown_table(head, rows)]
    if isinstance(run, WorkflowTrace):
        lines += ["", f"**Answer:** {_escape(truncate(describe_answer(run), 300))}", "", describe_totals(run)]
    return "\n".join(lines)


def _outcome_cells(step: StepTrace) -> list[str]:
    response = join_lines(step.response.text) if step.status == Status.OK else describe_missing_response(step)
    return [truncate(response, 160), str(step.response.tokens), f"{step.response.cost_usd:.6f}"]


def _escape(text: str) -> str:
    """Escape Markdown and HTML in a text. The separator of columns is escaped by `format_markdown_table`."""
    return text.replace("\\", "\\\\").replace("<", "&lt;").replace("`", "\\`")
