"""A method on one set of problems: run each question's workflows, choose, grade, keep every row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

from ops.benchmarks.prompts import worker_prompt
from ops.config import Evaluation
from ops.core.problem import Grade, Problem
from ops.evaluation.method import Attempt, Branches, Method
from ops.evaluation.runner import AHEAD, ScoreRow, usage_of
from ops.workflow.execution import OPINION, execute
from ops.workflow.scheduler import Scheduler
from ops.workflow.strategy import pattern, shape
from ops.workflow.team import Team
from ops.workflow.trace import UNSCORABLE, Trace

Result = TypeVar("Result")
OnDone = Callable[[int], None]
"""Told how many more questions have their answers."""


async def evaluate_method(
    method: Method, problems: Sequence[Problem], team: Team, settings: Evaluation, on_done: OnDone | None = None
) -> list[ScoreRow]:
    """Rows by problem, then by repeat; `problems` of one benchmark stand together.

    A row's steps, tokens, USD and responses are those of all branches, its seconds those of the slowest; one branch
    whose workers cannot be reached makes it unscorable. Raises `OverBudget` and `ConfigError` as the client does,
    once the calls in flight have ended.
    """
    rows: list[ScoreRow] = []
    for repeat in range(settings.repeats):
        for _, group in groupby(problems, key=lambda problem: problem.benchmark):
            own = list(group)
            traces = await _run(method.branches(own, repeat), own, team, repeat, settings, on_done)
            attempts = [
                Attempt(problem, tuple(trace.answer for trace in branches))
                for problem, branches in zip(own, traces, strict=True)
            ]
            picked = method.choose(attempts)
            answers = [attempt.answers[index] for attempt, index in zip(attempts, picked, strict=True)]
            grades = await _graded(own, answers)
            made = zip(own, traces, picked, grades, strict=True)
            rows += [_row(problem, branches, index, grade, repeat) for problem, branches, index, grade in made]
    place = {problem.key: index for index, problem in enumerate(problems)}
    return sorted(rows, key=lambda row: (place[row.problem_key], row.repeat))


async def _run(
    branches: Sequence[Branches], problems: Sequence[Problem], team: Team, repeat: int, settings: Evaluation,
    on_done: OnDone | None,
) -> list[list[Trace]]:  # fmt: skip
    scheduler, room = Scheduler(), asyncio.Semaphore(settings.batch * AHEAD)

    async def run(problem: Problem, own: Branches) -> list[Trace]:
        async with room:
            question = worker_prompt(problem)
            running = [
                execute(workflow, question, team, sample=sample, scheduler=scheduler)
                for workflow, sample in zip(own, _samples(own, repeat), strict=True)
            ]
            # All are awaited before an error is raised: calls in flight are paid for and must be cached.
            traces = [_raised(trace) for trace in await asyncio.gather(*running, return_exceptions=True)]
        if on_done is not None:
            on_done(1)
        return traces

    tasks = [run(problem, own) for problem, own in zip(problems, branches, strict=True)]
    return [_raised(traces) for traces in await asyncio.gather(*tasks, return_exceptions=True)]


def _samples(branches: Branches, repeat: int) -> list[int]:
    """Equal branches are further opinions, as equal steps of one workflow are."""
    return [repeat + OPINION * branches[:index].count(workflow) for index, workflow in enumerate(branches)]


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


def _row(problem: Problem, traces: Sequence[Trace], index: int, grade: Grade | None, repeat: int) -> ScoreRow:
    trace = traces[index]
    unscorable = any(each.status in UNSCORABLE for each in traces)
    return ScoreRow(
        benchmark=problem.benchmark,
        problem_id=problem.id,
        repeat=repeat,
        domain=problem.domain,
        correct=int(grade is not None and grade.correct and not unscorable),
        format_ok=True,
        failure="",
        status=trace.status,
        steps=sum(len(each.workflow.steps) for each in traces),
        workers=tuple(step.worker for each in traces for step in each.steps if step.status == "ok"),
        tokens=sum(each.tokens for each in traces),
        cost_usd=sum(each.cost_usd for each in traces),
        latency_s=max(each.latency_s for each in traces),
        completion=trace.workflow.render(),
        answer=trace.answer or "",
        unscorable=unscorable,
        shape=shape(trace.workflow),
        pattern=pattern(trace.workflow),
        usage=tuple(use for each in traces for use in usage_of(each)),
        trace=trace.id,
    )
