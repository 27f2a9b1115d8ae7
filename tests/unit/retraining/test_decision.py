"""What a pool change requires: when it counts as one, the plan of each kind of difference, when a champion is trained
further ("below the gate", "pays"), and the alerts on a champion that does not hold or cannot use a new worker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.alerts.notify import load_notices, load_open_alerts
from ops.config import Pool, PoolChange, Price, PromotionGate, Retraining, Snapshot, Worker
from ops.core.response_rows import ResponseRow
from ops.core.workspace import Workspace
from ops.release.promotion import GateCheck, GateDecision
from ops.results.outcome_rows import OutcomeRow
from ops.retraining.decision import (
    ORACLE,
    ZERO_SHOT,
    RetrainingEvidence,
    TrainingDecision,
    decide_training,
    estimate_oracle_rise,
)
from ops.retraining.retraining_plan import RetrainingPlan, plan_retraining
from ops.retraining.standing import alert_on_decision
from ops.workers.pool import compare_pools
from pipelines.retraining.sensor import DebounceState
from tests.releases import scored

A, B, C = (Worker(name=name, model=f"local/{name}") for name in "abc")
NEVER, BELOW, PAYS = "never", "if it falls below the gate", "if a newcomer pays"
EITHER = "if below or if a newcomer pays"
ZYX = tuple(Worker(name=name, model=f"local/{name}") for name in "zyx")


def pool(*workers: Worker) -> Pool:
    return Pool(name="test", workers=workers)


def other(**changes: Any) -> Worker:
    return B.model_copy(update=changes)


OLD = pool(A, B)
ADDED = "(precache, evaluate, fine-tune if it pays)"
GONE = "(evaluate, fine-tune if below the gate)"
CHANGED = "(precache, evaluate, fine-tune if below the gate)"


@pytest.mark.parametrize(
    ("new", "precache", "fine_tune", "words"),
    [
        (pool(A), (), BELOW, f"removed: b {GONE}"),
        (pool(A, B, C), ("c",), PAYS, f"new: c {ADDED}"),
        (pool(A, other(temperature=0.9)), ("b",), BELOW, f"changed: b {CHANGED}"),
        (pool(A, other(price=Price(input=1, output=1))), (), NEVER, "another price: b (costs)"),
        (pool(other(revision="2"), C), ("b", "c"), EITHER, f"new: c {ADDED}; changed: b {CHANGED}; removed: a {GONE}"),
        (pool(*ZYX), ("x", "y", "z"), EITHER, f"new: x, y, z {ADDED}; removed: a, b {GONE}"),
    ],
)
def test_the_least_that_suffices(new: Pool, precache: tuple[str, ...], fine_tune: str, words: str) -> None:
    needed = plan_retraining(compare_pools(OLD, new), has_descriptions=True)
    assert (needed.precache, needed.fine_tune, str(needed)) == (precache, fine_tune, words)
    assert (needed.evaluate, needed.costs) == (fine_tune != NEVER, fine_tune == NEVER)
    assert needed.costs == (OLD.answers_key == new.answers_key)


@pytest.mark.parametrize(
    "same",
    [pool(B, A), pool(A, other(concurrency=1, retries=0)), pool(A, other(tags=("code",)))],
    ids=["order", "limits", "tags"],
)
def test_order_limits_and_tags_require_nothing(same: Pool) -> None:
    needed = plan_retraining(compare_pools(OLD, same), has_descriptions=True)
    assert needed == RetrainingPlan() and needed.is_empty
    assert (OLD.answers_key, OLD.prices_key) == (same.answers_key, same.prices_key)


def test_a_champion_without_worker_descriptions_is_not_trained_for_a_new_worker() -> None:
    needed = plan_retraining(compare_pools(OLD, pool(A, B, C)), has_descriptions=False)
    assert (needed.precache, needed.evaluate, needed.fine_tune) == (("c",), True, NEVER)
    assert str(needed) == "new: c (precache, evaluate; not offered: the champion has no worker descriptions)"


# ── decision ─────────────────────────────────────────────────────────────────

GATE = PromotionGate(max_loss_against_champion=0.03)
SETTINGS = Retraining(min_oracle_rise=0.02)
REMOVED = RetrainingPlan(evaluate=True, fine_tune=BELOW)
NEW = RetrainingPlan(precache=("new",), evaluate=True, fine_tune=PAYS)
PRICE = RetrainingPlan(costs=True)
UNDESCRIBED = RetrainingPlan(precache=("new",), evaluate=True)
"""The plan of a new worker for a champion without worker descriptions."""
BENCHMARKS = ("math500", "mmlu")
COSTLY = "cost ratio to the champion"


def rows(share: float, cost_usd: float = 0.01) -> list[OutcomeRow]:
    """Return rows in which the first `share` of each benchmark's questions are correct."""
    return [replace(row, cost_usd=cost_usd) for row in scored(int(share * 200), BENCHMARKS, questions=200)]


def responses(worker: str, right: Sequence[int], samples: int = 2) -> list[ResponseRow]:
    return [
        ResponseRow(worker, name, str(i), sample, "ok", score=float(i in right))
        for name in BENCHMARKS
        for i in range(200)
        for sample in range(samples)
    ]


def evidence(now: float = 0.8, best: float = 0.4, cost_usd: float = 0.01, new: range | None = None) -> Any:
    """A champion that had 80 % right, and what a newcomer answers right where an old worker has the first 150."""
    known = [*responses("old", range(150)), *responses("new", new)] if new else []
    return RetrainingEvidence(rows(now, cost_usd), rows(0.8), rows(best), known)


HOLDS, NO_NEWCOMER = "the champion holds", "the champion holds, no newcomer pays"
USELESS, USEFUL = range(100), range(140, 180)
NOT_USED = f"the champion holds; new: {ORACLE}, and the champion has no worker descriptions to use it by"
CASES: dict[str, tuple[RetrainingPlan, dict[str, Any], bool, str, list[str]]] = {
    "passes on the remaining pool": (REMOVED, {}, False, HOLDS, []),
    "below the gate": (REMOVED, {"now": 0.6}, True, r"below the gate \(.*difference to the champion.*\)", []),
    "below the best worker": (REMOVED, {"best": 0.85}, True, r".*gain over the best single worker.*", []),
    "newcomer adds nothing": (NEW, {"new": USELESS}, False, NO_NEWCOMER, [ZERO_SHOT, ORACLE]),
    "oracle rises": (NEW, {"new": USEFUL}, True, f"new: {ORACLE}", [ZERO_SHOT, ORACLE]),
    "champion gains": (NEW, {"now": 0.9}, True, f"new: {ZERO_SHOT}", [ZERO_SHOT]),
    "newcomer pays and is not described": (UNDESCRIBED, {"new": USEFUL}, False, NOT_USED, [ORACLE]),
    "newcomer that is not described adds nothing": (UNDESCRIBED, {"new": USELESS}, False, NO_NEWCOMER, [ORACLE]),
    "failed the gate before": (NEW, {"best": 0.85}, False, r"below the gate as before the change .*", [ZERO_SHOT]),
    "removed and costlier": (REMOVED, {"cost_usd": 0.05}, False, HOLDS, []),
    "another price": (PRICE, {"cost_usd": 0.05}, False, rf"the champion exceeds .* \({COSTLY}: .*\)", []),
    "another price, below the gate": (PRICE, {"now": 0.5}, False, HOLDS, []),
}


@pytest.mark.parametrize(("plan", "found", "trains", "why", "pays"), CASES.values(), ids=CASES)
def test_a_champion_is_trained_below_the_gate_or_for_a_newcomer_that_pays(
    plan: RetrainingPlan, found: dict[str, Any], trains: bool, why: str, pays: list[str]
) -> None:
    made = decide_training(plan, evidence(**found), ("new",) if plan.precache else (), GATE, SETTINGS)
    assert (made.fine_tune, made.train_anew) == (trains, why == NOT_USED)
    assert re.fullmatch(why, made.why)
    assert [check.name for check in made.pays] == pays
    assert (COSTLY in [check.name for check in made.standing.failed]) == ("cost_usd" in found)
    assert TrainingDecision.from_dict(made.as_dict()) == made


def test_the_oracle_must_rise_by_more_than_the_margin() -> None:
    costlier = SETTINGS.model_copy(update={"min_oracle_rise": 0.2})
    assert not decide_training(NEW, evidence(new=USEFUL), ("new",), GATE, costlier).fine_tune


def test_the_oracle_rises_on_shared_problems_by_samples_that_every_worker_gave() -> None:
    known = [row for worker in ("old", "new") for row in responses(worker, range(150 if worker == "old" else 60))]
    alone = [ResponseRow("new", "mmlu", "alone", sample, "ok", score=1.0) for sample in (0, 1)]
    away = [ResponseRow(worker, "mmlu", "away", 0, "unreachable") for worker in ("old", "new")]
    third = [ResponseRow("new", "mmlu", str(i), 2, "ok", score=1.0) for i in range(150, 200)]
    plain = estimate_oracle_rise(known, {"new"}, {}, 0.95)
    assert plain is not None and plain.gain.mean == 0
    assert estimate_oracle_rise([*known, *away, *third], {"new"}, {}, 0.95) == plain
    with_one_alone = estimate_oracle_rise([*known, *alone], {"new"}, {}, 0.95)
    assert with_one_alone is not None and with_one_alone.gain == plain.gain
    assert estimate_oracle_rise(alone, {"new"}, {}, 0.95) is None


@pytest.mark.parametrize("samples", [1, 2])
def test_a_newcomer_that_is_the_same_as_an_old_worker_hardly_ever_pays(samples: int) -> None:
    """Two workers with the same chance of 60 % on every problem: somebody is right on 84 %, by luck alone."""
    rng, times, paid = np.random.default_rng(samples), 40, 0
    for _ in range(times):
        known = [*responses("old", (), samples), *responses("new", (), samples)]
        known = [replace(row, score=float(rng.random() < 0.6)) for row in known]
        found = replace(evidence(), responses=known)
        [_, check] = decide_training(NEW, found, ("new",), GATE, SETTINGS).pays
        assert check.name == ORACLE
        paid += check.passed
    assert paid <= 2


def test_one_sample_finds_a_newcomer_that_is_better_on_a_subject_and_says_what_it_cannot_find() -> None:
    known = [*responses("old", range(150), 1), *responses("new", USEFUL, 1)]
    subjects = {f"{name}/{i}": "hard" if i >= 150 else "easy" for name in BENCHMARKS for i in range(200)}
    [_, blind] = decide_training(NEW, replace(evidence(), responses=known), ("new",), GATE, SETTINGS).pays
    [_, seeing] = decide_training(
        NEW, replace(evidence(), responses=known, subjects=subjects), ("new",), GATE, SETTINGS
    ).pays
    assert not blind.passed and "precaching.samples: 2 would" in blind.explanation
    assert seeing.passed


# ── alerts ───────────────────────────────────────────────────────────────────

WORSE = GateCheck("difference to the champion", -0.09, -0.02, False, "mean -0.05")
COSTLIER = GateCheck("cost ratio to the champion", 2.1, 1.5, False, "0.2 against 0.1 USD", "cost")
PAYING = GateCheck(ORACLE, 0.07, 0.02, True, "mean +0.08")
STANDS = GateDecision(True, ())


def standing(*failed: GateCheck) -> GateDecision:
    return GateDecision(False, failed) if failed else STANDS


@pytest.mark.parametrize(
    ("made", "commands"),
    [
        (TrainingDecision(False, "the champion holds", STANDS), []),
        (TrainingDecision(True, "below the gate", standing(WORSE)), [""]),
        (TrainingDecision(False, "costlier", standing(COSTLIER)), [""]),
        (TrainingDecision(False, "pays", STANDS, (PAYING,), train_anew=True), ["podium run quickstart --seed 1"]),
        (
            TrainingDecision(False, "both", standing(COSTLIER), (PAYING,), train_anew=True),
            ["podium run quickstart --seed 1"],
        ),
        (
            TrainingDecision(True, "below; pays", standing(WORSE), (PAYING,), train_anew=True),
            ["", "podium run quickstart --seed 1"],
        ),
    ],
    ids=["holds", "below", "costlier", "pays", "costlier and pays", "below and pays"],
)
def test_each_state_is_an_alert_once(tmp_path: Path, made: TrainingDecision, commands: list[str]) -> None:
    asked = Snapshot.capture(Workspace.find().config, "quickstart", None, "")
    asked = asked.model_copy(update={"change": PoolChange(version="3", policy="p", before=asked.pool)})
    workspace = Workspace(tmp_path)
    for _ in range(3):
        alert_on_decision(workspace, asked, made)
    notices = [entry.notice for entry in reversed(load_notices(workspace, 9))]
    assert [notice.command for notice in notices] == commands
    assert {notice.kind for notice in notices} <= {"decision"}
    if made.standing.failed:
        [failed] = made.standing.failed
        assert made.train_anew or ("version 3" in notices[0].title and failed.name in notices[0].title)
        assert f"bound {failed.bound:.4g}" in notices[0].text
    other = asked.model_copy(update={"change": PoolChange(version="4", policy="q", before=asked.pool)})
    alert_on_decision(workspace, other, made)
    assert len(load_notices(workspace, 9)) == 2 * len(commands), "another change is another occasion"
    open_now = [entry.notice for entry in load_open_alerts(workspace)]
    assert [notice.command for notice in reversed(open_now)] == [name for name in commands if name]
    alert_on_decision(workspace, asked, TrainingDecision(False, "the champion holds", STANDS))
    assert not load_open_alerts(workspace), "a champion that holds solves the alerts that it did not"


# ── debouncing ───────────────────────────────────────────────────────────────

SETTLE_S = 60.0


def test_ten_edits_in_a_minute_are_one_change() -> None:
    seen, acted = DebounceState(), []
    for second in range(0, 200, 6):
        seen = seen.observe(f"edit {min(second // 6, 10)}", second)
        if not seen.remaining_wait_s(SETTLE_S, second):
            acted.append(second)
    assert acted[0] == 120  # the last edit is seen at 60
    assert {seen.read} == {"edit 10"}


def test_an_undone_edit_restarts_the_wait() -> None:
    seen = DebounceState().observe("a", 0).observe("b", 50).observe("a", 55)
    assert seen.remaining_wait_s(SETTLE_S, 70) == 45


def test_a_clock_that_goes_back_restarts_the_wait() -> None:
    seen = DebounceState().observe("a", 1000).observe("a", 10)
    assert seen.remaining_wait_s(SETTLE_S, 10) == SETTLE_S
    assert seen.observe("a", 70).remaining_wait_s(SETTLE_S, 70) == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 40)), min_size=1))
def test_it_settles_only_after_reading_the_same_for_so_long(reads: list[tuple[str, float]]) -> None:
    seen, now, since = DebounceState(), 0.0, 0.0
    before = ""
    for read, pause in reads:
        now += pause
        since = since if read == before else now
        before, seen = read, seen.observe(read, now)
        assert (seen.remaining_wait_s(SETTLE_S, now) == 0) == (now - since >= SETTLE_S)
