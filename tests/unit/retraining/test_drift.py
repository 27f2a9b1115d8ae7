"""Stored questions asked again: paid once and kept separate; a swapped model's answers are excluded by a revision, with
one alert; the questions of a day; and the test: its error probability and its power on a simulated clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from ops.alerts.notify import load_notices
from ops.benchmarks.problem_files import read_problems, write_problems
from ops.config import Drift, Pool, Setup, Snapshot, Worker, load_pool, load_recipe
from ops.config.pool import REVISIONS_FILE, Revisions
from ops.core.errors import ConfigError, DataError, WorkerUnreachable
from ops.core.messages import Message, Namespace, Sample
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import response_file
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.precaching.precache import build_solo_messages, precache_worker, write_responses
from ops.precaching.stored_profiles import responses_key
from ops.results.statistics import is_difference, score_interval
from ops.retraining.drift import (
    WINDOW_PAIRS,
    AnswerPair,
    DayClient,
    DriftRecord,
    StoredSystem,
    ask_workers_again,
    list_stored_workers,
    sample_of_day,
)
from ops.retraining.revisions import act_on_drift, record_revisions
from ops.store import cache_key
from ops.synthetic.problems import generate_problems
from tests.bench.drift import Provider as Simulated
from tests.bench.drift import simulate
from tests.builders import Answering

DRIFT = Drift(questions=12, false_alarms=0.2)
FIRST = date(2026, 1, 2)
CONFIG, NAMES = Workspace.find().config, ("math500", "mmlu")
STEADY = Worker(name="steady", model="local/steady")


class Provider:
    """A provider in this process that is always right, and always wrong from `swapped` on; it counts its calls."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.answers = {cache_key({}, build_solo_messages(problem), 0): problem.answer for problem in problems}
        self.swapped, self.away, self.left = False, False, 1_000_000
        self.asked: Counter[tuple[str, int | Sample]] = Counter()
        self.kept: dict[tuple[str, int | Sample], Response] = {}

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        key = cache_key(worker.identity, messages, 0), sample
        if key in self.kept:
            return self.kept[key]
        if self.away:
            raise WorkerUnreachable("away")
        self.left -= 1
        if self.left < 0:
            raise ConfigError("pool", "key", "is missing", "Set it")
        self.asked[key] += 1
        answer = "nothing" if self.swapped else self.answers[cache_key({}, messages, 0)]
        self.kept[key] = Response(rf"The answer is \boxed{{{answer}}}.", Usage(10, 5), 0.0, 0.1, "stop")
        return self.kept[key]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    workspace = Workspace(tmp_path)
    problems = [problem for name in NAMES for problem in generate_problems(name, "train", 20, 1)]
    write_problems(workspace.data / "shortlist.jsonl", problems)
    return Setup(workspace, load_recipe(CONFIG, "quickstart"), Pool(name="asked", workers=(STEADY,)))


@pytest.fixture
def provider(setup: Setup) -> Provider:
    made = Provider(read_problems(setup.workspace.data / "shortlist.jsonl"))
    precached(setup, made)
    made.asked.clear()
    return made


def precached(setup: Setup, provider: Provider, worker: Worker = STEADY) -> None:
    problems = read_problems(setup.workspace.data / "shortlist.jsonl")
    rows = asyncio.run(precache_worker(problems, worker, provider))
    for name in NAMES:
        questions = [problem for problem in problems if problem.benchmark == name]
        file = response_file(setup.workspace.data / "responses", worker.name, name)
        write_responses([row for row in rows if row.benchmark == name], file, responses_key(worker, questions, 1))


def nights(setup: Setup, provider: Provider, first: int, count: int) -> DriftRecord:
    for number in range(first, first + count):
        [record] = ask_workers_again(setup, provider, DRIFT, FIRST + timedelta(number))
    return record


def test_a_night_asks_each_of_its_questions_once_and_again_costs_nothing(setup: Setup, provider: Provider) -> None:
    first = nights(setup, provider, 0, 1)
    assert nights(setup, provider, 0, 1) == first
    assert (sum(provider.asked.values()), first.rounds, len(first.pairs)) == (12, 1, 12)
    assert {Sample.of(sample) for _, sample in provider.asked} == {sample_of_day(FIRST)}
    second = nights(setup, provider, 1, 1)
    assert (sum(provider.asked.values()), second.rounds, len(second.pairs)) == (24, 2, 24)


def test_questions_take_turns_over_the_benchmarks(setup: Setup, provider: Provider) -> None:
    record = nights(setup, provider, 0, 4)
    asked = Counter(pair.question for pair in record.pairs)
    assert len(asked) == 40 and sorted(asked.values()) == [1] * 32 + [2] * 8
    night = Counter(pair.question.partition("/")[0] for pair in record.pairs if pair.on == FIRST)
    assert night == {"math500": 6, "mmlu": 6}


def test_an_unchanged_worker_is_not_reported(setup: Setup, provider: Provider) -> None:
    record = nights(setup, provider, 0, 6)
    assert not record.is_changed(DRIFT.false_alarms) and record.accuracies() == (1.0, 1.0)
    assert act_on_drift(setup, [record], DRIFT, FIRST) == {} and load_notices(setup.workspace, 9) == []


def test_a_swapped_model_is_one_alert_its_answers_are_excluded_and_a_second_alert_says_when_it_is_solved(
    setup: Setup, provider: Provider
) -> None:
    nights(setup, provider, 0, 2)
    provider.swapped = True
    record, on = nights(setup, provider, 2, 2), FIRST + timedelta(3)
    assert record.is_changed(DRIFT.false_alarms)
    workspace = setup.workspace
    assert act_on_drift(setup, [record], DRIFT, on) == {"steady": "drift-2026-01-05"}
    [alert] = load_notices(workspace, 9)
    assert (alert.notice.kind, alert.notice.title) == ("drift", "steady drifted")
    assert "100.0 % right when stored" in alert.notice.text and "steady: new revision drift-" in alert.notice.text
    changed = Revisions.read(workspace.config).apply_to(setup.pool)
    assert changed.worker("steady").identity == STEADY.identity | {"revision": "drift-2026-01-05"}
    # The stored answers are of the old revision: there is nothing to compare with, and nothing is solved.
    later = Setup(workspace, setup.recipe, changed)
    assert list_stored_workers(later) == [] and act_on_drift(later, [], DRIFT, on) == {}
    assert len(load_notices(workspace, 9)) == 1
    answers = dict(provider.kept)
    precached(later, provider, changed.worker("steady"))
    record = nights(later, provider, 4, 3)
    assert not record.is_changed(DRIFT.false_alarms) and record.rounds == 3
    act_on_drift(later, [record], DRIFT, on)
    assert [entry.notice.title for entry in load_notices(workspace, 9)] == [
        "steady no longer drifted",
        "steady drifted",
    ]
    assert all(provider.kept[key] is response for key, response in answers.items()), "nothing is deleted"


def test_a_champion_that_drifted_is_reported_once_and_until_another_takes_its_place(setup: Setup) -> None:
    def champion(version: str, right: float) -> DriftRecord:
        questions = tuple(read_problems(setup.workspace.data / "shortlist.jsonl"))
        before = {problem.key: 1.0 for problem in questions}
        system = StoredSystem(f"champion {version}", version, questions, before)
        return system.record_round(setup.workspace, dict.fromkeys(before, right), FIRST)

    for _ in range(2):
        assert act_on_drift(setup, [champion("1", 0.0)], DRIFT, FIRST) == {}, "a champion has no revision"
    assert [entry.notice.title for entry in load_notices(setup.workspace, 9)] == ["champion 1 drifted"]
    act_on_drift(setup, [champion("2", 1.0)], DRIFT, FIRST)
    assert load_notices(setup.workspace, 1)[0].notice.title == "champion 1 no longer drifted"


def test_unreachable_workers_give_no_evidence_of_drift(setup: Setup, provider: Provider) -> None:
    nights(setup, provider, 0, 1)
    provider.away = True
    record = nights(setup, provider, 1, 30)
    assert not record.is_changed(DRIFT.false_alarms)
    assert len(record.pairs) == 12


def test_an_interrupted_night_is_repeated_without_paying_twice(setup: Setup, provider: Provider) -> None:
    before = nights(setup, provider, 0, 1)
    [system] = list_stored_workers(setup)
    provider.left = 5
    with pytest.raises(ConfigError):
        nights(setup, provider, 1, 1)
    assert system.load_record(setup.workspace) == before
    provider.left = 1_000_000
    nights(setup, provider, 1, 1)
    assert set(provider.asked.values()) == {1} and sum(provider.asked.values()) == 24


def test_workers_without_stored_answers_are_not_asked(setup: Setup, provider: Provider) -> None:
    stranger = Worker(name="stranger", model="local/stranger")
    pool = Pool(name="asked", workers=(STEADY, stranger))
    records = ask_workers_again(Setup(setup.workspace, setup.recipe, pool), provider, DRIFT, FIRST)
    assert [record.system for record in records] == ["steady"]


def test_a_revision_is_part_of_every_pool_that_has_the_model_and_a_person_may_take_it_back(project: Workspace) -> None:
    before = load_pool(project.config, "quickstart")
    record_revisions(project.config, [before.worker("scholar")], date(2026, 3, 1))
    after = load_pool(project.config, "quickstart")
    assert after.worker("scholar").revision == "2+drift-2026-03-01", "after the one that the pool states"
    assert after.answers_key != before.answers_key
    assert after.worker("solver") == before.worker("solver")
    taken = Snapshot.capture(project.config, "quickstart", None, "commit")
    assert taken.pool == after
    messages = build_solo_messages(generate_problems("math500", "train", 1, 1)[0])
    keys = {cache_key(pool.worker("scholar").identity, messages, 0) for pool in (before, after)}
    assert len(keys) == 2
    (project.config / REVISIONS_FILE).write_text("# none\n", encoding="utf-8")
    assert load_pool(project.config, "quickstart") == before
    (project.config / REVISIONS_FILE).write_text("- no table\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"revisions\.yaml"):
        load_pool(project.config, "quickstart")


def test_a_record_that_cannot_be_read_says_what_to_do(setup: Setup, provider: Provider) -> None:
    nights(setup, provider, 0, 1)
    [file] = (setup.workspace.state / "drift").iterdir()
    file.write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="Delete it"):
        nights(setup, provider, 1, 1)


# ── a day's answers ──────────────────────────────────────────────────────────

ASK = [{"role": "user", "content": "?"}]


def test_every_day_has_answers_of_its_own_and_finds_them_again() -> None:
    client, days = Answering("x"), (FIRST, FIRST + timedelta(1), FIRST + timedelta(1))
    for day in days:
        asyncio.run(DayClient(client, day).complete(STEADY, ASK, sample=Sample(0, 1)))
    assert [sample for *_, sample in client.asked] == [Sample(day.toordinal(), 1, Namespace.REPEATED) for day in days]


def test_a_day_asks_a_question_once() -> None:
    with pytest.raises(ValueError, match="each question once"):
        asyncio.run(DayClient(Answering("x"), FIRST).complete(STEADY, ASK, sample=1))


# ── the test ─────────────────────────────────────────────────────────────────

SWAPPED = Simulated("swapped", 0.9, swapped_at=30, lost=0.2, gained=0.05)


@pytest.mark.long
def test_a_healthy_provider_is_left_alone_for_a_year() -> None:
    """Ten years of a noisy one: at the stated 1 %, two false alarms would come once in two hundred such tests."""
    assert simulate(Simulated("noisy", 0.6), Drift(), simulations=10).false_alarms < 2 / 10


def test_a_swapped_model_is_found_within_the_stated_delay() -> None:
    """One that is 15 points worse: within 20 nights in 95 % of simulations."""
    found = simulate(SWAPPED, Drift(), rounds=60, simulations=40)
    delay = found.delay(0.95)
    assert delay is not None and delay <= 20


def test_a_model_that_is_right_as_often_is_not_found() -> None:
    as_accurate = Simulated("swapped", 0.9, swapped_at=10, lost=0.1, gained=0.1)
    assert simulate(as_accurate, Drift(), rounds=60, simulations=10).found == 0


def test_the_simulated_clock_is_one_clock() -> None:
    one, same = (simulate(SWAPPED, Drift(), rounds=50, simulations=5) for _ in range(2))
    assert one == same


def test_a_record_keeps_the_newest_pairs_and_an_improvement_is_a_change_too() -> None:
    record = DriftRecord(system="a", identity="")
    for number in range(30):
        on = FIRST + timedelta(number)
        pairs = [AnswerPair(question=f"m/{number}-{place}", on=on, before=0, now=number >= 25) for place in range(40)]
        record = record.add_round(pairs, on)
    assert (record.rounds, len(record.pairs)) == (30, WINDOW_PAIRS)
    assert record.pairs[0].on == FIRST + timedelta(30 - WINDOW_PAIRS // 40) and record.is_changed(0.01)
    difference = record.estimate_difference(0.01)
    assert difference is not None and difference.low > 0


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.9999])
def test_a_difference_is_what_the_interval_of_the_gate_excludes(confidence: float) -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for case in range(200):
        shift = rng.uniform(-0.5, 0.5)
        sizes = rng.integers(2, 60, rng.integers(1, 4))
        strata = [rng.choice([-1.0, -0.5, 0.0, 0.0, 1.0], size=size) for size in sizes]
        strata = [np.where(rng.random(each.size) < abs(shift), np.sign(shift), each) for each in strata]
        ends = score_interval(strata, confidence=confidence)
        if min(abs(ends.low), abs(ends.high)) > 1e-6:
            assert is_difference(strata, confidence=confidence) == (ends.low > 0 or ends.high < 0), case
            seen.add(ends.low > 0 or ends.high < 0)
    assert seen == {True, False}
