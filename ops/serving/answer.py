"""The result of one request: the answer, or why there is none, with every call that was made for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ops.conductor.policy import Completion
from ops.core.problem import Problem
from ops.core.response import Message
from ops.workflow.trace import StepFailure, StepTrace, Trace

Status = Literal[
    "answered", "not_run", "no_workflow", "timed_out", "over_budget", "server_budget", "cancelled",
] | StepFailure  # fmt: skip
"""A trace's (`TraceStatus`), and: "not_run" (only a workflow was requested), "no_workflow" (only a workflow was
requested, and none was written), "over_budget" (of the request), "server_budget" (of all requests), "cancelled" (the
client disconnected)."""


class Fallback(NamedTuple):
    """A failure, and what was done instead."""

    reason: str
    """A step's failure (`StepFailure`), "timed_out", "misconfigured" (a worker's key or account), "no_workflow",
    "writer_failed", "over_budget", "server_budget"."""
    worker: str
    """The worker that failed; "" where it was no worker."""
    then: Literal["rewritten", "best_worker", "kept", "nothing"]
    """Another workflow without the worker; the best remaining worker alone; the answer of the round before; no worker
    is left."""
    by: str = ""
    """The worker that was asked alone, and what chose it: "solver, by profile"."""
    error: str = ""


class TimedCompletion(NamedTuple):
    """One completion that the Conductor was asked for; times in seconds since the epoch."""

    messages: tuple[Message, ...]
    asked: float
    began: float
    """When its batch began to be written: until then it waited."""
    ended: float
    completion: Completion | None
    """None: the writer failed."""
    error: str = ""


@dataclass
class Answer:
    """The result of one request, also while the request is in progress."""

    problem: Problem
    version: str
    text: str | None = None
    status: Status = "cancelled"
    error: str = ""
    standing: Trace | None = None
    """The execution that gave the answer."""
    runs: list[Trace] = field(default_factory=list)
    """All executions that ended, in order."""
    steps: list[StepTrace] = field(default_factory=list)
    """Every step that called a worker, as it ended, whether or not its workflow was completed."""
    fallbacks: list[Fallback] = field(default_factory=list)
    completion: str = ""
    """The Conductor's last completion."""
    workflow: str = ""
    """The workflow that was written last, as text."""
    drafts: list[TimedCompletion] = field(default_factory=list)
    """Every completion that the Conductor was asked for, those of later rounds included."""
    attempts: int = 0
    """Completions of a first workflow."""
    paid_usd: float = 0.0
    """USD paid for this request; `cost_usd` counts cached responses at what they cost when they were paid for."""
    began: float = field(default_factory=time.time)
    """When the request was read, in seconds since the epoch."""
    waited_s: float = 0.0
    """Seconds from then until the request was admitted."""
    writing_s: float = 0.0
    """Seconds of the Conductor, its queue included."""
    working_s: float = 0.0
    """Seconds of the workers."""

    @property
    def prompt_tokens(self) -> int:
        return sum(step.response.prompt_tokens for step in self.steps)

    @property
    def completion_tokens(self) -> int:
        return sum(step.response.completion_tokens for step in self.steps)

    @property
    def cost_usd(self) -> float:
        return sum(step.response.cost_usd for step in self.steps)

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """As OpenAI's: "length" where the step that gave the answer was cut at its worker's `max_tokens`."""
        final = self.standing and self.standing.standing
        return "length" if final and final.steps[-1].response.finish_reason == "length" else "stop"

    def account(self, *, texts: bool) -> dict[str, Any]:
        """How the answer was made, JSON-ready; `texts`: with the workflow and every step's texts."""
        ran = self.standing or (self.runs[-1] if self.runs else None)
        facts: dict[str, Any] = {
            "version": self.version,
            "status": self.status,
            "cost_usd": self.cost_usd,
            "paid_usd": self.paid_usd,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "calls": sum(step.is_paid for step in self.steps),
            "cached": sum(step.response.cached for step in self.steps),
            "retries": sum(step.response.retries for step in self.steps),
            "attempts": self.attempts,
            "fallbacks": [fallback._asdict() for fallback in self.fallbacks],
            "latency_s": ran.latency_s if ran is not None else 0.0,
            "waited_s": self.waited_s,
            "writing_s": self.writing_s,
            "working_s": self.working_s,
        }
        if ran is not None and ran.stop:
            facts |= {"rounds": len(ran.rounds), "stop": ran.stop}
        if texts:
            facts |= self._texts(ran)
        return facts

    def _texts(self, ran: Trace | None) -> dict[str, Any]:
        if ran is None:
            return {"workflow": self.workflow, "steps": [step.as_object() for step in self.steps], "error": self.error}
        row = ran.as_row()
        kept = ("workflow", "steps", "answer", "error", "edges", "critical_path", "pruned", "wall_s", "queued_s")
        rounds = {"rounds": row["rounds"]} if ran.stop else {}
        return {name: row[name] for name in kept} | rounds
