"""What happened when a workflow was run: one `StepTrace` a step, summed up by a `Trace`.

What belongs here: the record and what can be computed from it. What does not: running
(`execution`), showing (`render`) and rewarding (`ops.training.reward`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ops.workflow.grammar import Workflow

StepStatus = Literal["ok", "pruned", "unreachable", "refused", "not_run"]
TraceStatus = Literal["answered", "unreachable", "refused"]


@dataclass(frozen=True)
class StepTrace:
    """One step: who was asked what, what it saw, what it answered at what price.

    `index` is its place in the workflow, `ordinal` the worker's among those offered, `sees`
    the indices of the steps in its context. `status`: "ok"; "pruned" (the answer cannot
    depend on it, so it was never asked); "unreachable" or "refused" (`error` says why); "not_run"
    (another step had failed first). Tokens, `cost_usd` (USD) and `latency_s` (seconds) are
    those of the paid call, also when the response came from the cache.
    """

    index: int
    worker: str
    ordinal: int
    subtask: str
    sees: tuple[int, ...]
    status: StepStatus
    response: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    latency_s: float = 0.0
    cached: bool = False
    retries: int = 0
    finish_reason: str = ""
    error: str = ""


@dataclass(frozen=True)
class Trace:
    """One execution of `workflow` on `question` (as the workers read it).

    `answer` is the last step's response, or None unless `status` is "answered".
    "unreachable" is unscorable; "refused" scores as wrong. `wall_s` is what the execution
    took here and now, in seconds.
    """

    workflow: Workflow
    question: str
    steps: tuple[StepTrace, ...]
    answer: str | None
    status: TraceStatus
    wall_s: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        return sum(step.prompt_tokens for step in self.steps)

    @property
    def completion_tokens(self) -> int:
        return sum(step.completion_tokens for step in self.steps)

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of all steps."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cost_usd(self) -> float:
        """USD, cached responses counted at what they cost when they were paid for."""
        return sum(step.cost_usd for step in self.steps)

    @property
    def cached(self) -> int:
        """How many responses came from the cache."""
        return sum(step.cached for step in self.steps)

    @property
    def calls(self) -> int:
        """How many steps got a response."""
        return sum(step.status == "ok" for step in self.steps)

    @property
    def latency_s(self) -> float:
        """The critical path: seconds until the answer when every step starts as soon as it can."""
        finished: list[float] = []
        for step in self.steps:
            finished.append(max((finished[seen] for seen in step.sees), default=0.0) + step.latency_s)
        return max(finished, default=0.0)

    @property
    def error(self) -> str:
        """Why there is no answer; "" when there is one."""
        errors = [step.error for step in self.steps if step.status == self.status]
        return errors[0] if errors else ""

    def as_row(self) -> dict[str, Any]:
        """A JSON-ready row: the workflow's text, the totals and the steps."""
        return {
            "workflow": self.workflow.render(),
            "status": self.status,
            "answer": self.answer,
            "error": self.error,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": self.cost_usd,
            "latency_s": self.latency_s,
            "wall_s": self.wall_s,
            "cached": self.cached,
            "calls": self.calls,
            "steps": [asdict(step) | {"sees": list(step.sees)} for step in self.steps],
        }
