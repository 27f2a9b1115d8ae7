"""What became of one request: the answer, or why there is none, with every call on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ops.core.problem import Problem
from ops.workflow.recursion import RecursiveTrace
from ops.workflow.trace import StepFailure, StepTrace, Trace

Run = Trace | RecursiveTrace
Status = Literal[
    "answered", "not_run", "no_workflow", "timed_out", "over_budget", "server_budget", "cancelled",
] | StepFailure  # fmt: skip
"""`Trace`'s, and: "not_run" (written, as was wished), "no_workflow" (wished to be written only, and none came of it),
"over_budget" (the request's), "server_budget" (all requests' together), "cancelled" (its asker left)."""


class Fallback(NamedTuple):
    """A way round something that failed."""

    reason: str
    """A step's failure (`StepFailure`), "timed_out", "misconfigured" (a worker's key or account), "no_workflow",
    "question_too_long", "writer_failed", "over_budget", "server_budget"."""
    worker: str
    """Who failed; "" where it was no worker."""
    then: Literal["rewritten", "best_worker", "kept", "nothing"]
    """Another workflow without the worker; the best of the remaining ones alone; the answer of the round before;
    nobody is left."""
    by: str = ""
    """The worker that was asked alone, and what chose it: "solver, by profile"."""
    error: str = ""


@dataclass
class Answer:
    """One request's, also while it is on its way."""

    problem: Problem
    version: str
    text: str | None = None
    status: Status = "cancelled"
    error: str = ""
    standing: Run | None = None
    """The execution whose answer stands."""
    runs: list[Run] = field(default_factory=list)
    """All that came to an end, in order."""
    steps: list[StepTrace] = field(default_factory=list)
    """Every step that was asked, as it ended, whatever became of its workflow."""
    fallbacks: list[Fallback] = field(default_factory=list)
    completion: str = ""
    """What the Conductor wrote last."""
    workflow: str = ""
    """The workflow that was written last, as text."""
    attempts: int = 0
    """Completions that were drawn."""
    paid_usd: float = 0.0
    """What was paid now; `cost_usd` counts cached responses at what they cost when they were paid for."""
    waited_s: float = 0.0
    """Until it was admitted."""
    writing_s: float = 0.0
    """The Conductor's part, its queue included."""
    working_s: float = 0.0
    """The workers' part."""

    @property
    def prompt_tokens(self) -> int:
        return sum(step.response.prompt_tokens for step in self.steps)

    @property
    def completion_tokens(self) -> int:
        return sum(step.response.completion_tokens for step in self.steps)

    @property
    def cost_usd(self) -> float:
        return sum(step.response.cost_usd for step in self.steps)

    def account(self, *, texts: bool) -> dict[str, Any]:
        """JSON-ready: what a response says of how it came; `texts`: the workflow and what was said in it as well."""
        ran = self.standing or (self.runs[-1] if self.runs else None)
        told: dict[str, Any] = {
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
        if isinstance(ran, RecursiveTrace):
            told |= {"rounds": len(ran.rounds), "stop": ran.stop}
        if texts:
            told |= self._texts(ran)
        return told

    def _texts(self, ran: Run | None) -> dict[str, Any]:
        if ran is None:
            return {"workflow": self.workflow, "steps": [step.as_object() for step in self.steps], "error": self.error}
        row = ran.as_row()
        kept = ("workflow", "steps", "answer", "error", "edges", "critical_path", "pruned", "wall_s", "queued_s")
        rounds = {"rounds": row["rounds"]} if isinstance(ran, RecursiveTrace) else {}
        return {name: row[name] for name in kept} | rounds
