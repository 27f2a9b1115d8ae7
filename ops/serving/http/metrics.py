"""Metrics for Prometheus at `/metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ops.core.status import Status
from ops.serving.answer import Answer
from ops.serving.champion_follower import SwapResult

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = own = CollectorRegistry()
        self.requests = Counter("podium_requests", "Requests.", ("route", "status"), registry=own)
        self.seconds = Histogram(
            "podium_request_seconds", "Until the end of a response.", ("route",), buckets=_SECONDS, registry=own
        )
        self._parts = Histogram(
            "podium_part_seconds", "Waiting for a place, writing the workflow, the workers' work, of one request.",
            ("part",), buckets=_SECONDS, registry=own,
        )  # fmt: skip
        self._answers = Counter("podium_answers", "Questions by status.", ("status",), registry=own)
        self._tokens = Counter("podium_tokens", "Paid now, by worker.", ("worker", "kind"), registry=own)
        self._usd = Counter("podium_usd", "USD paid now, by worker.", ("worker",), registry=own)
        self._calls = Counter("podium_calls", "Responses, by worker.", ("worker", "cached"), registry=own)
        self._failures = Counter(
            "podium_worker_failures", "Steps without a response.", ("worker", "status"), registry=own
        )
        self._fallbacks = Counter("podium_fallbacks", "Fallbacks after a failure.", ("reason", "then"), registry=own)
        self._batch = Histogram("podium_batch", "Prompts of one batch.", buckets=_SIZES, registry=own)
        self._champion = Gauge("podium_champion", "1 for the version in service.", ("version",), registry=own)
        self._swaps = Counter("podium_swaps", "Changes of version that were tried.", ("outcome",), registry=own)
        self.in_flight = Gauge("podium_in_flight", "Requests that are worked on.", registry=own)
        self.waiting = Gauge("podium_waiting", "Requests that wait for a place.", registry=own)
        self.traces_stored = Counter("podium_traces_stored", "Traces that MLflow's store has taken.", registry=own)
        self.traces_dropped = Counter("podium_traces_dropped", "Traces that were lost.", registry=own)
        self.traces_waiting = Gauge("podium_traces_waiting", "Traces that are not stored yet.", registry=own)

    def count_answer(self, answer: Answer) -> None:
        """Count the result of one request with its calls and fallbacks."""
        self._answers.labels(answer.status).inc()
        for part in ("writing", "working"):
            self._parts.labels(part).observe(getattr(answer, f"{part}_s"))
        for step in answer.steps:
            if step.status != Status.OK:
                self._failures.labels(step.worker, step.status).inc()
        for worker, response in answer.responses:
            self._calls.labels(worker, str(response.cached).lower()).inc()
            if not response.cached:
                self._tokens.labels(worker, "prompt").inc(response.prompt_tokens)
                self._tokens.labels(worker, "completion").inc(response.completion_tokens)
                self._usd.labels(worker).inc(response.cost_usd)
        for fallback in answer.fallbacks:
            self._fallbacks.labels(fallback.reason, fallback.then).inc()
            if fallback.reason == Status.MISCONFIGURED:
                self._failures.labels(fallback.worker, fallback.reason).inc()

    def record_wait(self, seconds: float) -> None:
        """Record how many seconds a request waited before it was admitted."""
        self._parts.labels("waiting").observe(seconds)

    def record_batch(self, size: int) -> None:
        """Record the size of a batch. It may be called from any thread."""
        self._batch.observe(size)

    def count_swap(self, swap: SwapResult, version: str) -> None:
        """Record an attempt to change the version in service."""
        self._swaps.labels(swap).inc()
        if swap == "loaded":
            self._champion.clear()
            self._champion.labels(version).set(1)

    def watch_gauges(self, in_flight: Callable[[], float], waiting: Callable[[], float]) -> None:
        """Register functions that give the numbers of requests in flight and waiting; each scrape calls them."""
        self.in_flight.set_function(in_flight)
        self.waiting.set_function(waiting)

    def render_page(self) -> tuple[bytes, str]:
        """Return the page of metrics and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self.registry), CONTENT_TYPE_LATEST
