"""The row of the results table: the result of one system on one question at one repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ops.core.problem import Grade, Problem, problem_key
from ops.core.status import Status
from ops.core.usage import Usage
from ops.workflow.strategy import classify_shape, workflow_pattern
from ops.workflow.trace import QuestionTrace, WorkflowTrace

if TYPE_CHECKING:
    from ops.conductor.rollout import Outcome


@dataclass(frozen=True, slots=True)
class CallUsage:
    """The usage of one response of a worker."""

    worker: str
    usage: Usage

    def as_columns(self) -> dict[str, Any]:
        """Return the worker and the fields of the usage by name, as a score file stores them."""
        return {"worker": self.worker, **self.usage.as_dict()}

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> CallUsage:
        """Return the usage that `as_columns` has written. Missing fields get their defaults."""
        usage = dict(columns)
        return cls(usage.pop("worker"), Usage(**usage))


class SystemExecution(NamedTuple):
    """The execution of one system on one question."""

    branches: tuple[QuestionTrace, ...]
    """The traces of the question's workflows. A Conductor has one, or several if its workflows vote."""
    chosen: int = 0
    """The index of the branch whose answer is graded."""
    writing_traces: tuple[WorkflowTrace, ...] = ()
    """The traces of the calls in which a worker wrote the branches' workflows; empty if no worker wrote them."""
    waves: tuple[int, ...] = ()
    """The number of branches in each group that ran at the same time, in order; empty if all ran at the same time."""

    @property
    def graded_trace(self) -> QuestionTrace:
        """The trace of the branch whose answer is graded."""
        return self.branches[self.chosen]

    @property
    def latency_s(self) -> float:
        """The latency in seconds: the sum over the waves of their slowest branch, including the writing of its
        workflow."""
        writing_s = [trace.latency_s for trace in self.writing_traces] or [0.0] * len(self.branches)
        remaining = iter([writing + branch.latency_s for writing, branch in zip(writing_s, self.branches, strict=True)])
        return sum(max(islice(remaining, wave)) for wave in self.waves or (len(self.branches),))


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One system's answer to one question at one repeat, with its grade and cost.

    - `correct` is 1 for a right answer and 0 otherwise.
    - `status` is the trace's `Status`, or `NO_WORKFLOW` if the completion is not a valid workflow, which counts as a
      wrong answer and as a format failure.
    - `format_ok` says whether the first completion is a valid workflow; `failure` is the reason if it is not.
    - `steps` is the number of steps of the workflow. `workers` are the names of the workers that answered, in the order
      of the steps.
    - `shape` and `pattern` classify the workflow (`ops.workflow.strategy`).
    - `tokens` are the prompt and completion tokens of all workers, `cost_usd` is the price of the answer in USD, and
      `latency_s` is the duration of the workflow's critical path in seconds.
    - `unscorable` is True if a worker or the judging model could not be reached. It is then not known whether the
      answer is correct, and the row is excluded from all averages.
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
    """The usage of each response in the order of `workers`, followed by that of the call that wrote the workflow, if a
    worker wrote it. Costs at other prices are computed from it."""
    rounds: int = 1
    """The number of completions that a recursive Conductor wrote; 1 for all other systems."""
    stop: str = ""
    """The reason why the rounds ended (`ops.workflow.trace.StopReason`); "" for a Conductor without rounds."""
    grading_usd: float = 0.0
    """The cost in USD of a model that judged the answer. It is not included in `cost_usd`."""
    trace: str = ""
    """The id of the trace, which MLflow stores as the tag `trace`; "" if no workflow ran, and for a single worker."""

    @classmethod
    def from_execution(cls, problem: Problem, repeat: int, execution: SystemExecution, grade: Grade | None) -> Self:
        """Return the row of an execution, in which `grade` is the grade of the chosen branch's answer.

        Steps, tokens, USD and responses are summed over all branches and rounds. The row is unscorable if a worker of
        any branch, or the judging model, could not be reached. If a worker wrote the workflows, these calls count in
        cost and latency but not as steps. Format, shape and pattern are those of the workflow that gave the graded
        answer.
        """
        graded = execution.graded_trace
        writing = execution.writing_traces[execution.chosen] if execution.writing_traces else None
        first, workflow = graded.rounds[0].parsed, graded.workflow
        executions = [trace for branch in execution.branches for trace in branch.executions]
        paid = [*executions, *execution.writing_traces]
        unscorable = not all(trace.status.is_scorable for trace in paid) or (grade is not None and grade.unscorable)
        written = Status.ANSWERED if writing is None else writing.status
        status_without_run = Status.NO_WORKFLOW if written == Status.ANSWERED else written
        return cls(
            benchmark=problem.benchmark,
            problem_id=problem.id,
            repeat=repeat,
            domain=problem.domain,
            correct=int(grade is not None and grade.correct and not unscorable),
            format_ok=first.workflow is not None,
            failure=str(first.failure or ""),
            status=(graded.status if graded.executions else status_without_run).value,
            steps=sum(len(trace.workflow.steps) for trace in executions),
            workers=tuple(step.worker for trace in executions for step in trace.steps if step.is_paid),
            tokens=sum(trace.tokens for trace in paid),
            cost_usd=sum((trace.cost_usd for trace in paid), 0.0),
            latency_s=execution.latency_s,
            completion="\n\n".join(round_.text for round_ in graded.rounds),
            answer=graded.answer or "",
            unscorable=unscorable,
            shape=classify_shape(workflow) if workflow else "",
            pattern=workflow_pattern(workflow) if workflow else "",
            usage=tuple(use for trace in paid for use in _list_usage(trace)),
            rounds=len(graded.rounds),
            stop=graded.stop_reason,
            grading_usd=grade.cost_usd if grade is not None else 0.0,
            trace=graded.id if graded.executions else "",
        )

    @property
    def problem_key(self) -> str:
        """The key of the problem, by which the rows of two systems are paired."""
        return problem_key(self.benchmark, self.problem_id)

    @property
    def outcome(self) -> Outcome:
        """The outcome of the row in the terms of a rollout."""
        if self.unscorable:
            return "unscorable"
        if self.status == Status.NO_WORKFLOW:
            return "invalid"
        return "right" if self.correct else "wrong"


def _list_usage(trace: WorkflowTrace) -> list[CallUsage]:
    """Return the usage of each paid response in the order of the steps."""
    return [CallUsage(step.worker, step.response.usage) for step in trace.steps if step.is_paid]
