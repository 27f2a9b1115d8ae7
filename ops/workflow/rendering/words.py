"""What every format says of a run: its workers by name, what a step sees, why one is silent, the totals."""

from __future__ import annotations

from collections.abc import Sequence

from ops.workflow.grammar import Workflow
from ops.workflow.trace import StepTrace, Trace


def workflow_of(run: Workflow | Trace) -> Workflow:
    """The workflow itself."""
    return run.workflow if isinstance(run, Trace) else run


def worker_names(run: Workflow | Trace, names: Sequence[str]) -> list[str]:
    """Each step's worker: a trace's own, the one of `names` by ordinal, or `Model 0`."""
    if isinstance(run, Trace):
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


def answer(trace: Trace) -> str:
    """The answer, or why there is none."""
    return f"none ({trace.status})" if trace.answer is None else one_line(trace.answer)


def totals(trace: Trace) -> str:
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
