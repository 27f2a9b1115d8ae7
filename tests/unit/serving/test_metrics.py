"""What `/metrics` counts of one request."""

from __future__ import annotations

from ops.core.response import Response
from ops.serving.answer import Answer, Fallback
from ops.serving.http.metrics import Metrics
from ops.workflow.trace import StepTrace
from tests.builders import make_problem


def test_calls_failures_and_fallbacks_are_counted_by_worker() -> None:
    metrics, answer = Metrics(), Answer(make_problem(), "3", status="answered")
    paid = Response("42", 100, 20, 0.25, 0.5, "stop")
    answer.steps += [
        StepTrace(0, "solver", 0, "Solve.", (), "ok", paid),
        StepTrace(1, "checker", 1, "Check.", (0,), "unreachable", error="timed out"),
    ]
    answer.fallbacks += [
        Fallback("unreachable", "checker", "rewritten"), Fallback("misconfigured", "coder", "rewritten"),
    ]  # fmt: skip
    metrics.answered(answer)
    page = metrics.page()[0].decode()
    for line in (
        'podium_answers_total{status="answered"} 1.0',
        'podium_calls_total{cached="false",worker="solver"} 1.0',
        'podium_tokens_total{kind="prompt",worker="solver"} 100.0',
        'podium_usd_total{worker="solver"} 0.25',
        'podium_worker_failures_total{status="unreachable",worker="checker"} 1.0',
        'podium_worker_failures_total{status="misconfigured",worker="coder"} 1.0',
        'podium_fallbacks_total{reason="unreachable",then="rewritten"} 1.0',
        'podium_fallbacks_total{reason="misconfigured",then="rewritten"} 1.0',
    ):
        assert line in page.splitlines(), page
    assert "podium_worker_failures_total" in page and page.count("podium_worker_failures_total{") == 2
