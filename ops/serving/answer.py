"""The result of one request: the answer, or the reason why there is none, with all of its calls."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ops.conductor.policy import Completion
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.workflow.trace import QuestionTrace, StepFailure, StepTrace

Status = Literal[
    "answered", "not_run", "no_workflow", "timed_out", "over_budget", "server_budget", "cancelled",
] | StepFailure  # fmt: skip
"""The statuses of a trace (`TraceStatus`), and: "not_run" (only a workflow was requested), "no_workflow" (only a
workflow was requested, and none was valid), "over_budget" (of the request), "server_budget" (of all requests),
"cancelled" (the client disconnected)."""


Then = Literal["rewritten", "best_worker", "kept", "nothing"]
"""The action after a failure: another workflow without the worker, the best remaining worker alone, the answer of the
previous round or of the other workflows that vote, or none because no worker is left."""


class Fallback(NamedTuple):
    """A failure, and the action taken instead."""

    reason: str
    """A step's failure (`StepFailure`), "timed_out", "misconfigured" (a worker's key or account), "no_workflow",
    "writer_failed", "over_budget", "server_budget"."""
    worker: str
    """The worker that failed; "" if no worker failed."""
    then: Then
    by: str = ""
    """The worker that was called alone and the reason for its choice: "solver, by profile"."""
    error: str = ""


class VoteResult(NamedTuple):
    """A vote over several workflows."""

    workflows: int
    """Number of workflows that ran."""
    agreed: int
    """Number of them with the answer that counts."""
    latency_s: float
    """Seconds of the slowest workflow of each wave, wave after wave, on its critical path."""


class TimedCompletion(NamedTuple):
    """One completion of the Conductor; times in seconds since the epoch."""

    messages: tuple[Message, ...]
    asked: float
    began: float
    """Start of its batch; it waited until then."""
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
    notice: str = ""
    """A sentence for the user if the question lies outside of what the version was trained on."""
    standing: QuestionTrace | None = None
    """The execution that gave the answer."""
    vote: VoteResult | None = None
    """None: one workflow answered."""
    runs: list[QuestionTrace] = field(default_factory=list)
    """All finished executions, in order."""
    steps: list[StepTrace] = field(default_factory=list)
    """Every step that called a worker, in order of completion, also of unfinished workflows."""
    fallbacks: list[Fallback] = field(default_factory=list)
    completion: str = ""
    """The Conductor's last completion."""
    workflow: str = ""
    """Text of the last workflow."""
    drafts: list[TimedCompletion] = field(default_factory=list)
    """Every completion of the Conductor, including those of later rounds."""
    attempts: int = 0
    """Number of completions for a first workflow."""
    paid_usd: float = 0.0
    """USD paid for this request; `cost_usd` counts cached responses at their original cost."""
    began: float = field(default_factory=time.time)
    """Arrival of the request in seconds since the epoch."""
    waited_s: float = 0.0
    """Seconds from then until the request was admitted."""
    writing_s: float = 0.0
    """Seconds of the Conductor, including its queue; summed over workflows that vote side by side."""
    working_s: float = 0.0
    """Seconds of the workers; summed likewise."""

    @property
    def responses(self) -> list[tuple[str, Response]]:
        """The worker and its response, of each call that got one: those that wrote a workflow, then the steps."""
        drafts = [draft.completion for draft in self.drafts if draft.completion is not None]
        written = [(each.worker, each.response) for each in drafts if each.response is not None]
        return written + [(step.worker, step.response) for step in self.steps if step.is_paid]

    @property
    def prompt_tokens(self) -> int:
        return sum(response.prompt_tokens for _, response in self.responses)

    @property
    def completion_tokens(self) -> int:
        return sum(response.completion_tokens for _, response in self.responses)

    @property
    def cost_usd(self) -> float:
        return sum(response.cost_usd for _, response in self.responses)

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """Return OpenAI's finish reason: "length" if the final step was cut at its worker's `max_tokens`."""
        final = self.standing and self.standing.answering_execution
        return "length" if final and final.steps[-1].response.finish_reason == "length" else "stop"

    def account(self, *, texts: bool) -> dict[str, Any]:
        """Return a JSON-ready account of the answer; with `texts`, the workflow and all texts of its steps."""
        ran = self.standing or (self.runs[-1] if self.runs else None)
        facts: dict[str, Any] = {
            "version": self.version,
            "status": self.status,
            "notice": self.notice,
            "cost_usd": self.cost_usd,
            "paid_usd": self.paid_usd,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "calls": len(self.responses),
            "cached": sum(response.cached for _, response in self.responses),
            "retries": sum(step.response.retries for step in self.steps),
            "attempts": self.attempts,
            "fallbacks": [fallback._asdict() for fallback in self.fallbacks],
            "latency_s": ran.latency_s if ran is not None else 0.0,
            "waited_s": self.waited_s,
            "writing_s": self.writing_s,
            "working_s": self.working_s,
        }
        if self.vote is not None:
            facts["vote"] = {"workflows": self.vote.workflows, "agreed": self.vote.agreed}
            facts["latency_s"] = self.vote.latency_s
        if ran is not None and ran.stop_reason:
            facts |= {"rounds": len(ran.rounds), "stop": ran.stop_reason}
        if texts:
            facts |= self._texts(ran)
        return facts

    def _texts(self, ran: QuestionTrace | None) -> dict[str, Any]:
        if ran is None:
            return {"workflow": self.workflow, "steps": [step.to_dict() for step in self.steps], "error": self.error}
        row = ran.to_row()
        kept = ("workflow", "steps", "answer", "error", "edges", "critical_path", "pruned", "wall_s", "queued_s")
        rounds = {"rounds": row["rounds"]} if ran.stop_reason else {}
        return {name: row[name] for name in kept} | rounds
