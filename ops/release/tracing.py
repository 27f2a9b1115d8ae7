"""MLflow traces of requests and workflows: trees of spans with times, tokens and USD.

A `SpanTree` is built from recorded facts. It is then stored in a batch (`store_traces`), or attached to a trace that
MLflow has open in this process (`attach_to_span`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ops.core.installation import require_mlflow
from ops.core.response import Response
from ops.core.status import Status
from ops.workflow.execution import rebuild_messages
from ops.workflow.trace import QuestionTrace, StepTrace, WorkflowTrace

if TYPE_CHECKING:
    from mlflow.entities import LiveSpan, Span

    from ops.serving.answer import Answer, TimedCompletion
    from ops.serving.http.routes import RequestRecord

WRITTEN_AGAINST = {"mlflow": "3.17.2"}
"""The MLflow version whose private names this module uses: the attributes below, and `TracingClient`."""
_USAGE, _COST, _MODEL = "mlflow.chat.tokenUsage", "mlflow.llm.cost", "mlflow.llm.model"
_TRACE, _TYPE, _INPUTS, _OUTPUTS = (
    "mlflow.traceRequestId", "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs",
)  # fmt: skip
_TAG = "mlflow.traceTag."
_NAME = "mlflow.traceName"
"""MLflow's own attributes (mlflow.tracing.constant), which its UI sums and shows as columns."""
WITHHELD_BY_CLIENT = "The client asked with `store: false` that question and answer are not stored."
"""What a trace of a request says instead of its texts."""
_MIN_SPAN_S = 0.001
"""A wait of fewer seconds gets no span."""


@dataclass
class SpanTree:
    """A span with the spans below it. Times are seconds since the epoch."""

    name: str
    kind: str
    """The type of the span, one of mlflow.entities.SpanType."""
    started: float
    ended: float
    succeeded: bool = True
    inputs: Any = None
    outputs: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    children: list[SpanTree] = field(default_factory=list)


class TaggedTrace(NamedTuple):
    """A trace that is to be stored: its tree of spans and its tags."""

    root: SpanTree
    tags: Mapping[str, str]


# ── storing ──────────────────────────────────────────────────────────────────


def store_traces(uri: str, experiment_id: str, traces: Sequence[TaggedTrace]) -> list[str]:
    """Write the traces in one transaction, or in one request to a server, and return their ids. Raises MLflow's errors.

    MLflow's own exporter writes each span separately, which takes seven times the work, and drops spans beyond its
    queue without counting them. It writes by means of `TracingClient`, as this function does.
    """
    require_mlflow()
    from mlflow.tracing.client import TracingClient

    ids, spans = [], []
    for trace in traces:
        trace_id = os.urandom(16).hex()
        ids.append(f"tr-{trace_id}")
        spans += list(_spans(trace.root, trace_id, "", {**trace.tags, _NAME: trace.root.name}))
    TracingClient(uri).log_spans(experiment_id, spans)
    return ids


def _spans(tree: SpanTree, trace_id: str, parent: str, tags: Mapping[str, str]) -> Iterator[Span]:
    from mlflow.entities import Span

    span_id = os.urandom(8).hex()
    attributes: dict[str, Any] = {_TRACE: f"tr-{trace_id}", _TYPE: tree.kind, **tree.attributes}
    attributes |= {f"{_TAG}{name}": value for name, value in tags.items()}
    attributes |= {name: value for name, value in ((_INPUTS, tree.inputs), (_OUTPUTS, tree.outputs)) if value}
    yield Span.from_dict(
        {
            "trace_id": f"tr-{trace_id}",
            "span_id": span_id,
            "parent_span_id": parent,
            "name": tree.name,
            "start_time_unix_nano": _to_nanoseconds(tree.started),
            "end_time_unix_nano": _to_nanoseconds(max(tree.started, tree.ended)),
            "status": {"code": "OK" if tree.succeeded else "ERROR", "message": ""},
            "events": [],
            "attributes": {name: _as_json(value) for name, value in attributes.items()},
        }
    )
    for each in tree.children:
        yield from _spans(each, trace_id, span_id, {})


def attach_to_span(tree: SpanTree, parent: LiveSpan) -> None:
    """Add the tree below a span that MLflow has open. MLflow stores it with the trace of that span."""
    import mlflow

    span = mlflow.start_span_no_context(
        tree.name,
        span_type=tree.kind,
        parent_span=parent,
        inputs=tree.inputs,
        attributes=dict(tree.attributes),
        start_time_ns=_to_nanoseconds(tree.started),
    )
    for each in tree.children:
        attach_to_span(each, span)
    span.end(
        outputs=tree.outputs,
        status="OK" if tree.succeeded else "ERROR",
        end_time_ns=_to_nanoseconds(max(tree.started, tree.ended)),
    )


def _as_json(value: Any) -> str:
    # Databases refuse half a surrogate pair.
    return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace").decode("utf-8")


def _to_nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


# ── what a trace shows ───────────────────────────────────────────────────────


def build_request_trace(record: RequestRecord) -> TaggedTrace:
    """Build the trace of a served request: its time in the queue, each completion of the Conductor, and each executed
    workflow."""
    answer, withheld = record.answer, "" if record.texts else WITHHELD_BY_CLIENT
    root = SpanTree(
        record.route,
        "AGENT",
        record.arrived,
        record.ended,
        succeeded=answer.text is not None,
        inputs=_show({"question": answer.problem.question}, withheld),
        outputs=_show({"answer": answer.text}, withheld),
        attributes=answer.as_account(texts=False),
        children=_answer_spans(answer, withheld),
    )
    return TaggedTrace(root, {"request": record.request_id, "version": answer.version, "status": answer.status})


def build_answer_tree(answer: Answer, ended: float) -> SpanTree:
    """Build the tree of an answer, for the trace that MLflow has open for the request."""
    return SpanTree(
        "conductor",
        "AGENT",
        answer.began,
        ended,
        succeeded=answer.text is not None,
        children=_answer_spans(answer, ""),
    )


def build_execution_tree(run: QuestionTrace, name: str, *, withheld: str = "") -> SpanTree:
    """Build the tree of the execution of one question.

    If `withheld` is a reason why texts must not be stored, the tree has this reason in place of inputs and outputs, and
    contains no question, subtask, response or error message.
    A step that was not run is a span of length 0, so that the tree shows the whole workflow. If the Conductor was
    allowed several rounds, each round is a span.
    """
    began, ended = _start_and_end(run.executions)
    below = [
        SpanTree(
            f"round {number}",
            "CHAIN",
            *_start_and_end([each]),
            succeeded=each.status == Status.ANSWERED,
            outputs=_show({"answer": each.answer}, withheld),
            attributes=_workflow_totals(each),
            children=_step_spans(each, withheld),
        )
        for number, each in enumerate(run.executions, start=1)
    ]
    return SpanTree(
        name,
        "WORKFLOW",
        began,
        ended,
        succeeded=run.answer is not None,
        inputs=_show({"question": run.executions[0].question}, withheld) if run.executions else None,
        outputs=_show({"answer": run.answer}, withheld),
        attributes=_execution_totals(run),
        children=below if run.stop_reason else [span for each in below for span in each.children],
    )


def _show(texts: dict[str, Any], withheld: str) -> dict[str, Any]:
    """Return the texts, or the reason for which they are withheld."""
    return {"withheld": withheld} if withheld else texts


def _answer_spans(answer: Answer, withheld: str) -> list[SpanTree]:
    parts: list[SpanTree] = []
    if answer.waited_s > _MIN_SPAN_S:
        parts.append(SpanTree("waiting for a place", "TASK", answer.began, answer.began + answer.waited_s))
    for number, draft in enumerate(answer.completions, start=1):
        parts += _completion_spans(draft, "Conductor" if number == 1 else f"Conductor ({number})", withheld)
    return parts + [build_execution_tree(run, "workflow", withheld=withheld) for run in answer.runs]


def _completion_spans(draft: TimedCompletion, name: str, withheld: str) -> Iterator[SpanTree]:
    if draft.started - draft.requested > _MIN_SPAN_S:
        yield SpanTree("waiting for the Conductor", "TASK", draft.requested, draft.started)
    written = draft.completion
    yield SpanTree(
        name,
        "CHAT_MODEL",
        draft.started,
        draft.ended,
        succeeded=written is not None,
        inputs=_show({"messages": list(draft.messages)}, withheld),
        outputs=_show(_chat_output(written.text), withheld) if written is not None else None,
        # Without a model name, because MLflow would look up its price and load LiteLLM for it.
        attributes=({"error": draft.error} if draft.error and not withheld else {})
        | ({} if written is None else {_USAGE: _token_usage(written.prompt_tokens, written.tokens)})
        | ({} if written is None or written.response is None else _cost_attributes(written.worker, written.response)),
    )


def _step_spans(trace: WorkflowTrace, withheld: str) -> list[SpanTree]:
    return [_step_span(trace, step, withheld) for step in trace.steps]


def _step_span(trace: WorkflowTrace, step: StepTrace, withheld: str) -> SpanTree:
    is_call = step.key != ""
    return SpanTree(
        f"{step.index + 1} · {step.worker}" + ("" if is_call else f" ({step.status.replace('_', ' ')})"),
        "CHAT_MODEL" if is_call else "TASK",
        trace.started_at + step.started_s,
        trace.started_at + step.ended_s,
        succeeded=step.status in (Status.OK, Status.PRUNED),
        inputs=_show({"messages": rebuild_messages(trace, step.index)}, withheld) if is_call else None,
        outputs=_show(_chat_output(step.response.text), withheld) if step.status == Status.OK else None,
        attributes=_step_attributes(step, not withheld),
    )


def _step_attributes(step: StepTrace, texts: bool) -> dict[str, Any]:
    attributes: dict[str, Any] = step.to_dict(include_texts=texts) | {"step": step.index + 1}
    for name in ("response", "index"):
        attributes.pop(name, None)
    if step.is_paid:
        attributes[_USAGE] = _token_usage(step.response.prompt_tokens, step.response.completion_tokens)
        attributes |= _cost_attributes(step.worker, step.response)
    return attributes


def _cost_attributes(worker: str, response: Response) -> dict[str, Any]:
    return {_COST: {"total_cost": response.cost_usd}, _MODEL: worker}


def _execution_totals(run: QuestionTrace) -> dict[str, Any]:
    if not run.stop_reason:
        return _workflow_totals(run.executions[0])
    return _shared_totals(run) | {"stop": run.stop_reason, "rounds": len(run.rounds)}


def _workflow_totals(run: WorkflowTrace) -> dict[str, Any]:
    return _shared_totals(run) | {
        "status": run.status,
        "wall_s": run.wall_s,
        "cached": run.cached,
        "retries": run.retries,
        "pruned": run.pruned,
        "queued_s": run.queued_s,
        "edges": [f"{earlier + 1} → {later + 1}" for earlier, later in run.edges],
        "critical_path": [index + 1 for index in run.critical_path],
    }


def _shared_totals(run: QuestionTrace | WorkflowTrace) -> dict[str, Any]:
    return {"calls": run.calls, "tokens": run.tokens, "cost_usd": run.cost_usd, "critical_path_s": run.latency_s}


def _token_usage(prompt: int, completion: int) -> dict[str, int]:
    return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}


def _chat_output(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


def _start_and_end(traces: Sequence[WorkflowTrace]) -> tuple[float, float]:
    if not traces:
        return 0.0, 0.0
    return traces[0].started_at, max(trace.started_at + trace.wall_s for trace in traces)
