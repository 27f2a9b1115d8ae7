"""Detect a worker or a champion that has changed since its answers were stored.

Every round asks each worker a few questions again whose stored answers are graded, and the champion, as a whole system,
a few of the questions that it was scored on. The new answers are graded in the same way and compared with the stored
ones, paired by question, by the promotion gate's test (`score_interval`).

The questions are chosen without regard to the answers. While a system is unchanged, its stored and its new answer to a
question have the same distribution, so the mean difference is 0 whatever the system's noise and the questions'
difficulty. A round tests the newest `WINDOW_PAIRS` pairs at the error probability `false_alarms` / `ROUNDS_PER_YEAR`.
These probabilities add up over a year's rounds, however the rounds depend on one another, so an unchanged system is
reported within a year with a probability of at most `false_alarms`.

The test finds a change of accuracy in either direction. It does not find a model that is right as often as before.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from ops.benchmarks.graded import read_graded_responses
from ops.benchmarks.problem_files import group_by_benchmark, read_evaluation_questions, read_problems
from ops.config import Drift, Setup, Worker, digest
from ops.config.base import Settings
from ops.core.async_run import run_async
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.messages import Message, Namespace, Sample
from ops.core.once import read_key
from ops.core.problem import Problem, benchmark_of, problem_key
from ops.core.response import Response
from ops.core.response_rows import REMEDY, ResponseRow, response_file
from ops.core.workspace import Workspace
from ops.evaluation.runner import evaluate
from ops.precaching.precache import precache_worker
from ops.release import registry
from ops.results.outcome_rows import OutcomeRow
from ops.results.statistics import Interval, is_difference, score_interval
from ops.results.summary import accuracy_by_question
from ops.retraining.champion import load_champion
from ops.retraining.fine_tuning_start import get_champion_folder
from ops.retraining.standing import load_comparable_rows
from ops.workers.client import WorkerClient
from ops.workers.scheduling import Client

ROUNDS_PER_YEAR = 365
"""The number of rounds, one a day, to which the probability of a false alarm refers."""
WINDOW_PAIRS = 480
"""How many of the newest pairs a round compares."""


# ── the test ─────────────────────────────────────────────────────────────────


class AnswerPair(NamedTuple):
    """A question that was asked again. `stored_accuracy` is the accuracy (0-1) of its stored answers, `now` that of the
    new answer."""

    question: str
    on: date
    before: float
    now: float


class DriftRecord(Settings):
    """The newest pairs of one system in its present configuration."""

    system: str
    identity: str
    """The digest of everything that can change the system's answers. A system with another identity begins a new
    record."""
    rounds: int = 0
    pairs: tuple[AnswerPair, ...] = ()

    def add_round(self, pairs: Sequence[AnswerPair], on: date) -> DriftRecord:
        """Return the record with the round of the day added. A repetition of the same round replaces it."""
        earlier = [pair for pair in self.pairs if pair.on != on]
        rounds = self.rounds + (len(earlier) == len(self.pairs))
        return self.model_copy(update={"rounds": rounds, "pairs": tuple([*earlier, *pairs][-WINDOW_PAIRS:])})

    def is_changed(self, false_alarms: float) -> bool:
        """Return whether the newest pairs show that the system has changed.

        `false_alarms` is the probability (0-1) that an unchanged system is reported within a year of rounds.
        """
        return (
            is_difference(self._differences_by_benchmark(), confidence=confidence_of_round(false_alarms))
            if self.pairs
            else False
        )

    def estimate_difference(self, false_alarms: float) -> Interval | None:
        """Return the mean change of the accuracy with its interval at one round's confidence; None without pairs."""
        return (
            score_interval(self._differences_by_benchmark(), confidence=confidence_of_round(false_alarms))
            if self.pairs
            else None
        )

    def accuracies(self) -> tuple[float, float]:
        """Return the mean accuracies of the stored and of the new answers.

        Raises `statistics.StatisticsError` without pairs.
        """
        return fmean(pair.before for pair in self.pairs), fmean(pair.now for pair in self.pairs)

    def _differences_by_benchmark(self) -> list[list[float]]:
        """Return the differences of the questions of each benchmark; a question's repeats are averaged."""
        by_question: dict[str, list[float]] = defaultdict(list)
        for question, _, before, now in self.pairs:
            by_question[question].append(now - before)
        by_name: dict[str, list[float]] = defaultdict(list)
        for question, differences in by_question.items():
            by_name[benchmark_of(question)].append(sum(differences) / len(differences))
        return list(by_name.values())


def confidence_of_round(false_alarms: float) -> float:
    """Return the two-sided confidence of one round at which an unchanged system is reported within a year with
    probability `false_alarms`."""
    return 1 - false_alarms / ROUNDS_PER_YEAR


# ── what is asked again ──────────────────────────────────────────────────────


@dataclass(frozen=True)
class StoredSystem:
    """A worker or the champion, with the questions whose answers are stored."""

    name: str
    identity: str
    questions: tuple[Problem, ...]
    stored_accuracy: Mapping[str, float]
    """The accuracy (0-1) of the stored answers, by the key of the problem."""
    worker: Worker | None = None
    """The worker; None for the champion."""

    def choose_questions(self, seed: int, count: int, day: date) -> list[Problem]:
        """Return the questions of the day: consecutive ones of a seeded order that alternates between benchmarks."""
        order = sorted(self.questions, key=lambda question: question.key)
        Random(f"drift {seed}").shuffle(order)
        turns = [(turn, own) for same in group_by_benchmark(order).values() for turn, own in enumerate(same)]
        order = [question for _, question in sorted(turns, key=lambda turn: (turn[0], turn[1].benchmark))]
        start = day.toordinal() * count % len(order)
        return [*order, *order][start : start + min(count, len(order))]

    def load_record(self, workspace: Workspace) -> DriftRecord:
        """Return the system's record, which is empty before the first round. Raises `DataError` if its file cannot be
        read."""
        file = self._record_file(workspace)
        if not file.is_file():
            return DriftRecord(system=self.name, identity=self.identity)
        try:
            return DriftRecord.model_validate_json(file.read_text(encoding="utf-8"))
        except ValueError as error:
            problem = f"is not a record of questions asked again ({error})"
            raise DataError(file, "", problem, "Delete it: a new record is begun") from None

    def record_round(self, workspace: Workspace, new_accuracy: Mapping[str, float], day: date) -> DriftRecord:
        """Store the accuracies of the new answers (by problem key, 0 or 1) as the round of the day, and return the
        record."""
        pairs = [
            AnswerPair(question=key, on=day, before=self.stored_accuracy[key], now=score)
            for key, score in new_accuracy.items()
        ]
        record = self.load_record(workspace).add_round(pairs, day)
        write_text(self._record_file(workspace), json.dumps(record.model_dump(mode="json"), indent=1))
        return record

    def _record_file(self, workspace: Workspace) -> Path:
        return _records_folder(workspace) / f"{self.name.replace(' ', '-')}-{self.identity}.json"


def _records_folder(workspace: Workspace) -> Path:
    return workspace.state / "drift"


def list_stored_workers(setup: Setup) -> list[StoredSystem]:
    """Return the workers whose graded answers to shortlisted problems are stored. Raises `DataError`."""
    responses, shortlist = setup.workspace.data / "responses", setup.workspace.data / "shortlist.jsonl"
    systems = []
    for worker in setup.pool.workers:
        folder, identity = response_file(responses, worker.name, "any").parent, digest(worker.identity)
        files = [file for file in sorted(folder.glob("*.parquet")) if _has_answers_of(file, identity)]
        rows = [row for file in files for row in read_graded_responses(file)]
        before = {row.problem_key: _accuracy_of(row) for row in rows if row.sample == 0 and row.status != "unreachable"}
        questions = tuple(problem for problem in read_problems(shortlist) if problem.key in before) if before else ()
        if questions:
            systems.append(StoredSystem(worker.name, identity, questions, before, worker))
    return systems


def _has_answers_of(file: Path, identity: str) -> bool:
    """Return whether the worker with this identity gave the answers, which is so too if the file does not say."""
    return read_key(file, REMEDY).get("worker", identity) == identity


def _accuracy_of(row: ResponseRow) -> float:
    return float(row.score >= 1)


def find_stored_champion(setup: Setup) -> StoredSystem | None:
    """Return the champion with the questions on which it was scored, or None without a champion. Raises `DataError`."""
    version = registry.find_champion(setup.workspace)
    if version is None:
        return None
    means = accuracy_by_question(load_comparable_rows(setup, version))
    before = {problem_key(name, question): mean for name, own in means.items() for question, mean in own.items()}
    every = read_evaluation_questions(setup.workspace, setup.recipe).values()
    questions = tuple(question for own in every for question in own if question.key in before)
    identity = digest({"version": version.version, "pool": setup.pool.answers_key})
    return StoredSystem(f"champion {version.version}", identity, questions, before) if questions else None


# ── asking again ─────────────────────────────────────────────────────────────


def sample_of_day(day: date) -> Sample:
    """Return the sample of the day. Each day has its own answers, so that each is paid for once."""
    return Sample(day.toordinal(), namespace=Namespace.REPEATED)


@dataclass(frozen=True)
class DayClient:
    """A client that asks for new answers, those of one day, in place of the stored ones. Each question is asked once a
    day."""

    client: Client
    day: date

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **options: Any
    ) -> Response:
        """Return the worker's response of that day. Raises `ValueError` if `sample` has an index other than 0."""
        asked = Sample.of(sample)
        if asked.index:
            raise ValueError(f"sample index {asked.index}: a day asks each question once")
        own = replace(sample_of_day(self.day), repetition=asked.repetition)
        return await self.client.complete(worker, messages, sample=own, **options)


def run_drift_round(setup: Setup, client: WorkerClient, settings: Drift, day: date) -> list[DriftRecord]:
    """Ask every worker and the champion the questions of the day, and return the record of each.

    A round that was interrupted continues without paying twice, because its answers are stored. Raises `DataError` if
    no answers are stored, and the client's `OverBudget` and `ConfigError`; records of systems that were completed are
    kept.
    """
    records = ask_workers_again(setup, client, settings, day)
    known = load_champion(setup.workspace)
    if known is not None and (system := find_stored_champion(setup)) is not None:
        questions = system.choose_questions(setup.recipe.seed, settings.questions, day)
        policy = get_champion_folder(setup.workspace, known.make_change(setup.pool))
        rows = _evaluate_champion(setup, policy, client, questions, day)
        now = {row.problem_key: float(row.correct) for row in rows if not row.unscorable}
        records.append(system.record_round(setup.workspace, now, day))
    if not records:
        folder = setup.workspace.data / "responses"
        raise DataError(folder, "", "holds no answers", "Materialize worker_responses first")
    return records


def ask_workers_again(setup: Setup, client: Client, settings: Drift, day: date) -> list[DriftRecord]:
    """Ask the workers with stored answers the questions of the day, all workers at the same time. Raises the errors
    of `run_drift_round`."""

    async def ask(system: StoredSystem) -> DriftRecord:
        assert system.worker is not None
        questions = system.choose_questions(setup.recipe.seed, settings.questions, day)
        rows = await precache_worker(questions, system.worker, DayClient(client, day))
        now = {row.problem_key: _accuracy_of(row) for row in rows if row.status != "unreachable"}
        return system.record_round(setup.workspace, now, day)

    async def every(systems: Sequence[StoredSystem]) -> list[DriftRecord | BaseException]:
        return await asyncio.gather(*map(ask, systems), return_exceptions=True)

    records: list[DriftRecord] = []
    for record in run_async(every(list_stored_workers(setup))):
        if isinstance(record, BaseException):
            raise record
        records.append(record)
    return records


def _evaluate_champion(
    setup: Setup, policy: Path, client: WorkerClient, questions: Sequence[Problem], day: date
) -> list[OutcomeRow]:
    """Evaluate the champion's first rounds on the questions with new worker answers."""
    from ops.conductor.writer import load_conductor

    rows: list[OutcomeRow] = []
    with closing(load_conductor(policy, setup.workspace, setup.recipe.evaluation.writer)) as conductor:
        for name, own in group_by_benchmark(questions).items():
            asked = setup.for_benchmark(name)
            once = asked.recipe.evaluation.model_copy(update={"repeats": 1})
            card, data, texts = conductor.card, setup.workspace.data, asked.workspace.texts
            team = card.build_team(asked.pool, texts, asked.recipe.execution, DayClient(client, day))
            team = card.add_new_workers(team, asked.pool, data)
            rows += run_async(evaluate(conductor, own, team, once, seed=setup.recipe.seed))
    return rows
