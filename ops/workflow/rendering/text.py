"""A workflow in characters: plain lines for a terminal, a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.documents import markdown_table
from ops.workflow.grammar import Workflow
from ops.workflow.trace import StepTrace, WorkflowTrace


def workflow_of(run: Workflow | WorkflowTrace) -> Workflow:
    """The workflow itself."""
    return run.workflow if isinstance(run, WorkflowTrace) else run


def worker_names(run: Workflow | WorkflowTrace, names: Sequence[str]) -> list[str]:
    """Each step's worker: a trace's own, the one of `names` by ordinal, or `Model 0`."""
    if isinstance(run, WorkflowTrace):
        return [step.worker for step in run.steps]
    return [names[step.worker] if step.worker < len(names) else f"Model {step.worker}" for step in run.steps]


def sees(workflow: Workflow, index: int) -> str:
    """What is in the step's context."""
    seen = workflow.visible(index)
    return "question" if not seen else "question, " + ", ".join(f"step {other + 1}" for other in seen)


def silence(step: StepTrace) -> str:
    """Why the step has no response."""
    if step.status == "pruned":
        return "not run: the answer cannot depend on it"
    if step.status == "not_run":
        return "not run: another step had failed"
    return f"{step.status}: {one_line(step.error)}"


def answer(trace: WorkflowTrace) -> str:
    """The answer, or why there is none."""
    return f"none ({trace.status})" if trace.answer is None else one_line(trace.answer)


def totals(trace: WorkflowTrace) -> str:
    """Calls, tokens, USD and seconds of the whole run."""
    calls = "1 call" if trace.calls == 1 else f"{trace.calls} calls"
    return (
        f"{calls} ({trace.cached} cached), {trace.tokens} tokens, "
        f"${trace.cost_usd:.6f}, {trace.latency_s:.2f} s on the critical path"
    )


def one_line(text: str) -> str:
    """`text` without line breaks."""
    return " ".join(text.split())


def cut(text: str, length: int) -> str:
    """The beginning of `text`, … where something is missing."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


WIDTH = 100
"""Characters of a line."""


def text(run: Workflow | WorkflowTrace, names: Sequence[str] = ()) -> str:
    """Worker, subtask and sight of each step; a trace adds answers and costs."""
    lines: list[str] = []
    workflow = workflow_of(run)
    for index, (worker, step) in enumerate(zip(worker_names(run, names), workflow.steps, strict=True)):
        lines.append(cut(f"{index + 1}. {worker}  (sees {sees(workflow, index)})", WIDTH))
        lines.append(cut(f"   asked:  {one_line(step.subtask)}", WIDTH))
        if isinstance(run, WorkflowTrace):
            lines += _outcome(run.steps[index])
    if isinstance(run, WorkflowTrace):
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


def markdown(run: Workflow | WorkflowTrace, names: Sequence[str] = ()) -> str:
    """The table; a trace adds answers, tokens and USD, and a line of totals."""
    workflow = workflow_of(run)
    answered = ["answer", "tokens", "USD"] if isinstance(run, WorkflowTrace) else []
    head = ["step", "worker", "subtask", "sees", *answered]
    rows = []
    for index, (worker, step) in enumerate(zip(worker_names(run, names), workflow.steps, strict=True)):
        cells = [str(index + 1), worker, cut(one_line(step.subtask), 160), sees(workflow, index)]
        cells += _outcome_cells(run.steps[index]) if isinstance(run, WorkflowTrace) else []
        rows.append([_escape(cell) for cell in cells])
    lines = [markdown_table(head, rows)]
    if isinstance(run, WorkflowTrace):
        lines += ["", f"**Answer:** {_escape(cut(answer(run), 300))}", "", totals(run)]
    return "\n".join(lines)


def _outcome_cells(step: StepTrace) -> list[str]:
    response = one_line(step.response.text) if step.status == "ok" else silence(step)
    return [cut(response, 160), str(step.response.tokens), f"{step.response.cost_usd:.6f}"]


def _escape(text: str) -> str:
    """Text that cannot bring Markdown or HTML with it; a table escapes its separator."""
    return text.replace("\\", "\\\\").replace("<", "&lt;").replace("`", "\\`")
