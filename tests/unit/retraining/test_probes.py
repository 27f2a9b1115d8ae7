"""Rounds of probes: paid once and kept separate; a swapped model's answers are excluded by a revision."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from ops.benchmarks.store import write_problems
from ops.cache import cache_key
from ops.config import Pool, Probing, Setup, Snapshot, Worker, load_pool, load_recipe
from ops.config.pool import FILE, Revisions
from ops.core.errors import ConfigError, DataError, WorkerUnreachable
from ops.core.response import Message, Namespace, Response, Sample
from ops.core.rows import response_file
from ops.core.workspace import Workspace
from ops.precaching.precache import precache, solo_messages, write_responses
from ops.retraining.probes import ProbeRecord, agree, probe, probe_workers, tonight
from ops.retraining.revisions import record_revisions
from ops.synthetic.problems import generate

PROBING = Probing(reference=12, questions=4, false_alarms=0.2)
NOW = datetime(2026, 1, 2, 4, tzinfo=UTC)
STEADY = Worker(name="steady", model="local/steady")


class Provider:
    """A provider in this process with another model's answers from `swapped` on; it counts its calls."""

    def __init__(self) -> None:
        self.swapped, self.away = False, False
        self.asked: Counter[tuple[str, int | Sample]] = Counter()
        self.kept: dict[tuple[str, int | Sample], Response] = {}

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0) -> Response:
        key = cache_key(worker.identity, messages, 0), sample
        if key in self.kept:
            return self.kept[key]
        if self.away:
            raise WorkerUnreachable("away")
        self.asked[key] += 1
        text = "The answer is 41." if self.swapped else "The answer is 17."
        self.kept[key] = Response(text, 10, 5, 0.0, 0.1, "stop")
        return self.kept[key]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    root = Workspace.find().root
    recipe = load_recipe(root / "config", "quickstart")
    workspace = Workspace(tmp_path)
    problems = [problem for name in ("math500", "rlpr") for problem in generate(name, "train", 10, 1)]
    write_problems(workspace.data / "shortlist.jsonl", problems)
    return Setup(workspace, recipe, Pool(name="probed", workers=(STEADY,)))


@pytest.fixture
def provider(setup: Setup) -> Provider:
    made = Provider()
    precached(setup, made)
    made.asked.clear()
    return made


def precached(setup: Setup, provider: Provider, worker: Worker = STEADY) -> None:
    from ops.benchmarks.store import read_problems

    rows = asyncio.run(precache(read_problems(setup.workspace.data / "shortlist.jsonl"), worker, provider))
    for name in ("math500", "rlpr"):
        own = [row for row in rows if row.benchmark == name]
        write_responses(own, response_file(setup.workspace.data / "responses", worker.name, name))


def rounds(setup: Setup, provider: Provider, count: int, worker: Worker = STEADY) -> ProbeRecord:
    for _ in range(count):
        record = asyncio.run(probe(setup, worker, provider, PROBING, NOW))
    return record


def test_the_first_round_asks_the_references_and_every_round_three_answers_a_question(
    setup: Setup, provider: Provider
) -> None:
    rounds(setup, provider, 1)
    assert sum(provider.asked.values()) == 12 + 4 * 2  # tonight's references are among the twelve
    rounds(setup, provider, 2)
    assert sum(provider.asked.values()) == 12 + 3 * 4 * 2
    assert set(provider.asked.values()) == {1}
    assert all(Sample.of(sample).namespace is Namespace.PROBES for _, sample in provider.asked)


def test_questions_take_turns(setup: Setup, provider: Provider) -> None:
    record = rounds(setup, provider, 4)
    assert sorted(record.uses.values()) == [1] * 8 + [2] * 4
    assert {key.partition("/")[0] for key in record.uses} == {"math500", "rlpr"}


def test_an_unchanged_worker_gives_no_evidence(setup: Setup, provider: Provider) -> None:
    record = rounds(setup, provider, 5)
    assert [(night.asked, night.losses, night.gains) for night in record.nights] == [(4, 0, 0)] * 5
    assert not record.drifted(PROBING)


def test_a_swapped_model_is_found_and_its_answers_are_excluded_by_a_revision(setup: Setup, provider: Provider) -> None:
    rounds(setup, provider, 2)
    provider.swapped = True
    record = rounds(setup, provider, 6)
    assert record.drifted(PROBING)
    config = setup.workspace.config
    assert record_revisions(config, [STEADY], date(2026, 1, 2)) == {"steady": "drift-2026-01-02"}
    changed = Revisions.read(config).of(setup.pool).worker("steady")
    assert changed.identity == STEADY.identity | {"revision": "drift-2026-01-02"}
    # Nothing is deleted, and the new worker begins with its own record and answers.
    assert ProbeRecord.read(setup.workspace, STEADY).drifted(PROBING)
    assert ProbeRecord.read(setup.workspace, changed).nights == ()
    kept = dict(provider.kept)
    precached(setup, provider, changed)
    assert not rounds(setup, provider, 3, changed).drifted(PROBING)
    assert all(provider.kept[key] is response for key, response in kept.items())


def test_unreachable_workers_give_no_evidence_of_drift(setup: Setup, provider: Provider) -> None:
    rounds(setup, provider, 1)
    provider.away = True
    record = rounds(setup, provider, 30)
    assert not record.drifted(PROBING)
    assert record.nights[-1].asked == 0


def test_an_interrupted_round_is_repeated_without_paying_twice(setup: Setup, provider: Provider) -> None:
    before = rounds(setup, provider, 1)
    again = tonight(setup, STEADY, before, PROBING).probes

    class Cut(Provider):
        left = 5

        async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0) -> Response:
            self.left -= 1
            if self.left < 0:
                raise ConfigError("pool", "key", "is missing", "Set it")
            return await provider.complete(worker, messages, sample=sample)

    with pytest.raises(ConfigError):
        rounds(setup, Cut(), 1)
    assert ProbeRecord.read(setup.workspace, STEADY) == before
    after = rounds(setup, provider, 1)
    assert set(provider.asked.values()) == {1}
    assert {key for key, uses in after.uses.items() if uses} == set(before.uses) | {problem.key for problem, _ in again}


def test_workers_without_precached_answers_are_not_probed(setup: Setup, provider: Provider) -> None:
    stranger = Worker(name="stranger", model="local/stranger")
    pool = Pool(name="probed", workers=(STEADY, stranger))
    probed = probe_workers(Setup(setup.workspace, setup.recipe, pool), provider, PROBING, NOW)
    assert [worker.name for worker, _ in probed] == ["steady"]
    with pytest.raises(DataError, match="holds no answers"):
        rounds(setup, provider, 1, stranger)


def test_answers_agree_by_what_was_read_from_them(setup: Setup) -> None:
    from dataclasses import replace

    from ops.core.rows import ResponseRow

    problem = generate("math500", "train", 1, 1)[0]
    one = ResponseRow("a", problem.benchmark, problem.id, 0, "ok", score=0.0, extracted="x  = 7")
    assert agree(problem, one, replace(one, extracted="X = 7", sample=3))
    assert not agree(problem, one, replace(one, extracted="x = 8"))
    assert not agree(problem, one, replace(one, score=1.0))
    assert not agree(problem, one, replace(one, status="refused"))
    code = generate("livecodebench", "train", 1, 1)[0]
    assert agree(code, one, replace(one, extracted="def g(): pass"))


def test_a_revision_is_part_of_every_pool_that_has_the_model_and_a_person_may_take_it_back(project: Workspace) -> None:
    before = load_pool(project.config, "quickstart")
    record_revisions(project.config, [before.worker("scholar")], date(2026, 3, 1))
    after = load_pool(project.config, "quickstart")
    assert after.worker("scholar").revision == "drift-2026-03-01"
    assert after.answers_key != before.answers_key
    assert after.worker("solver") == before.worker("solver")
    taken = Snapshot.take(project.config, "quickstart", None, "commit")
    assert taken.pool == after
    messages = solo_messages(generate("math500", "train", 1, 1)[0])
    keys = {cache_key(pool.worker("scholar").identity, messages, 0) for pool in (before, after)}
    assert len(keys) == 2
    (project.config / FILE).write_text("# none\n", encoding="utf-8")
    assert load_pool(project.config, "quickstart") == before
    (project.config / FILE).write_text("- no table\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"revisions\.yaml"):
        load_pool(project.config, "quickstart")


def test_a_record_that_cannot_be_read_says_what_to_do(setup: Setup, provider: Provider) -> None:
    rounds(setup, provider, 1)
    [file] = (setup.workspace.state / "probes").iterdir()
    assert json.loads(file.read_text(encoding="utf-8"))["worker"] == "steady"
    file.write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="Delete it"):
        ProbeRecord.read(setup.workspace, STEADY)
