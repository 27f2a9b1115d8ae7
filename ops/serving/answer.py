"""The result of one request: the answer, or the reason why there is none, with all of its calls."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ops.conductor.policy import Completion
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.status import Status
from ops.workflow.trace import QuestionTrace, StepTrace

FallbackAction = Literal["rewritten", "best_worker", "kept", "nothing"]
"""The action after a failure: another workflow without the worker, the best remaining worker alone, the answer of the
previous round or of the other workflows that vote, or none because no worker is left."""


class Fallback(NamedTuple):
    """A failure, and what was done instead."""

    reason: Status
    """Why the planned call or workflow failed."""
    worker: str
    """The worker that failed; empty if no worker failed."""
    then: FallbackAction
    by: str = ""
    """The worker that was called alone, and the reason for choosing it: "solver, by profile"."""
    error: str = ""


class VoteResult(NamedTuple):
    """The result of a vote over several workflows."""

    workflows: int
    """Number of workflows that ran."""
    agreed: int
    """How many of them gave the answer that counts."""
    latency_s: float
    """The latency in seconds: workflows run in waves, and each wave counts with the critical path of its slowest
    workflow."""


class TimedCompletion(NamedTuple):
    """A completion of the Conductor with its times, in seconds since the epoch."""

    messages: tuple[Message, ...]
    requested: float
    started: float
    """The start of its batch. Until then the prompt waited."""
    ended: float
    completion: Completion | None
    """The completion; None if the writer failed."""
    error: str = ""


@dataclass
class Answer:
    """The result of one request. It is filled in while the request is in progress."""

    problem: Problem
    version: str
    text: str | None = None
    """The answer; None if there is none (yet)."""
    status: Status = Status.CANCELLED
    error: str = ""
    notice: str = ""
    """A sentence for the user if the question lies outside of what the version was trained on; otherwise empty."""
    answer_run: QuestionTrace | None = None
    """The execution that gave the answer."""
    vote: VoteResult | None = None
    """The result of the vote; None if a single workflow answered."""
    runs: list[QuestionTrace] = field(default_factory=list)
    """All executions that ended, in order."""
    steps: list[StepTrace] = field(default_factory=list)
    """Every step that called a worker, in order of completion. Steps of unfinished workflows are included."""
    fallbacks: list[Fallback] = field(default_factory=list)
    completion: str = ""
    """The Conductor's last completion."""
    workflow: str = ""
    """The last workflow, as text."""
    completions: list[TimedCompletion] = field(default_factory=list)
    """Every completion of the Conductor, including those of later rounds."""
    attempts: int = 0
    """How many completions were requested for a first workflow."""
    paid_usd: float = 0.0
    """What was paid for this request in USD. In contrast, `cost_usd` counts cached responses at their original cost."""
    began: float = field(default_factory=time.time)
    """The arrival of the request, in seconds since the epoch."""
    waited_s: float = 0.0
    """The seconds from the arrival until the request was admitted."""
    writing_s: float = 0.0
    """The seconds that the Conductor took, including its queue, summed over workflows that vote side by side."""
    working_s: float = 0.0
    """The seconds that the workers took, summed in the same way."""

    @property
    def responses(self) -> list[tuple[str, Response]]:
        """Return each call that got a response, as worker and response: first those that wrote a workflow, then the
        steps."""
        drafts = [draft.completion for draft in self.completions if draft.completion is not None]
        written = [(each.worker, each.response) for each in drafts if each.response is not None]
        return written + [(step.worker, step.response) for step in self.steps if step.is_paid]

    @property
    def prompt_tokens(self) -> int:
        """Return the prompt tokens of all calls of workers."""
        return sum(response.prompt_tokens for _, response in self.responses)

    @property
    def completion_tokens(self) -> int:
        """Return the completion tokens of all calls of workers."""
        return sum(response.completion_tokens for _, response in self.responses)

    @property
    def cost_usd(self) -> float:
        """Return the cost of all calls in USD, where cached responses count at their original cost."""
        return sum(response.cost_usd for _, response in self.responses)

    @property
    def finish_reason(self) -> Literal["stop", "length"]:
        """Return OpenAI's finish reason: "length" if the final step was cut at its worker's `max_tokens`, otherwise
        "stop"."""
        final = self.answer_run and self.answer_run.answering_execution
        return "length" if final and final.steps[-1].response.finish_reason == "length" else "stop"

    def as_account(self, *, texts: bool) -> dict[str, Any]:
        """Return how the answer was made, as values for JSON. With `texts`, the workflow and all texts of its steps are
        included."""
        ran = self.answer_run or (self.runs[-1] if self.runs else None)
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
