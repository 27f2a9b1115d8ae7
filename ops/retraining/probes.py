"""Probes: ask every worker a few questions again each night, and test whether it has changed.

A probe's two answers have a namespace of their own in the response cache, so an interrupted round continues without
paying twice, and no other operation uses them.
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

from ops.benchmarks.store import read_problems
from ops.config import Probing, Settings, Setup, Worker, digest
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.response import Namespace, Sample
from ops.core.rows import ResponseRow, load_responses, response_file
from ops.core.workspace import Workspace
from ops.precaching.precache import answer
from ops.retraining.drift import Detector, threshold
from ops.workers.scheduling import Client


class ProbeRound(Settings):
    """One round of probes of one worker."""

    at: datetime
    asked: int
    """Questions with an answer."""
    losses: int
    gains: int
    evidence: float


class ProbeRecord(Settings):
    """What probes have shown of a worker as it is configured, revision included."""

    worker: str
    identity: str
    """Digest of all that can change its answers: another revision is another record."""
    sums: tuple[float, ...] = Detector().sums
    uses: dict[str, int] = Field(default_factory=dict)
    """Problem's key → how often it was probed."""
    nights: tuple[ProbeRound, ...] = ()

    @property
    def evidence(self) -> float:
        return Detector(self.sums).evidence

    def drifted(self, probing: Probing) -> bool:
        """Whether the evidence has ever come to the threshold."""
        return any(night.evidence >= threshold(probing.false_alarms) for night in self.nights)

    @classmethod
    def read(cls, workspace: Workspace, worker: Worker) -> ProbeRecord:
        """The worker's record; an empty one where it was never probed. Raises `DataError`."""
        file = record_file(workspace, worker)
        if not file.is_file():
            return cls(worker=worker.name, identity=digest(worker.identity))
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except ValueError as error:
            remedy = "Delete it: probing begins anew"
            raise DataError(file, "(file)", f"is no record of probes ({error})", remedy) from None

    def write(self, workspace: Workspace, worker: Worker) -> None:
        """Replace its file."""
        write_text(record_file(workspace, worker), json.dumps(self.model_dump(mode="json"), indent=1))


def record_file(workspace: Workspace, worker: Worker) -> Path:
    """`.podium/probes/WORKER-DIGEST.json`."""
    return workspace.state / "probes" / f"{worker.name}-{digest(worker.identity)}.json"


def chosen(problems: Sequence[Problem], precached: Mapping[str, ResponseRow], seed: int, count: int) -> list[Problem]:
    """The questions of a worker's probes, in their order: of those that it answered when it was precached, by `seed`,
    the benchmarks in turn."""
    order = sorted((each for each in problems if each.key in precached), key=lambda each: each.key)
    Random(f"probes {seed}").shuffle(order)
    place: dict[str, int] = {}
    turns = []
    for problem in order:
        place[problem.benchmark] = place.get(problem.benchmark, -1) + 1
        turns.append((place[problem.benchmark], problem.benchmark, problem))
    return [problem for _, _, problem in sorted(turns, key=lambda turn: turn[:2])][:count]


def precached(setup: Setup, worker: Worker) -> dict[str, ResponseRow]:
    """Problem's key → the worker's answer at sample 0, where it gave one. Raises `DataError`."""
    folder = response_file(setup.workspace.data / "responses", worker.name, "any").parent
    rows = load_responses(folder) if folder.is_dir() else []
    return {row.problem_key: row for row in rows if row.sample == 0 and row.status != "unreachable"}


def agree(problem: Problem, one: ResponseRow, other: ResponseRow) -> bool:
    """Whether two answers of a worker are the same: refused alike, or graded alike with the same answer read from the
    text. Programs are the same when they pass alike. Any relation would do for the false alarms; a finer one finds
    more."""
    if (one.status, one.score) != (other.status, other.score):
        return False
    return problem.grader == "code" or _plain(one.extracted) == _plain(other.extracted)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


class Tonight(NamedTuple):
    """What a round asks a worker: (problem, sample) of references that are still missing, as far as is known, and
    of each question tonight its reference, its answer and its next reference."""

    references: list[tuple[Problem, Sample]]
    probes: list[tuple[Problem, Sample]]


def tonight(setup: Setup, worker: Worker, record: ProbeRecord, probing: Probing) -> Tonight:
    """The next round of a worker: the questions that were probed least often. Raises `DataError` where it was not
    precached."""
    shortlist = read_problems(setup.workspace.data / "shortlist.jsonl")
    questions = chosen(shortlist, precached(setup, worker), setup.recipe.seed, probing.reference)
    if not questions:
        remedy = "Materialize worker_responses first"
        raise DataError(setup.workspace.data / "responses" / worker.name, "(folder)", "holds no answers", remedy)
    least = sorted(questions, key=lambda problem: record.uses.get(problem.key, 0))[: probing.questions]
    return Tonight(
        [] if record.nights else [(problem, _sample(0)) for problem in questions],
        [(problem, _sample(record.uses.get(problem.key, 0), later)) for problem in least for later in range(3)],
    )


async def probe(
    setup: Setup, worker: Worker, client: Client, probing: Probing, now: datetime | None = None
) -> ProbeRecord:
    """One round of probes of the worker; its record, which is stored when the round is whole.

    The questions are those that were probed least often. First all references are asked that are not yet: of a worker
    that was never probed, of all `probing.reference` questions. Raises `DataError` where it was not precached, and
    `OverBudget` and `ConfigError` as the client does; then the record stays as it was.
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
            continue  # nothing is known
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
    """The sample of a question's reference after `uses` probes, and the `later` ones: the next is the answer of the
    night, and the one after that is the next probe's reference."""
    return Sample(2 * uses + later, namespace=Namespace.PROBES)


async def _ask(worker: Worker, client: Client, asks: Sequence[tuple[Problem, Sample]]) -> list[ResponseRow]:
    """All of them, within the worker's own limits; what is in flight is awaited before an error is raised."""
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
    """One round of probes of every worker that was precached, all at once. Raises as `probe` does; the records of the
    others stand."""
    workers = [worker for worker in setup.pool.workers if precached(setup, worker)]

    async def every() -> list[ProbeRecord | BaseException]:
        rounds = (probe(setup, worker, client, probing, now) for worker in workers)
        return await asyncio.gather(*rounds, return_exceptions=True)

    records: list[tuple[Worker, ProbeRecord]] = []
    for worker, record in zip(workers, asyncio.run(every()), strict=True):
        if isinstance(record, BaseException):
            raise record
        records.append((worker, record))
    return records
