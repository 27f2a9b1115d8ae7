"""The evaluation loop: a system answers each question at every repeat, and each graded answer becomes a row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, product
from typing import TypeVar

from ops.conductor.stored_writer import Writer
from ops.conductor.untrained import PromptedConductor, write_workflow
from ops.config import Evaluation, RoundLimits, Vote
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.evaluation.method import Attempt, Branches, Method, WorkflowAuthor
from ops.results.outcome_rows import OutcomeRow, SystemExecution
from ops.workers.scheduling import Client
from ops.workflow.answer_rounds import HasRoom, Question, answer_questions
from ops.workflow.grammar import ParseResult
from ops.workflow.judging import grade_answers
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.team import Team
from ops.workflow.trace import QuestionTrace
from ops.workflow.vote import Ballot

MAX_BATCHES_IN_PROGRESS = 4
"""The largest number of batches in progress, including the one being written; a faster writer waits for the workers."""
Result = TypeVar("Result")
Completions = Mapping[tuple[str, int], str]
"""(problem key, repeat) → the completion that was written for it."""
OnExecuted = Callable[[Sequence[OutcomeRow], Sequence[QuestionTrace]], None]
"""Receives the rows of a set of questions, and the trace of each answer."""
AddRows = Callable[[Sequence[OutcomeRow]], object]
"""Receives the rows of a set of questions; sets come in any order."""
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
    has_room: HasRoom | None = None,
    on_executed: OnExecuted | None = None,
    add_rows: AddRows | None = None,
) -> list[OutcomeRow]:
    """Let the Conductor answer every problem `settings.repeats` times; return rows sorted by problem, then by repeat.

    With `add_rows`, that function receives the rows of each set of problems as they come, and none is returned. Earlier
    completions and responses are read from the store, so that an evaluation that was stopped continues when it is
    started again.

    A thread writes the next batch while the workers execute earlier ones. Completions that are passed in as a mapping
    are executed without change, one for each question. If `settings.vote` says so, several workflows answer a question,
    each with answers of its own, and the rule of `ops.workflow.vote` decides. With `limits` the Conductor works in
    rounds, and the limits apply to all questions of one repeat together; `has_room` is passed to `answer_questions`.

    Raises the
    client's `OverBudget` and `ConfigError` after the calls in flight have ended, and `PromptTooLongError`,
    which names the problem. Rows of unreachable workers are unscorable. The call by which a prompted Conductor writes
    counts in the row's cost.
    """
    turn = asyncio.Lock()
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
                except PromptTooLongError as error:  # only in a first round: `has_room` excludes it later
                    raise PromptTooLongError.for_problem(
                        chosen[start + error.index], error.tokens, error.limit
                    ) from None
        return texts

    async def run_once(chosen: Sequence[Problem], repeat: int, number: int) -> list[SystemExecution]:
        """Run the workflow with this number of each question."""
        sample = number * settings.repeats + repeat
        if isinstance(conductor, PromptedConductor):
            author = WorkflowAuthor(
                conductor.worker, lambda problem: team.build_messages(problem)[0]["content"], team.parse
            )
            authored = (_run_authored(author, problem, team, sample) for problem in chosen)
            return _raise_first_error(await asyncio.gather(*authored, return_exceptions=True))
        questions = [Question(problem, team, sample, given.get((problem.key, repeat))) for problem in chosen]
        writing = partial(write, chosen=chosen, number=number, sample=sample)
        return [
            SystemExecution((trace,)) for trace in await answer_questions(questions, writing, limits, has_room=has_room)
        ]

    async def answer(chosen: Sequence[Problem], repeat: int) -> None:
        """Let the Conductor answer a set of questions, and record the rows."""
        election = _Election([Ballot.for_problem(problem, vote) for problem in chosen])
        while asked := await election.next_wave():
            ran = (run_once([chosen[i] for i in indices], repeat, number) for number, indices in asked.items())
            election.count(asked, _raise_first_error(await asyncio.gather(*ran, return_exceptions=True)))
        await _grade_and_record(add, chosen, repeat, election.elected(), team.client, on_executed)

    made = list[OutcomeRow]()
    add = made.extend if add_rows is None else add_rows
    size = settings.batch if limits is None else max(1, len(problems))
    sets = [problems[start : start + size] for start in range(0, len(problems), size)]
    async with _sets_in_progress(MAX_BATCHES_IN_PROGRESS if limits is None else 1) as going:
        for repeat, chosen in product(range(settings.repeats), sets):
            if not await going.has_room():
                break
            going.tasks.add(asyncio.create_task(answer(chosen, repeat)))
    return _sort_rows(made, problems)


async def evaluate_method(
    method: Method,
    problems: Sequence[Problem],
    team: Team,
    settings: Evaluation,
    on_done: OnDone | None = None,
    add_rows: AddRows | None = None,
) -> list[OutcomeRow]:
    """Let a method answer every problem; return rows as `evaluate` does.

    `problems` must be grouped by benchmark. A whole benchmark is one set, because `method.choose` compares all of its
    answers. Raises the errors of `evaluate`.
    """
    room = asyncio.Semaphore(settings.batch * MAX_BATCHES_IN_PROGRESS)

    async def run(problem: Problem, branches: Branches, repeat: int) -> SystemExecution:
        questions = [
            Question(problem, team, sample, workflow.render(), ParseResult(workflow))
            for workflow, sample in zip(branches, _number_branches(branches, repeat), strict=True)
        ]
        async with room:
            if method.author is not None:
                played = await _run_authored(method.author, problem, team, repeat)
            elif method.agreeing_answers is not None:
                election = _Election([Ballot(problem, len(questions), method.agreeing_answers)])
                while asked := await election.next_wave():
                    running = (answer_questions([questions[number]]) for number in asked)
                    traces = _raise_first_error(await asyncio.gather(*running, return_exceptions=True))
                    election.count(asked, [[SystemExecution((trace,))] for [trace] in traces])
                [played] = election.elected()
            else:
                played = SystemExecution(tuple(await answer_questions(questions)))
        if on_done is not None:
            on_done(1)
        return played

    async def answer(own: Sequence[Problem], repeat: int) -> None:
        """Let the method answer a benchmark's questions, and record the rows."""
        branches = zip(own, method.branches(own, repeat), strict=True)
        running = (run(problem, workflows, repeat) for problem, workflows in branches)
        played = _raise_first_error(await asyncio.gather(*running, return_exceptions=True))
        attempts = [
            Attempt(problem, tuple(trace.answer for trace in each.branches))
            for problem, each in zip(own, played, strict=True)
        ]
        picked = zip(played, method.choose(attempts), strict=True)
        await _grade_and_record(
            add, own, repeat, [each._replace(chosen=chosen) for each, chosen in picked], team.client
        )

    made = list[OutcomeRow]()
    add = made.extend if add_rows is None else add_rows
    sets = [list(own) for _, own in groupby(problems, key=lambda problem: problem.benchmark)]
    async with _sets_in_progress(1) as going:
        for repeat, chosen in product(range(settings.repeats), sets):
            if not await going.has_room():
                break
            going.tasks.add(asyncio.create_task(answer(chosen, repeat)))
    return _sort_rows(made, problems)


@dataclass
class _SetsInProgress:
    """The sets of questions that are being answered, at most `at_once`."""

    at_once: int
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    failed: list[BaseException] = field(default_factory=list)

    async def has_room(self) -> bool:
        """Wait until another set may begin; return False after an error, when none may."""
        while not self.failed and len(self.tasks) >= self.at_once:
            await self.wait()
        return not self.failed

    async def wait(self) -> None:
        """Wait until one of the sets has ended."""
        ended, self.tasks = await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
        self.failed += [error for task in ended if (error := task.exception()) is not None]


@asynccontextmanager
async def _sets_in_progress(at_once: int) -> AsyncIterator[_SetsInProgress]:
    """Wait at the end of the block for all sets that were begun in it.

    After an error, such as a spent budget, no further set begins; it is raised after all in progress have ended,
    because paid calls in flight must reach the cache.
    """
    going = _SetsInProgress(at_once)
    try:
        yield going
        while going.tasks:
            await going.wait()
    except BaseException:  # cancelled
        for task in going.tasks:
            task.cancel()
        await asyncio.gather(*going.tasks, return_exceptions=True)
        raise
    if going.failed:
        raise going.failed[0]


async def _grade_and_record(
    add: AddRows,
    chosen: Sequence[Problem],
    repeat: int,
    played: Sequence[SystemExecution],
    client: Client,
    on_played: OnExecuted | None = None,
) -> None:
    """Grade the answers of a set of questions, and add its rows."""
    grades = await grade_answers(chosen, [each.graded_trace.answer for each in played], client)
    made = zip(chosen, played, grades, strict=True)
    own = [OutcomeRow.from_execution(problem, repeat, each, grade) for problem, each, grade in made]
    add(own)
    if on_played is not None:
        on_played(own, [each.graded_trace for each in played])


def _sort_rows(rows: Sequence[OutcomeRow], problems: Sequence[Problem]) -> list[OutcomeRow]:
    place = {problem.key: index for index, problem in enumerate(problems)}
    return sorted(rows, key=lambda row: (place[row.problem_key], row.repeat))


class _Election:
    """The votes over several workflows of each question of a set."""

    def __init__(self, ballots: Sequence[Ballot]) -> None:
        self._ballots = ballots
        self._executions: list[list[SystemExecution]] = [[] for _ in ballots]
        self._waves: list[range] = []

    async def next_wave(self) -> dict[int, list[int]]:
        """Return the workflows to run next, side by side: their number → the indices of their questions.

        It is empty once every vote is decided.
        """
        self._waves = await asyncio.to_thread(lambda: [ballot.next_workflows() for ballot in self._ballots])
        numbers = sorted({number for wave in self._waves for number in wave})
        return {number: [index for index, wave in enumerate(self._waves) if number in wave] for number in numbers}

    def count(self, asked: Mapping[int, Sequence[int]], ran: Sequence[Sequence[SystemExecution]]) -> None:
        """Count the answers of a wave: for each number of a workflow, those of its questions."""
        for indices, played in zip(asked.values(), ran, strict=True):
            for index, each in zip(indices, played, strict=True):
                self._executions[index].append(each)
        for ballot, wave, own in zip(self._ballots, self._waves, self._executions, strict=True):
            if wave:
                ballot.add_answers([each.graded_trace.answer for each in own[wave.start :]])

    def elected(self) -> list[SystemExecution]:
        """Return the execution of each question, with the workflow whose answer counts."""
        return [
            SystemExecution(
                tuple(each.graded_trace for each in own),
                ballot.winners[0],
                tuple(writing for each in own for writing in each.writing_traces),
                tuple(ballot.waves),
            )
            for ballot, own in zip(self._ballots, self._executions, strict=True)
        ]


def _raise_first_error(results: Sequence[Result | BaseException]) -> list[Result]:
    """Return the results of `asyncio.gather` with `return_exceptions`, or raise the first error among them.

    The error is raised after all calls have ended, because paid calls in flight must reach the cache.
    """
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


async def _run_authored(author: WorkflowAuthor, problem: Problem, team: Team, repeat: int) -> SystemExecution:
    """Let a worker write the question's workflow, and execute it."""
    writing = await write_workflow(author.worker, author.prompt(problem), team, repeat)
    text = writing.answer or ""
    [trace] = await answer_questions([Question(problem, team, repeat, text, author.parse(text))])
    return SystemExecution((trace,), writing_traces=(writing,))


def _number_branches(branches: Branches, repeat: int) -> list[Sample]:
    """Number equal branches as repetitions, like equal steps of one workflow, so that each gets a new answer."""
    return [Sample(repeat, branches[:index].count(workflow)) for index, workflow in enumerate(branches)]
