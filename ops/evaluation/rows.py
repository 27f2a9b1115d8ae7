"""The one record: what a system did for one question at one repeat, and how it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from ops.core.problem import Grade, Problem, problem_key
from ops.core.rows import ResponseRow
from ops.workflow.strategy import pattern, shape
from ops.workflow.trace import UNSCORABLE, Trace, WorkflowTrace

if TYPE_CHECKING:
    from ops.conductor.rollout import Outcome

NO_WORKFLOW = "no_workflow"
"""Status of a row whose completion gave no workflow: it counts as wrong, and as a format failure."""


class Usage(NamedTuple):
    """The tokens of one response of one worker."""

    worker: str
    prompt_tokens: int
    completion_tokens: int


class Played(NamedTuple):
    """What one system did for one question."""

    branches: tuple[Trace, ...]
    """Traces side by side; a Conductor has one."""
    chosen: int = 0
    """The branch whose answer counts."""
    writing: WorkflowTrace | None = None
    """The call of the worker that wrote the workflow, where a worker did."""

    @property
    def counts(self) -> Trace:
        """The trace whose answer counts."""
        return self.branches[self.chosen]


@dataclass(frozen=True)
class OutcomeRow:
    """One question at one repeat: what was written, what it gave, and what that cost.

    `status` is the trace's (`ops.workflow.trace.TraceStatus`) or `NO_WORKFLOW`.
    `steps` counts the workflow's steps; `workers` names those that were run, in the
    order of the steps; `shape` and `pattern` are what `ops.workflow.strategy` reads in it.
    `tokens` are the workers', prompt and completion together. `latency_s` is the workflow's
    critical path. `unscorable`: workers could not be reached, so nothing is known of the
    answer and the row is left out of every mean.
    """

    benchmark: str
    problem_id: str
    repeat: int
    domain: str
    correct: int
    format_ok: bool
    failure: str
    status: str
    steps: int
    workers: tuple[str, ...]
    tokens: int
    cost_usd: float
    latency_s: float
    completion: str
    answer: str
    unscorable: bool
    shape: str = ""
    pattern: str = ""
    usage: tuple[Usage, ...] = ()
    """What each response took, in the order of `workers`, and then what a worker's writing of the workflow took:
    costs are computed from it at any price."""
    rounds: int = 1
    """Completions written, where the Conductor works in rounds."""
    stop: str = ""
    """Why the rounds ended (`ops.workflow.trace.Stop`); empty where there are none."""
    trace: str = ""
    """The trace's id, the tag `trace` of those that MLflow shows; empty where nothing was executed, or a worker was
    asked alone."""

    @classmethod
    def of(cls, problem: Problem, repeat: int, played: Played, grade: Grade | None) -> Self:
        """What a system did for a problem, with the grade of the answer that counts.

        Steps, tokens, USD and responses are those of all branches and rounds; seconds are those of the slowest branch.
        One branch whose workers cannot be reached makes the row unscorable. A worker's writing of the workflow is paid
        for and waited for, and is no step. Shape and pattern are those of the workflow whose answer stands.
        """
        counts, writing = played.counts, played.writing
        first, workflow = counts.rounds[0].parsed, counts.workflow
        executions = [trace for branch in played.branches for trace in branch.traces]
        paid = executions if writing is None else [*executions, writing]
        unscorable = any(trace.status in UNSCORABLE for trace in paid)
        unwritten = NO_WORKFLOW if writing is None or writing.status == "answered" else writing.status
        return cls(
            benchmark=problem.benchmark,
            problem_id=problem.id,
            repeat=repeat,
            domain=problem.domain,
            correct=int(grade is not None and grade.correct and not unscorable),
            format_ok=first.workflow is not None,
            failure=str(first.failure or ""),
            status=counts.status if counts.traces else unwritten,
            steps=sum(len(trace.workflow.steps) for trace in executions),
            workers=tuple(step.worker for trace in executions for step in trace.steps if step.is_paid),
            tokens=sum(trace.tokens for trace in paid),
            cost_usd=sum((trace.cost_usd for trace in paid), 0.0),
            latency_s=(writing.latency_s if writing else 0.0) + max(branch.latency_s for branch in played.branches),
            completion="\n\n".join(round_.text for round_ in counts.rounds),
            answer=counts.answer or "",
            unscorable=unscorable,
            shape=shape(workflow) if workflow else "",
            pattern=pattern(workflow) if workflow else "",
            usage=tuple(use for trace in paid for use in _usage(trace)),
            rounds=len(counts.rounds),
            stop=counts.stop,
            trace=counts.id if counts.traces else "",
        )

    @classmethod
    def of_response(cls, row: ResponseRow, domain: str = "") -> Self:
        """A worker's own response as the answer of a one-step workflow; the sample index is the repeat.

        A refusal is wrong, an unreachable worker unscorable: the Conductor's own rows are read in the same way.
        """
        return cls(
            benchmark=row.benchmark,
            problem_id=row.problem_id,
            repeat=row.sample,
            domain=domain,
            correct=int(row.score >= 1.0),
            format_ok=True,
            failure="",
            status="answered" if row.status == "ok" else row.status,
            steps=1,
            workers=(row.worker,),
            tokens=row.response.tokens,
            cost_usd=row.response.cost_usd,
            latency_s=row.response.latency_s,
            completion="",
            answer=row.response.text,
            unscorable=row.status == "unreachable",
            usage=(Usage(row.worker, row.response.prompt_tokens, row.response.completion_tokens),),
        )

    @property
    def problem_key(self) -> str:
        """What pairs the rows of two systems."""
        return problem_key(self.benchmark, self.problem_id)

    @property
    def outcome(self) -> Outcome:
        """As a rollout's."""
        if self.unscorable:
            return "unscorable"
        if self.status == NO_WORKFLOW:
            return "invalid"
        return "right" if self.correct else "wrong"


def _usage(trace: WorkflowTrace) -> list[Usage]:
    """What each response took, in the order of the steps."""
    answered = ((step.worker, step.response) for step in trace.steps if step.is_paid)
    return [Usage(worker, said.prompt_tokens, said.completion_tokens) for worker, said in answered]
