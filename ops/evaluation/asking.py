"""A method on one set of problems: run each question's workflows, choose, grade, keep every row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from ops.config import Evaluation
from ops.core.problem import Grade, Problem, worker_prompt
from ops.core.response import Sample
from ops.evaluation.method import Attempt, Author, Branches, Method
from ops.evaluation.rows import NO_WORKFLOW, ScoreRow
from ops.evaluation.runner import AHEAD, usage_of
from ops.workflow.execution import execute
from ops.workflow.grammar import Parsed, Workflow
from ops.workflow.scheduler import Scheduler
from ops.workflow.strategy import pattern, shape
from ops.workflow.team import Team
from ops.workflow.trace import UNSCORABLE, Trace

Result = TypeVar("Result")
OnDone = Callable[[int], None]
"""Told how many more questions have their answers."""
WRITE = "Write the workflow."
"""The subtask of a worker that writes one: its whole prompt stands where others have the question."""


class Run(NamedTuple):
    """One question's executions: of its branches, and before them of the author's writing, where there is one."""

    branches: tuple[Trace, ...]
    writing: Trace | None = None
    parsed: Parsed | None = None

    @property
    def traces(self) -> tuple[Trace, ...]:
        """All that was paid for, the author's writing last."""
        return self.branches if self.writing is None else (*self.branches, self.writing)

    @property
    def latency_s(self) -> float:
        """The author's seconds, and then those of the slowest branch."""
        writing = self.writing.latency_s if self.writing else 0.0
        return writing + max((trace.latency_s for trace in self.branches), default=0.0)

    @property
    def unwritten(self) -> str:
        """The status of a run without branches: the author's call failed, or gave no workflow."""
        return NO_WORKFLOW if self.writing is None or self.writing.status == "answered" else self.writing.status


async def evaluate_method(
    method: Method, problems: Sequence[Problem], team: Team, settings: Evaluation, on_done: OnDone | None = None
) -> list[ScoreRow]:
    """Rows by problem, then by repeat; `problems` of one benchmark stand together.

    A row's steps, tokens, USD and responses are those of all branches, its seconds those of the slowest; one branch
    whose workers cannot be reached makes it unscorable. An author's writing is paid for and waited for, and no step.
    Raises `OverBudget` and `ConfigError` as the client does, once the calls in flight have ended.
    """
    rows: list[ScoreRow] = []
    for repeat in range(settings.repeats):
        for _, group in groupby(problems, key=lambda problem: problem.benchmark):
            own = list(group)
            runs = await _run(method, own, team, repeat, settings, on_done)
            attempts = [
                Attempt(problem, tuple(trace.answer for trace in run.branches))
                for problem, run in zip(own, runs, strict=True)
            ]
            picked = method.choose(attempts)
            chosen = [attempt.answers[index:][:1] for attempt, index in zip(attempts, picked, strict=True)]
            grades = await _graded(own, [answers[0] if answers else None for answers in chosen])
            made = zip(own, runs, picked, grades, strict=True)
            rows += [_row(problem, run, index, grade, repeat) for problem, run, index, grade in made]
    place = {problem.key: index for index, problem in enumerate(problems)}
    return sorted(rows, key=lambda row: (place[row.problem_key], row.repeat))


async def _run(
    method: Method, problems: Sequence[Problem], team: Team, repeat: int, settings: Evaluation, on_done: OnDone | None
) -> list[Run]:
    scheduler, room = Scheduler(), asyncio.Semaphore(settings.batch * AHEAD)

    async def run(problem: Problem, branches: Branches) -> Run:
        async with room:
            writing, parsed = None, None
            if method.author is not None:
                writing, parsed = await _written(method.author, problem, team, repeat, scheduler)
                branches = () if parsed.workflow is None else (parsed.workflow,)
            question = worker_prompt(problem)
            running = [
                execute(workflow, question, team, sample=sample, scheduler=scheduler)
                for workflow, sample in zip(branches, _samples(branches, repeat), strict=True)
            ]
            # All are awaited before an error is raised: calls in flight are paid for and must be cached.
            traces = [_raised(trace) for trace in await asyncio.gather(*running, return_exceptions=True)]
        if on_done is not None:
            on_done(1)
        return Run(tuple(traces), writing, parsed)

    tasks = [run(problem, own) for problem, own in zip(problems, method.branches(problems, repeat), strict=True)]
    return [_raised(made) for made in await asyncio.gather(*tasks, return_exceptions=True)]


async def _written(
    author: Author, problem: Problem, team: Team, repeat: int, scheduler: Scheduler
) -> tuple[Trace, Parsed]:
    # By the executor: the same cache, limits, deadline and reading of failures as any other call.
    asking = Workflow.single(author.worker, WRITE)
    writing = await execute(asking, author.prompt(problem), team, sample=repeat, scheduler=scheduler)
    return writing, author.read(writing.answer or "")


def _samples(branches: Branches, repeat: int) -> list[Sample]:
    """Equal branches are repetitions, as equal steps of one workflow are."""
    return [Sample(repeat, branches[:index].count(workflow)) for index, workflow in enumerate(branches)]


def _raised(result: Result | BaseException) -> Result:
    if isinstance(result, BaseException):
        raise result
    return result


async def _graded(problems: Sequence[Problem], answers: Sequence[str | None]) -> list[Grade | None]:
    from ops.grading import grade_many

    there = [index for index, answer in enumerate(answers) if answer is not None]
    pairs = [(problems[index], answers[index] or "") for index in there]
    grades = dict(zip(there, await asyncio.to_thread(grade_many, pairs), strict=True))
    return [grades.get(index) for index in range(len(problems))]


def _row(problem: Problem, run: Run, index: int, grade: Grade | None, repeat: int) -> ScoreRow:
    counts = run.branches[index] if run.branches else None
    unscorable = any(trace.status in UNSCORABLE for trace in run.traces)
    workflow = counts.workflow if counts else None
    written = run.writing.answer if run.writing else workflow and workflow.render()
    return ScoreRow(
        benchmark=problem.benchmark,
        problem_id=problem.id,
        repeat=repeat,
        domain=problem.domain,
        correct=int(grade is not None and grade.correct and not unscorable),
        format_ok=workflow is not None,
        failure=str((run.parsed and run.parsed.failure) or ""),
        status=counts.status if counts else run.unwritten,
        steps=sum(len(each.workflow.steps) for each in run.branches),
        workers=tuple(step.worker for each in run.branches for step in each.steps if step.is_paid),
        tokens=sum(each.tokens for each in run.traces),
        cost_usd=sum(each.cost_usd for each in run.traces),
        latency_s=run.latency_s,
        completion=written or "",
        answer=(counts.answer or "") if counts else "",
        unscorable=unscorable,
        shape=shape(workflow) if workflow else "",
        pattern=pattern(workflow) if workflow else "",
        usage=tuple(use for each in run.traces for use in usage_of(each)),
        trace=counts.id if counts else "",
    )
