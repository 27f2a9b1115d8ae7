"""Traces as MLflow spans: the tree of a workflow's steps as the MLflow UI shows it, with times, tokens and USD."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ops.benchmarks.privacy import is_confidential
from ops.core.libraries import need_mlflow
from ops.core.problem import Problem
from ops.workflow.execution import messages_of
from ops.workflow.recursion import RecursiveTrace
from ops.workflow.strategy import shape
from ops.workflow.trace import StepTrace, Trace

if TYPE_CHECKING:
    from mlflow.entities import LiveSpan

    from ops.conductor.rollout import Rollout
    from ops.conductor.rounds import RecursiveRollout
    from ops.core.workspace import Workspace

_USAGE, _COST, _MODEL = "mlflow.chat.tokenUsage", "mlflow.llm.cost", "mlflow.llm.model"
"""MLflow's own attributes: what its UI adds up and shows as columns (mlflow.tracing.constant.SpanAttributeKey)."""


def export(
    run: Trace | RecursiveTrace,
    name: str,
    *,
    texts: bool = True,
    parent: LiveSpan | None = None,
    experiment_id: str | None = None,
    tags: dict[str, str] | None = None,
) -> str:
    """Write one execution as an MLflow trace, or below the span `parent`; gives the MLflow trace's id.

    Without `texts` (a confidential benchmark) no question, subtask, response or error's text is in it. Steps
    that were not run are spans of no length, so the tree shows the whole workflow. `tags` belong to a trace
    of its own (no `parent`). The store is the one that mlflow is set to.
    """
    need_mlflow()
    import mlflow
    from mlflow.entities import SpanType

    traces = run.traces if isinstance(run, RecursiveTrace) else (run,)
    began, ended = _span_of_time(traces)
    root = mlflow.start_span_no_context(
        name,
        span_type=SpanType.WORKFLOW,
        parent_span=parent,
        inputs=_question(traces) if texts else None,
        attributes=_totals(run),
        tags=tags if parent is None else None,
        experiment_id=experiment_id if parent is None else None,
        start_time_ns=began,
    )
    if isinstance(run, RecursiveTrace):
        for number, trace in enumerate(traces):
            _round(root, number, trace, texts)
    else:
        _steps(root, run, texts)
    answer = {"answer": run.answer} if texts and run.answer is not None else None
    root.end(outputs=answer, status="OK" if run.answer is not None else "ERROR", end_time_ns=ended)
    return str(root.trace_id)


class _Kept(NamedTuple):
    trace: Trace | RecursiveTrace
    problem: Problem
    outcome: str


class TraceSample:
    """The first `each` executions of every benchmark, kept until the evaluation is over, then exported."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._kept: list[_Kept] = []
        self._seen: Counter[str] = Counter()

    def take(self, rollouts: Sequence[Rollout | RecursiveRollout], problems: Sequence[Problem]) -> None:
        """Look at a batch; what `evaluate` calls."""
        for rollout, problem in zip(rollouts, problems, strict=True):
            if rollout.trace is not None and self._seen[problem.benchmark] < self._each:
                self._seen[problem.benchmark] += 1
                self._kept.append(_Kept(rollout.trace, problem, rollout.outcome))

    def export(self, workspace: Workspace, system: str) -> list[str]:
        """Write what was kept into the workspace's MLflow store; the traces' ids. Confidential ones have no texts."""
        if not self._kept:
            return []
        from ops.release.registry import connected, experiment

        with connected(workspace) as client:
            import mlflow

            home = experiment(client, workspace)
            ids = [
                export(
                    trace,
                    problem.key,
                    texts=not is_confidential(problem.benchmark),
                    experiment_id=home,
                    tags={
                        "benchmark": problem.benchmark,
                        "problem": problem.key,
                        "system": system,
                        "outcome": outcome,
                        "trace": trace.id,
                        "shape": "" if trace.workflow is None else shape(trace.workflow),
                    },
                )
                for trace, problem, outcome in self._kept
            ]
            mlflow.flush_trace_async_logging()  # while mlflow is still set to this store
        return ids


def _round(root: LiveSpan, number: int, trace: Trace, texts: bool) -> None:
    import mlflow
    from mlflow.entities import SpanType

    began, ended = _span_of_time([trace])
    span = mlflow.start_span_no_context(
        f"round {number + 1}",
        span_type=SpanType.CHAIN,
        parent_span=root,
        attributes=_totals(trace),
        start_time_ns=began,
    )
    _steps(span, trace, texts)
    answer = {"answer": trace.answer} if texts and trace.answer is not None else None
    span.end(outputs=answer, status="OK" if trace.status == "answered" else "ERROR", end_time_ns=ended)


def _steps(parent: LiveSpan, trace: Trace, texts: bool) -> None:
    import mlflow
    from mlflow.entities import SpanType

    for step in trace.steps:
        is_call = step.key != ""
        span = mlflow.start_span_no_context(
            f"{step.index + 1} · {step.worker}" + ("" if is_call else f" ({step.status.replace('_', ' ')})"),
            span_type=SpanType.CHAT_MODEL if is_call else SpanType.TASK,
            parent_span=parent,
            inputs={"messages": messages_of(trace, step.index)} if texts and is_call else None,
            attributes=_attributes(step, texts),
            start_time_ns=_ns(trace.began + step.started_s),
        )
        said = {"choices": [{"message": {"role": "assistant", "content": step.response.text}}]}
        span.end(
            outputs=said if texts and step.status == "ok" else None,
            status="OK" if step.status in ("ok", "pruned") else "ERROR",
            end_time_ns=_ns(trace.began + step.ended_s),
        )


def _attributes(step: StepTrace, texts: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = step.as_object(texts=texts) | {"step": step.index + 1}
    for name in ("response", "index"):
        attributes.pop(name, None)
    if step.is_paid:
        attributes[_USAGE] = {
            "input_tokens": step.response.prompt_tokens,
            "output_tokens": step.response.completion_tokens,
            "total_tokens": step.response.tokens,
        }
        attributes[_COST] = {"total_cost": step.response.cost_usd}
        attributes[_MODEL] = step.worker
    return attributes


def _totals(run: Trace | RecursiveTrace) -> dict[str, Any]:
    totals: dict[str, Any] = {
        "calls": run.calls,
        "tokens": run.tokens,
        "cost_usd": run.cost_usd,
        "critical_path_s": run.latency_s,
    }
    if isinstance(run, RecursiveTrace):
        return totals | {"stop": run.stop, "rounds": len(run.rounds)}
    return totals | {
        "status": run.status,
        "wall_s": run.wall_s,
        "cached": run.cached,
        "retries": run.retries,
        "pruned": run.pruned,
        "queued_s": run.queued_s,
        "edges": [f"{earlier + 1} → {later + 1}" for earlier, later in run.edges],
        "critical_path": [index + 1 for index in run.critical_path],
    }


def _question(traces: Sequence[Trace]) -> dict[str, str] | None:
    return {"question": traces[0].question} if traces else None


def _span_of_time(traces: Sequence[Trace]) -> tuple[int | None, int | None]:
    if not traces:
        return None, None
    return _ns(traces[0].began), _ns(max(trace.began + trace.wall_s for trace in traces))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
