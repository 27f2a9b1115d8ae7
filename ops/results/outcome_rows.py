"""The score row: the result of one system on one question at one repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ops.core.problem import Grade, Problem, problem_key
from ops.core.usage import Usage
from ops.workflow.strategy import classify_shape, workflow_pattern
from ops.workflow.trace import UNSCORABLE_STATUSES, QuestionTrace, WorkflowTrace

if TYPE_CHECKING:
    from ops.conductor.rollout import Outcome

NO_WORKFLOW = "no_workflow"
"""Status of a row whose completion is not a valid workflow: it counts as wrong, and as a format failure."""


@dataclass(frozen=True, slots=True)
class CallUsage:
    """The usage of one response of one worker."""

    worker: str
    usage: Usage

    def as_columns(self) -> dict[str, Any]:
        """Return the worker and the fields of its usage, as a score file stores them."""
        return {"worker": self.worker, **self.usage.as_dict()}

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> CallUsage:
        """Undo `as_columns`; parts of the usage that are missing have their defaults."""
        usage = dict(columns)
        return cls(usage.pop("worker"), Usage(**usage))


class SystemExecution(NamedTuple):
    """The execution of one system on one question."""

    branches: tuple[QuestionTrace, ...]
    """The traces of the question's workflows; a Conductor has one unless its workflows vote."""
    chosen: int = 0
    """The index of the branch whose answer is graded."""
    writing_traces: tuple[WorkflowTrace, ...] = ()
    """The trace of the call that wrote each branch's workflow; empty unless a worker wrote them."""
    waves: tuple[int, ...] = ()
    """The number of branches that ran side by side, wave after wave; empty: all at once."""

    @property
    def graded_trace(self) -> QuestionTrace:
        """The trace whose answer is graded."""
        return self.branches[self.chosen]

    @property
    def latency_s(self) -> float:
        """The seconds of the slowest branch of each wave, the writing of its workflow included."""
        writings = [each.latency_s for each in self.writing_traces] or [0.0] * len(self.branches)
        left = iter([writing + branch.latency_s for writing, branch in zip(writings, self.branches, strict=True)])
        return sum(max(islice(left, wave)) for wave in self.waves or (len(self.branches),))


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One system's answer to one question at one repeat, with its grade and cost.

    `status` is the trace's status (`ops.workflow.trace.TraceStatus`) or `NO_WORKFLOW`. `steps` is the number of steps
    of the workflow; `workers` are the names of the workers that ran, in the order of the steps; `classify_shape` and
    `workflow_pattern` are the classifications of `ops.workflow.strategy`. `tokens` are the prompt and completion tokens
    of all workers; `latency_s` is the workflow's critical path in seconds. `unscorable` is true if a worker could not
    be reached: correctness is then unknown, and every mean leaves the row out.
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
    usage: tuple[CallUsage, ...] = ()
    """The usage of each response, in the order of `workers`, then those of the call that wrote the workflow, if a
    worker wrote it. Costs at other prices are computed from it."""
    rounds: int = 1
    """The number of completions that a recursive Conductor wrote; otherwise 1."""
    stop: str = ""
    """Why the rounds ended (`ops.workflow.trace.StopReason`); empty for a Conductor without rounds."""
    grading_usd: float = 0.0
    """What the judge of the answer cost; not part of `cost_usd`, which is the price of the answer."""
    trace: str = ""
    """The trace's id, which MLflow stores as the tag `trace`; empty if no workflow ran, or for a worker alone."""

    @classmethod
    def from_execution(cls, problem: Problem, repeat: int, execution: SystemExecution, grade: Grade | None) -> Self:
        """Make the row of an execution; `grade` is the grade of the chosen branch's answer.

        Steps, tokens, USD and responses are summed over all branches and rounds. One branch with an unreachable worker
        makes the row unscorable, as does an unreachable judge. If a worker wrote the workflows, those calls count in
        cost and latency, but not as steps. Format, shape and pattern are those of the workflow that gave the graded
        answer.
        """
        counts = execution.graded_trace
        writing = execution.writing_traces[execution.chosen] if execution.writing_traces else None
        first, workflow = counts.rounds[0].parsed, counts.workflow
        executions = [trace for branch in execution.branches for trace in branch.executions]
        paid = [*executions, *execution.writing_traces]
        unscorable = any(trace.status in UNSCORABLE_STATUSES for trace in paid) or (
            grade is not None and grade.unscorable
        )
        unwritten = NO_WORKFLOW if writing is None or writing.status == "answered" else writing.status
        return cls(
            benchmark=problem.benchmark,
            problem_id=problem.id,
            repeat=repeat,
            domain=problem.domain,
            correct=int(grade is not None and grade.correct and not unscorable),
            format_ok=first.workflow is not None,
            failure=str(first.failure or ""),
            status=counts.status if counts.executions else unwritten,
            steps=sum(len(trace.workflow.steps) for trace in executions),
            workers=tuple(step.worker for trace in executions for step in trace.steps if step.is_paid),
            tokens=sum(trace.tokens for trace in paid),
            cost_usd=sum((trace.cost_usd for trace in paid), 0.0),
            latency_s=execution.latency_s,
            completion="\n\n".join(round_.text for round_ in counts.rounds),
            answer=counts.answer or "",
            unscorable=unscorable,
            shape=classify_shape(workflow) if workflow else "",
            pattern=workflow_pattern(workflow) if workflow else "",
            usage=tuple(use for trace in paid for use in _list_usage(trace)),
            rounds=len(counts.rounds),
            stop=counts.stop_reason,
            grading_usd=grade.cost_usd if grade is not None else 0.0,
            trace=counts.id if counts.executions else "",
        )

    @property
    def problem_key(self) -> str:
        """The problem's key, by which the rows of two systems are paired."""
        return problem_key(self.benchmark, self.problem_id)

    @property
    def outcome(self) -> Outcome:
        """The row's outcome in the terms of a rollout."""
        if self.unscorable:
            return "unscorable"
        if self.status == NO_WORKFLOW:
            return "invalid"
        return "right" if self.correct else "wrong"


def _list_usage(trace: WorkflowTrace) -> list[CallUsage]:
    """Return the usage of each paid response, in the order of the steps."""
    return [CallUsage(step.worker, step.response.usage) for step in trace.steps if step.is_paid]
