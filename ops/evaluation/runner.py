"""The evaluation loop: a system answers each question at every repeat, and each graded answer becomes a row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TypeVar

from ops.conductor.stored_writer import Writer
from ops.conductor.untrained import PromptedConductor, write_workflow
from ops.config import Evaluation, RoundLimits, Vote
from ops.core.problem import Problem
from ops.core.response import Message, Sample
from ops.evaluation.journal import RowList, RowSink
from ops.evaluation.method import Attempt, Author, Branches, Method
from ops.results.rows import OutcomeRow, Played
from ops.workers.scheduling import Client
from ops.workflow.grammar import Parsed
from ops.workflow.judging import graded
from ops.workflow.play import Fits, Question, play
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.scheduler import Scheduler
from ops.workflow.team import Team
from ops.workflow.trace import Trace
from ops.workflow.vote import Ballot

AHEAD = 4
"""The most batches in progress at once, including the one being written; a faster writer waits for the workers."""
Result = TypeVar("Result")
Completions = Mapping[tuple[str, int], str]
"""(problem key, repeat) → the completion that was written for it."""
OnPlayed = Callable[[Sequence[OutcomeRow], Sequence[Trace]], None]
"""Receives the rows of a set of questions, and the trace of each answer."""
OnDone = Callable[[int], None]
"""Receives the number of questions answered since the last call."""


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
    into: RowSink | None = None,
) -> list[OutcomeRow]:
    """Let the Conductor answer every problem `settings.repeats` times; return rows sorted by problem, then by repeat.

    With `into`, answers of which it has the row are left out, the rows of each set of problems are added to it as they
    come, and none is returned.

    A thread writes the next batch while the workers execute earlier ones. Completions that are passed in are executed
    without change, one for each question. Several workflows answer a question if `settings.vote` says so: each has
    answers of its own, and the rule is that of `ops.workflow.vote`. With `limits` the Conductor works in rounds: the
    limits then apply to all questions of one repeat together; `fits` is passed to `play`. Raises the client's
    `OverBudget` and `ConfigError` after the calls in flight have ended, and `PromptTooLongError`, which names the
    problem. Rows of unreachable workers are unscorable. The call by which a prompted Conductor writes counts in the
    row's cost.
    """
    scheduler, turn = Scheduler(), asyncio.Lock()
    given = conductor if isinstance(conductor, Mapping) else {}
    vote = Vote() if isinstance(conductor, Mapping) else settings.vote

    async def write(prompts: list[list[Message]], chosen: Sequence[Problem], number: int, sample: int) -> list[str]:
        # A mapping has a completion for each question, and a prompted Conductor is an author.
        assert not isinstance(conductor, Mapping | PromptedConductor)
        temperature = vote.temperature if number else settings.temperature
        texts: list[str] = []
        async with turn:
            for start in range(0, len(prompts), settings.batch):
                some = prompts[start : start + settings.batch]
                writing = partial(conductor.write, some, temperature=temperature, seed=seed + sample)
                try:
                    texts += await asyncio.to_thread(writing)
                except PromptTooLongError as error:  # only in a first round: `fits` excludes it later
                    raise PromptTooLongError.of(chosen[start + error.index], error.tokens, error.limit) from None
        return texts

    async def once(chosen: Sequence[Problem], repeat: int, number: int) -> list[Played]:
        """Run the workflow with this number of each question."""
        sample = number * settings.repeats + repeat
        if isinstance(conductor, PromptedConductor):
            author = Author(conductor.worker, lambda problem: team.messages(problem)[0]["content"], team.read)
            return await _all_ended(_authored(author, problem, team, sample, scheduler) for problem in chosen)
        questions = [Question(problem, team, sample, given.get((problem.key, repeat))) for problem in chosen]
        writing = partial(write, chosen=chosen, number=number, sample=sample)
        return [Played((trace,)) for trace in await play(questions, writing, limits, scheduler=scheduler, fits=fits)]

    async def answer(chosen: Sequence[Problem], repeat: int) -> list[Played]:
        ballots = [Ballot.of(problem, vote) for problem in chosen]
        return await _voted(ballots, lambda indices, number: once([chosen[i] for i in indices], repeat, number))

    size = settings.batch if limits is None else max(1, len(problems))
    sets = [problems[start : start + size] for start in range(0, len(problems), size)]
    made = RowList()
    loop = _Loop(made if into is None else into, settings.repeats, answer, team.client, on_played)
    await loop.run(sets, AHEAD if limits is None else 1, whole=limits is not None)
    return _in_order(made, problems)


async def evaluate_method(
    method: Method,
    problems: Sequence[Problem],
    team: Team,
    settings: Evaluation,
    on_done: OnDone | None = None,
    into: RowSink | None = None,
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

        async def branch(_: Sequence[int], number: int) -> list[Played]:
            return [Played((trace,)) for trace in await play([questions[number]], scheduler=scheduler)]

        async with room:
            if method.author is not None:
                played = await _authored(method.author, problem, team, repeat, scheduler)
            elif method.agree is not None:
                [played] = await _voted([Ballot(problem, len(questions), method.agree)], branch)
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
    made = RowList()
    await _Loop(made if into is None else into, settings.repeats, answer, team.client).run(sets, 1, whole=True)
    return _in_order(made, problems)


@dataclass(frozen=True)
class _Loop:
    """The loop over sets of problems and repeats."""

    rows: RowSink
    repeats: int
    answer: Callable[[Sequence[Problem], int], Awaitable[list[Played]]]
    client: Client
    on_played: OnPlayed | None = None

    async def run(self, sets: Sequence[Sequence[Problem]], at_once: int, *, whole: bool) -> None:
        """Play every set at every repeat, `at_once` at a time; a `whole` set again if one of its rows is missing.

        After an error, such as a spent budget, no further set begins; it is raised after all in progress have ended,
        because paid calls in flight must reach the cache.
        """
        waiting = ((chosen, repeat) for repeat in range(self.repeats) for chosen in sets)
        going, failed = set[asyncio.Task[None]](), list[BaseException]()
        try:
            while True:
                while not failed and len(going) < at_once and (next_set := next(waiting, None)) is not None:
                    chosen, repeat = next_set
                    if missing := self.rows.missing(chosen, repeat):
                        going.add(asyncio.create_task(self._play(chosen if whole else missing, repeat)))
                if not going:
                    break
                ended, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
                failed += [error for task in ended if (error := task.exception()) is not None]
        except BaseException:  # cancelled
            for task in going:
                task.cancel()
            await asyncio.gather(*going, return_exceptions=True)
            raise
        if failed:
            raise failed[0]

    async def _play(self, chosen: Sequence[Problem], repeat: int) -> None:
        played = await self.answer(chosen, repeat)
        grades = await graded(chosen, [each.counts.answer for each in played], self.client)
        made = zip(chosen, played, grades, strict=True)
        own = [OutcomeRow.of(problem, repeat, each, grade) for problem, each, grade in made]
        self.rows.add(own)
        if self.on_played is not None:
            self.on_played(own, [each.counts for each in played])


def _in_order(rows: Sequence[OutcomeRow], problems: Sequence[Problem]) -> list[OutcomeRow]:
    place = {problem.key: index for index, problem in enumerate(problems)}
    return sorted(rows, key=lambda row: (place[row.problem_key], row.repeat))


async def _voted(
    ballots: Sequence[Ballot], once: Callable[[Sequence[int], int], Awaitable[list[Played]]]
) -> list[Played]:
    """Run the workflows of each ballot until its answer stands.

    `once` runs the workflow with the given number for the ballots at the given indices. Those of a wave run side by
    side.
    """
    made: list[list[Played]] = [[] for _ in ballots]
    while any(waves := await asyncio.to_thread(lambda: [ballot.next() for ballot in ballots])):
        numbers = sorted({number for wave in waves for number in wave})
        asked = {number: [index for index, wave in enumerate(waves) if number in wave] for number in numbers}
        ran = await _all_ended(once(indices, number) for number, indices in asked.items())
        for indices, played in zip(asked.values(), ran, strict=True):
            for index, each in zip(indices, played, strict=True):
                made[index].append(each)
        for ballot, wave, own in zip(ballots, waves, made, strict=True):
            if wave:
                ballot.take([each.counts.answer for each in own[wave.start :]])
    return [_elected(ballot, own) for ballot, own in zip(ballots, made, strict=True)]


def _elected(ballot: Ballot, made: Sequence[Played]) -> Played:
    branches = tuple(each.counts for each in made)
    writings = tuple(writing for each in made for writing in each.writings)
    return Played(branches, ballot.winners[0], writings, tuple(ballot.waves))


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
    return Played((trace,), writings=(writing,))


def _samples(branches: Branches, repeat: int) -> list[Sample]:
    """Number equal branches as repetitions, like equal steps of one workflow, so that each gets a new answer."""
    return [Sample(repeat, branches[:index].count(workflow)) for index, workflow in enumerate(branches)]
