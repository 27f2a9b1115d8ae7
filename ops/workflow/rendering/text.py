"""A workflow in characters: plain lines for a terminal, a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.documents import format_markdown_table
from ops.workflow.grammar import Workflow
from ops.workflow.trace import StepTrace, WorkflowTrace


def get_workflow(run: Workflow | WorkflowTrace) -> Workflow:
    """The workflow itself."""
    return run.workflow if isinstance(run, WorkflowTrace) else run


def step_worker_names(run: Workflow | WorkflowTrace, names: Sequence[str]) -> list[str]:
    """Each step's worker: a trace's own, the one of `names` by ordinal, or `Model 0`."""
    if isinstance(run, WorkflowTrace):
        return [step.worker for step in run.steps]
    return [names[step.worker] if step.worker < len(names) else f"Model {step.worker}" for step in run.steps]


def describe_context(workflow: Workflow, index: int) -> str:
    """What is in the step's context."""
    seen = workflow.visible_steps(index)
    return "question" if not seen else "question, " + ", ".join(f"step {other + 1}" for other in seen)


def describe_missing_response(step: StepTrace) -> str:
    """Why the step has no response."""
    if step.status == "pruned":
        return "not run: the answer cannot depend on it"
    if step.status == "not_run":
        return "not run: another step had failed"
    return f"{step.status}: {join_lines(step.error)}"


def describe_answer(trace: WorkflowTrace) -> str:
    """The answer, or why there is none."""
    return f"none ({trace.status})" if trace.answer is None else join_lines(trace.answer)


def describe_totals(trace: WorkflowTrace) -> str:
    """Calls, tokens, USD and seconds of the whole run."""
    calls = "1 call" if trace.calls == 1 else f"{trace.calls} calls"
    return (
        f"{calls} ({trace.cached} cached), {trace.tokens} tokens, "
        f"${trace.cost_usd:.6f}, {trace.latency_s:.2f} s on the critical path"
    )


def join_lines(text: str) -> str:
    """`render_text` without line breaks."""
    return " ".join(text.split())


def truncate(text: str, length: int) -> str:
    """The beginning of `render_text`, … where something is missing."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


LINE_WIDTH = 100
"""Characters of a line."""


def render_text(run: Workflow | WorkflowTrace, names: Sequence[str] = ()) -> str:
    """Worker, subtask and sight of each step; a trace adds answers and costs."""
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
    if step.status != "ok":
        return [truncate(f"   {describe_missing_response(step)}", LINE_WIDTH)]
    response = step.response
    cached = ", cached" if response.cached else ""
    return [
        truncate(f"   answer: {join_lines(response.text)}", LINE_WIDTH),
        f"   {response.tokens} tokens, ${response.cost_usd:.6f}, {response.latency_s:.2f} s{cached}",
    ]


def render_markdown(run: Workflow | WorkflowTrace, names: Sequence[str] = ()) -> str:
    """The table; a trace adds answers, tokens and USD, and a line of totals."""
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
    response = join_lines(step.response.text) if step.status == "ok" else describe_missing_response(step)
    return [truncate(response, 160), str(step.response.tokens), f"{step.response.cost_usd:.6f}"]


def _escape(text: str) -> str:
    """Text that cannot bring Markdown or HTML with it; a table escapes its separator."""
    return text.replace("\\", "\\\\").replace("<", "&lt;").replace("`", "\\`")
