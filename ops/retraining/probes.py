"""Probes: repeat a few questions to every worker each night, and test whether the worker has changed.

The answers of probes have a separate namespace in the response cache. An interrupted round therefore continues without
paying twice, and no other operation reads these answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import NamedTuple

from pydantic import Field

from ops.benchmarks.graded import graded_responses
from ops.benchmarks.store import read_problems
from ops.config import Probing, Settings, Setup, Worker, digest
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.response import Namespace, Sample
from ops.core.rows import ResponseRow, response_file
from ops.core.running import run_async
from ops.core.workspace import Workspace
from ops.precaching.precache import answer
from ops.retraining.drift import Detector, threshold
from ops.workers.scheduling import Client


class ProbeRound(Settings):
    """The result of one round of probes of one worker."""

    at: datetime
    asked: int
    """Number of answered questions."""
    losses: int
    gains: int
    evidence: float


class ProbeRecord(Settings):
    """Probe results of a worker with its current configuration and revision."""

    worker: str
    identity: str
    """Digest of all settings that can change the worker's answers; a new revision starts a new record."""
    sums: tuple[float, ...] = Detector().sums
    uses: dict[str, int] = Field(default_factory=dict)
    """Problem key → number of probes."""
    nights: tuple[ProbeRound, ...] = ()

    @property
    def evidence(self) -> float:
        return Detector(self.sums).evidence

    def drifted(self, probing: Probing) -> bool:
        """Whether the evidence has ever reached the threshold."""
        return any(night.evidence >= threshold(probing.false_alarms) for night in self.nights)

    @classmethod
    def read(cls, workspace: Workspace, worker: Worker) -> ProbeRecord:
        """Read the worker's record; an empty one if it was never probed. Raises `DataError` for an unreadable file."""
        file = record_file(workspace, worker)
        if not file.is_file():
            return cls(worker=worker.name, identity=digest(worker.identity))
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except ValueError as error:
            remedy = "Delete it: a new record is begun"
            raise DataError(file, "", f"is not a record of probes ({error})", remedy) from None

    def write(self, workspace: Workspace, worker: Worker) -> None:
        """Write the record to its file."""
        write_text(record_file(workspace, worker), json.dumps(self.model_dump(mode="json"), indent=1))


def record_file(workspace: Workspace, worker: Worker) -> Path:
    """`.podium/probes/WORKER-DIGEST.json`."""
    return workspace.state / "probes" / f"{worker.name}-{digest(worker.identity)}.json"


def chosen(problems: Sequence[Problem], precached: Mapping[str, ResponseRow], seed: int, count: int) -> list[Problem]:
    """Choose `count` probe questions among those that the worker answered in precaching.

    The order is determined by `seed` and alternates between benchmarks.
    """
    order = sorted((each for each in problems if each.key in precached), key=lambda each: each.key)
    Random(f"probes {seed}").shuffle(order)
    place: dict[str, int] = {}
    turns = []
    for problem in order:
        place[problem.benchmark] = place.get(problem.benchmark, -1) + 1
        turns.append((place[problem.benchmark], problem.benchmark, problem))
    return [problem for _, _, problem in sorted(turns, key=lambda turn: turn[:2])][:count]


def precached(setup: Setup, worker: Worker) -> dict[str, ResponseRow]:
    """Problem key → the worker's precached answer at sample 0; unreachable ones are omitted. Raises `DataError`."""
    folder = response_file(setup.workspace.data / "responses", worker.name, "any").parent
    rows = graded_responses(folder) if folder.is_dir() else []
    return {row.problem_key: row for row in rows if row.sample == 0 and row.status != "unreachable"}


def agree(problem: Problem, one: ResponseRow, other: ResponseRow) -> bool:
    """Whether two answers of a worker agree: both refused, or equal scores and equal extracted answers.

    Programs agree if their scores are equal. The rate of false alarms holds for any relation; a finer relation detects
    more changes.
    """
    if (one.status, one.score) != (other.status, other.score):
        return False
    return problem.grader == "code" or _plain(one.extracted) == _plain(other.extracted)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


class Tonight(NamedTuple):
    """The calls of a round as (problem, sample).

    First the references that are missing according to the record; then, for each question of tonight, its reference,
    its answer and its next reference.
    """

    references: list[tuple[Problem, Sample]]
    probes: list[tuple[Problem, Sample]]


def tonight(setup: Setup, worker: Worker, record: ProbeRecord, probing: Probing) -> Tonight:
    """The calls of a worker's next round, on the least probed questions.

    Raises `DataError` if the worker was not precached.
    """
    shortlist = read_problems(setup.workspace.data / "shortlist.jsonl")
    questions = chosen(shortlist, precached(setup, worker), setup.recipe.seed, probing.reference)
    if not questions:
        remedy = "Materialize worker_responses first"
        raise DataError(setup.workspace.data / "responses" / worker.name, "", "holds no answers", remedy)
    least = sorted(questions, key=lambda problem: record.uses.get(problem.key, 0))[: probing.questions]
    return Tonight(
        [] if record.nights else [(problem, _sample(0)) for problem in questions],
        [(problem, _sample(record.uses.get(problem.key, 0), later)) for problem in least for later in range(3)],
    )


async def probe(
    setup: Setup, worker: Worker, client: Client, probing: Probing, now: datetime | None = None
) -> ProbeRecord:
    """Run one round of probes of the worker; store its record when the round is complete, and return it.

    The round uses the least probed questions. It first collects all missing references: for a worker without probes,
    those of all `probing.reference` questions. Raises `DataError` if the worker was not precached, and the client's
    `OverBudget` and `ConfigError`; the record is unchanged then.
    """
    record, first = ProbeRecord.read(setup.workspace, worker), precached(setup, worker)
    references, asks = tonight(setup, worker, record, probing)
    await _ask(worker, client, references)
    answers = await _ask(worker, client, asks)
    uses = dict(record.uses)
    losses = gains = asked = 0
    for (problem, _), reference, answered in zip(asks[::3], answers[::3], answers[1::3], strict=True):
        uses[problem.key] = uses.get(problem.key, 0) + 1
        if "unreachable" in (reference.status, answered.status):
            continue  # an unreachable answer gives no evidence
        asked += 1
        before, after = (agree(problem, first[problem.key], each) for each in (reference, answered))
        losses, gains = losses + (before and not after), gains + (after and not before)
    detector = Detector(record.sums).after(losses, gains)
    at = now or datetime.now(UTC)
    night = ProbeRound(at=at, asked=asked, losses=losses, gains=gains, evidence=detector.evidence)
    update = {"sums": detector.sums, "uses": uses, "nights": (*record.nights, night)}
    record = record.model_copy(update=update)
    record.write(setup.workspace, worker)
    return record


def _sample(uses: int, later: int = 0) -> Sample:
    """The sample of a question's reference after `uses` probes.

    `later` = 1: tonight's answer; `later` = 2: the reference of the next probe.
    """
    return Sample(2 * uses + later, namespace=Namespace.PROBES)


async def _ask(worker: Worker, client: Client, asks: Sequence[tuple[Problem, Sample]]) -> list[ResponseRow]:
    """Send all calls within the worker's limits; calls in flight are awaited before an error is raised."""
    tickets = asyncio.Semaphore(2 * worker.concurrency)

    async def one(problem: Problem, sample: Sample) -> ResponseRow:
        async with tickets:
            return await answer(problem, worker, client, sample)

    rows = await asyncio.gather(*(one(*ask) for ask in asks), return_exceptions=True)
    for row in rows:
        if isinstance(row, BaseException):
            raise row
    return [row for row in rows if not isinstance(row, BaseException)]


def probe_workers(
    setup: Setup, client: Client, probing: Probing, now: datetime | None = None
) -> list[tuple[Worker, ProbeRecord]]:
    """Run one round of probes of every precached worker in parallel.

    Raises the errors of `probe`; the records of the other workers are kept.
    """
    workers = [worker for worker in setup.pool.workers if precached(setup, worker)]

    async def every() -> list[ProbeRecord | BaseException]:
        rounds = (probe(setup, worker, client, probing, now) for worker in workers)
        return await asyncio.gather(*rounds, return_exceptions=True)

    records: list[tuple[Worker, ProbeRecord]] = []
    for worker, record in zip(workers, run_async(every()), strict=True):
        if isinstance(record, BaseException):
            raise record
        records.append((worker, record))
    return records
