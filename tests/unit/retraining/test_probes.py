"""Rounds of probes: paid once and kept separate; a swapped model's answers are excluded by a revision; the night's part
of the questions; and the drift test: its guarantee by enumeration, and whole years on a simulated clock."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import product
from pathlib import Path

import pytest

from ops.benchmarks.store import read_problems, write_problems
from ops.cache import cache_key
from ops.config import Pool, Probing, Setup, Snapshot, Worker, load_pool, load_recipe
from ops.config.pool import FILE, Revisions
from ops.core.errors import ConfigError, DataError, WorkerUnreachable
from ops.core.response import Message, Namespace, Response, Sample
from ops.core.rows import ResponseRow, response_file
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.precaching.precache import precache, solo_messages, write_responses
from ops.retraining.drift import YEAR, Detector, threshold
from ops.retraining.probes import ProbeRecord, agree, probe, probe_workers, tonight
from ops.retraining.revisions import record_revisions
from ops.retraining.slices import NightlyClient, questions_of
from ops.stages.problems import materialize_raw
from ops.synthetic.problems import generate
from tests.bench.drift import Provider as Simulated
from tests.bench.drift import rounds_until_alarm, simulate
from tests.builders import Answering

PROBING = Probing(reference=12, questions=4, false_alarms=0.2)
NOW = datetime(2026, 1, 2, 4, tzinfo=UTC)
CONFIG, NAMES = Workspace.find().config, ("math500", "rlpr")
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
        self.kept[key] = Response(text, Usage(10, 5), 0.0, 0.1, "stop")
        return self.kept[key]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    workspace = Workspace(tmp_path)
    problems = [problem for name in NAMES for problem in generate(name, "train", 10, 1)]
    write_problems(workspace.data / "shortlist.jsonl", problems)
    return Setup(workspace, load_recipe(CONFIG, "quickstart"), Pool(name="probed", workers=(STEADY,)))


@pytest.fixture
def provider(setup: Setup) -> Provider:
    made = Provider()
    precached(setup, made)
    made.asked.clear()
    return made


def precached(setup: Setup, provider: Provider, worker: Worker = STEADY) -> None:
    rows = asyncio.run(precache(read_problems(setup.workspace.data / "shortlist.jsonl"), worker, provider))
    for name in NAMES:
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
    assert after.worker("scholar").revision == "2+drift-2026-03-01", "after the one that the pool states"
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


# ── the night's part ─────────────────────────────────────────────────────────

ASK = [{"role": "user", "content": "?"}]


def test_every_night_has_answers_of_its_own_and_finds_them_again() -> None:
    client, nights = Answering("x"), (739_000, 739_001, 739_001)
    for night in nights:
        asyncio.run(NightlyClient(client, night).complete(STEADY, ASK, sample=Sample(0, 1)))
    assert [sample for *_, sample in client.asked] == [Sample(night, 1, Namespace.NIGHTS) for night in nights]


def test_a_night_evaluates_a_question_once() -> None:
    with pytest.raises(ValueError, match="each question once"):
        asyncio.run(NightlyClient(Answering("x"), 739_000).complete(STEADY, ASK, sample=1))


def test_the_questions_go_round_until_all_were_asked(tmp_path: Path) -> None:
    recipe = load_recipe(CONFIG, "quickstart")
    sources = {name: recipe.benchmarks[name].model_copy(update={"train": 4, "test": 5}) for name in ("math500", "mmlu")}
    recipe = recipe.model_copy(update={"benchmarks": sources})
    setup = Setup(Workspace(tmp_path), recipe, load_pool(CONFIG, "quickstart"))
    for name in sources:
        materialize_raw(setup, name)
    nights = [questions_of(setup, 2, night) for night in range(739_000, 739_005)]
    for name in sources:
        assert all(len(night[name]) == 2 for night in nights)
        asked = [question.key for night in nights for question in night[name]]
        assert len(set(asked)) == 5 and all(asked.count(key) == 2 for key in asked)
    assert all(len(own) == 5 for own in questions_of(setup, 20, 3).values())


# ── drift ────────────────────────────────────────────────────────────────────

HEALTHY = (Simulated("steady", 0.98), Simulated("noisy", 0.6), Simulated("often away", 0.6, outages=0.2))
SWAPPED = Simulated("swapped", 0.9, swapped_at=60, differs=0.25)


def coin(discordant: int) -> list[tuple[float, int, int]]:
    """Return (probability, losses, gains) of fair coins."""
    return [
        (math.comb(discordant, losses) / 2**discordant, losses, discordant - losses) for losses in range(discordant + 1)
    ]


@pytest.mark.parametrize("discordant", [0, 1, 3, 8])
def test_the_mean_evidence_of_an_unchanged_worker_grows_by_one_per_round(discordant: int) -> None:
    start = Detector().after(2, 1)
    after = sum(chance * start.after(losses, gains).evidence for chance, losses, gains in coin(discordant))
    assert after == pytest.approx(start.evidence + 1)


def test_the_chance_of_a_false_alarm_is_what_doobs_inequality_says() -> None:
    """All 4^5 results of five rounds with three fair coins, at a low threshold."""
    bar, rounds = 20.0, 5
    alarmed = 0.0
    for way in product(coin(3), repeat=rounds):
        detector, chance, over = Detector(), 1.0, False
        for each, losses, gains in way:
            detector, chance = detector.after(losses, gains), chance * each
            over = over or detector.evidence >= bar
        alarmed += chance * over
    assert 0 < alarmed <= rounds / bar


def test_the_threshold_is_a_years_rounds_over_the_chance() -> None:
    assert threshold(0.01) == YEAR / 0.01
    with pytest.raises(ValueError, match="between 0 and 1"):
        threshold(0.0)
    with pytest.raises(ValueError, match="losses"):
        Detector().after(-1, 0)


@pytest.mark.parametrize(("losses", "gains", "alarm"), [(6, 0, 3), (0, 6, None), (6, 6, None)])
def test_losses_raise_an_alarm_and_gains_never_do(losses: int, gains: int, alarm: int | None) -> None:
    assert rounds_until_alarm([(losses, gains)] * 1000, 0.01) == alarm


def test_a_long_unchanged_past_does_not_delay_the_alarm() -> None:
    """A test of the whole history would be delayed."""
    calm = [(3, 3)] * 1000
    late = rounds_until_alarm([*calm, *[(6, 1)] * 30], 0.01)
    assert late is not None and late - 1000 <= 6


@pytest.mark.parametrize("provider", HEALTHY, ids=lambda each: each.name)
def test_a_healthy_provider_is_left_alone_for_a_year(provider: Simulated) -> None:
    """200 years of it: at the stated 1 %, more than 8 false alarms would come once in four thousand such tests."""
    assert simulate(provider, Probing(), simulations=200).false_alarms <= 8 / 200


def test_a_swapped_model_is_found_within_the_stated_delay() -> None:
    """Other answers to a quarter of the questions: within 14 rounds in 95 % of 500 years."""
    found = simulate(SWAPPED, Probing(), rounds=120, simulations=500)
    assert found.false_alarms <= 0.01
    delay = found.delay(0.95)
    assert delay is not None and delay <= 14


def test_the_simulated_clock_is_one_clock() -> None:
    one, same = (simulate(SWAPPED, Probing(), rounds=90, simulations=20) for _ in range(2))
    assert one == same
