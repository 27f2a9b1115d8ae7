"""The evaluation loop: a system answers each question at every repeat, and each graded answer becomes a row."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Protocol, TypeVar

from ops.conductor.untrained import PromptedConductor, write_workflow
from ops.config import Evaluation, RoundLimits
from ops.core.problem import Problem
from ops.core.response import Message, Sample
from ops.evaluation.method import Attempt, Author, Branches, Method
from ops.evaluation.rows import OutcomeRow, Played
from ops.evaluation.statistics import MeanEstimate, clustered
from ops.workers.scheduling import Client
from ops.workflow.grammar import Parsed
from ops.workflow.judging import graded
from ops.workflow.play import Fits, Question, play
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import Trace

AHEAD = 4
"""The most batches in progress at once, including the one being written; a faster writer waits for the workers."""
Result = TypeVar("Result")
Completions = Mapping[tuple[str, int], str]
"""(problem key, repeat) → the completion that was written for it."""
OnPlayed = Callable[[Sequence[OutcomeRow], Sequence[Trace]], None]
"""Receives the rows of a set of questions, and the trace of each answer."""
OnDone = Callable[[int], None]
"""Receives the number of questions answered since the last call."""


class Writer(Protocol):
    """A writer of completions: `ops.conductor.policy.Conductor`, or a fixed text in a test."""

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = ...,
        seed: int = ...,
    ) -> list[str]:
        """Return one completion per prompt, in order."""
        ...


async def evaluate(
    conductor: Writer | Completions | PromptedConductor,
    problems: Sequence[Problem],
    team: Team,
    settings: Evaluation,
    *,
    seed: int = 0,
    limits: RoundLimits | None = None,
    fits: Fits | None = None,
    on_played: OnPlayed | None = None,
) -> list[OutcomeRow]:
    """Let the Conductor answer every problem `settings.repeats` times; return rows sorted by problem, then by repeat.

    A thread writes the next batch while the workers execute earlier ones. Completions that are passed in are executed
    without change. With `limits` the Conductor works in rounds: the limits then apply to all questions of one repeat
    together; `fits` is passed to `play`. Raises the client's `OverBudget` and `ConfigError` after the calls in flight
    have ended, and `PromptTooLongError`, which names the problem. Rows of unreachable workers are unscorable. The call
    by which a prompted Conductor writes counts in the row's cost.
    """
    scheduler, turn = Scheduler(), asyncio.Lock()

    async def write(prompts: list[list[Message]], chosen: Sequence[Problem], repeat: int) -> list[str]:
        # A mapping has a completion for each question, and a prompted Conductor is an author.
        assert not isinstance(conductor, Mapping | PromptedConductor)
        texts: list[str] = []
        async with turn:
            for start in range(0, len(prompts), settings.batch):
                some = prompts[start : start + settings.batch]
                writing = partial(conductor.write, some, temperature=settings.temperature, seed=seed + repeat)
                try:
                    texts += await asyncio.to_thread(writing)
                except PromptTooLongError as error:  # only in a first round: `fits` excludes it later
                    raise PromptTooLongError.of(chosen[start + error.index], error.tokens, error.limit) from None
        return texts

    async def answer(chosen: Sequence[Problem], repeat: int) -> list[Played]:
        if isinstance(conductor, PromptedConductor):
            author = Author(conductor.worker, lambda problem: team.messages(problem)[0]["content"], team.read)
            return await _all_ended(_authored(author, problem, team, repeat, scheduler) for problem in chosen)
        given = conductor if isinstance(conductor, Mapping) else {}
        questions = [Question(problem, team, repeat, given.get((problem.key, repeat))) for problem in chosen]
        writing = partial(write, chosen=chosen, repeat=repeat)
        return [Played((trace,)) for trace in await play(questions, writing, limits, scheduler=scheduler, fits=fits)]

    size = settings.batch if limits is None else max(1, len(problems))
    sets = [problems[start : start + size] for start in range(0, len(problems), size)]
    at_once = AHEAD if limits is None else 1
    return await _evaluate(problems, sets, settings.repeats, answer, on_played, at_once, team.client)


async def evaluate_method(
    method: Method, problems: Sequence[Problem], team: Team, settings: Evaluation, on_done: OnDone | None = None
) -> list[OutcomeRow]:
    """Let a method answer every problem; return rows as `evaluate` does. `problems` must be grouped by benchmark.

    A whole benchmark is one set, because `method.choose` compares all of its answers. Raises the errors of `evaluate`.
    """
    scheduler, room = Scheduler(), asyncio.Semaphore(settings.batch * AHEAD)

    async def run(problem: Problem, branches: Branches, repeat: int) -> Played:
        questions = [
            Question(problem, team, sample, workflow.render(), Parsed(workflow))
            for workflow, sample in zip(branches, _samples(branches, repeat), strict=True)
        ]
        async with room:
            if method.author is not None:
                played = await _authored(method.author, problem, team, repeat, scheduler)
            else:
                played = Played(tuple(await play(questions, scheduler=scheduler)))
        if on_done is not None:
            on_done(1)
        return played

    async def answer(own: Sequence[Problem], repeat: int) -> list[Played]:
        branches = zip(own, method.branches(own, repeat), strict=True)
        played = await _all_ended(run(problem, workflows, repeat) for problem, workflows in branches)
        attempts = [
            Attempt(problem, tuple(trace.answer for trace in each.branches))
            for problem, each in zip(own, played, strict=True)
        ]
        picked = zip(played, method.choose(attempts), strict=True)
        return [each._replace(chosen=chosen) for each, chosen in picked]

    sets = [list(own) for _, own in groupby(problems, key=lambda problem: problem.benchmark)]
    return await _evaluate(problems, sets, settings.repeats, answer, None, 1, team.client)


async def _evaluate(
    problems: Sequence[Problem],
    sets: Sequence[Sequence[Problem]],
    repeats: int,
    answer: Callable[[Sequence[Problem], int], Awaitable[list[Played]]],
    on_played: OnPlayed | None,
    at_once: int,
    client: Client,
) -> list[OutcomeRow]:
    room, failed, rows = asyncio.Semaphore(at_once), False, list[OutcomeRow]()

    async def one(chosen: Sequence[Problem], repeat: int) -> None:
        nonlocal failed
        async with room:
            if failed:  # after an error, such as a spent budget, no further set begins
                return
            try:
                played = await answer(chosen, repeat)
                grades = await graded(chosen, [each.counts.answer for each in played], client)
            except BaseException:
                failed = True
                raise
        made = zip(chosen, played, grades, strict=True)
        own = [OutcomeRow.of(problem, repeat, each, grade) for problem, each, grade in made]
        rows.extend(own)
        if on_played is not None:
            on_played(own, [each.counts for each in played])

    await _all_ended(one(chosen, repeat) for repeat in range(repeats) for chosen in sets)
    place = {problem.key: index for index, problem in enumerate(problems)}
    return sorted(rows, key=lambda row: (place[row.problem_key], row.repeat))


async def _all_ended(running: Iterable[Awaitable[Result]]) -> list[Result]:
    """Return all results. An error is raised only after all have ended: paid calls in flight must reach the cache."""
    results = await asyncio.gather(*running, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


async def _authored(author: Author, problem: Problem, team: Team, repeat: int, scheduler: Scheduler) -> Played:
    """Let a worker write the question's workflow, and execute it."""
    writing = await write_workflow(author.worker, author.prompt(problem), team, repeat, scheduler)
    text = writing.answer or ""
    [trace] = await play([Question(problem, team, repeat, text, author.read(text))], scheduler=scheduler)
    return Played((trace,), writing=writing)


def _samples(branches: Branches, repeat: int) -> list[Sample]:
    """Number equal branches as repetitions, like equal steps of one workflow, so that each gets a new answer."""
    return [Sample(repeat, branches[:index].count(workflow)) for index, workflow in enumerate(branches)]


# ── summary of a benchmark's rows ────────────────────────────────────────────


@dataclass(frozen=True)
class Summary:
    """The results of one system on one benchmark.

    `tokens`, `cost_usd` and `latency_s` are means over scored rows, `steps` is a mean over well-formed workflows;
    shares are in [0, 1]. A mean without any row is NaN.
    """

    benchmark: str
    accuracy: MeanEstimate
    rows: int
    unscorable: int
    tokens: float
    cost_usd: float
    latency_s: float
    steps: float
    format_compliance: float
    multi_worker_share: float
    """The share of well-formed workflows in which more than one distinct worker ran."""
    shapes: dict[str, int] = field(default_factory=dict)
    """Shape → number of well-formed workflows with it."""
    patterns: dict[str, int] = field(default_factory=dict)
    """Pattern (workers and access, without the wording) → number of well-formed workflows with it."""


def summarize(rows: Iterable[OutcomeRow]) -> dict[str, Summary]:
    """Return one `Summary` per benchmark, in order of first appearance; unscorable rows enter only the counts."""
    by_benchmark: dict[str, list[OutcomeRow]] = defaultdict(list)
    for row in rows:
        by_benchmark[row.benchmark].append(row)
    return {benchmark: _summary(benchmark, group) for benchmark, group in by_benchmark.items()}


def _summary(benchmark: str, rows: list[OutcomeRow]) -> Summary:
    scored = [row for row in rows if not row.unscorable]
    written = [row for row in rows if row.format_ok]
    questions: dict[str, list[float]] = defaultdict(list)
    for row in scored:
        questions[row.problem_id].append(row.correct)
    return Summary(
        benchmark=benchmark,
        accuracy=clustered(list(questions.values())),
        rows=len(rows),
        unscorable=len(rows) - len(scored),
        tokens=_mean([row.tokens for row in scored]),
        cost_usd=_mean([row.cost_usd for row in scored]),
        latency_s=_mean([row.latency_s for row in scored]),
        steps=_mean([row.steps for row in written]),
        format_compliance=_mean([row.format_ok for row in rows]),
        multi_worker_share=_mean([len(set(row.workers)) > 1 for row in written]),
        shapes=dict(Counter(row.shape for row in written if row.shape)),
        patterns=dict(Counter(row.pattern for row in written if row.pattern)),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
