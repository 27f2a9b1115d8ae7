"""The gate's comparison of cost and latency when a system writes invalid workflows: a champion's failures do not
protect it, and a challenger's failures do not make it look cheap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ops.config import PromotionGate
from ops.release.dossier import Dossier, Opponent, compare_by_benchmark
from ops.release.promotion import GateDecision, decide_promotion
from ops.reports.decision_page import VersionStatus, render_decision_page
from ops.results.outcome_rows import OutcomeRow
from tests.builders import make_outcome

GATE = PromotionGate(max_loss_against_champion=0.03)
COST, LATENCY = "cost ratio to the champion", "latency ratio to the champion"
SHARED, COMPARED = "workflows where the champion wrote one", "questions to compare cost and latency on"
QUESTIONS = range(100)
Rule = Callable[[int], bool]


def never(_: int) -> bool:
    return False


def rows(
    right: Rule, *, invalid: Rule = never, usd: Callable[[int], float] = lambda _: 0.01, seconds: float = 1.0
) -> list[OutcomeRow]:
    """Return a system's rows on two benchmarks. An invalid workflow is wrong, costs nothing and takes no time."""
    made = []
    for benchmark in ("math500", "mmlu"):
        for i in QUESTIONS:
            row = make_outcome(benchmark, i, correct=int(right(i)), cost_usd=usd(i), latency_s=seconds)
            failed = replace(row, correct=0, format_ok=False, cost_usd=0.0, latency_s=0.0, usage=())
            made.append(failed if invalid(i) else row)
    return made


WORKER = rows(lambda i: i < 20)


def judge(challenger: Sequence[OutcomeRow], champion: Sequence[OutcomeRow], **changes: object) -> GateDecision:
    return decide_promotion(challenger, champion, WORKER, GATE.model_copy(update=changes))


def failed(verdict: GateDecision) -> list[str]:
    return [check.name for check in verdict.failed]


def value(verdict: GateDecision, name: str) -> float:
    return next(check.value for check in verdict.checks if check.name == name)


def test_a_champion_that_fails_often_is_not_protected_by_its_failures() -> None:
    # It writes a valid workflow for 60 % of the questions. With its failures at 0 USD and 0 s, it would seem to cost
    # 0.006 USD and 0.6 s a question, and a challenger at the same true cost would be refused at a ratio of 1.67.
    champion = rows(lambda i: i < 40, invalid=lambda i: i % 5 >= 3)
    verdict = judge(rows(lambda i: i < 80), champion)
    assert verdict.promote, failed(verdict)
    assert (value(verdict, COST), value(verdict, LATENCY)) == (pytest.approx(1), pytest.approx(1))
    assert value(verdict, "questions shared with the champion") == value(verdict, SHARED) == 1
    [said] = [check.explanation for check in verdict.checks if check.name == COST]
    assert said.endswith("on the 120 of 200 questions for which both wrote a valid workflow")


@pytest.mark.parametrize(
    ("changes", "fails"), [({"usd": lambda _: 0.016}, [COST]), ({"seconds": 1.6}, [LATENCY])], ids=["costly", "slow"]
)
def test_a_costly_or_slow_challenger_does_not_replace_a_failing_champion(
    changes: dict[str, object], fails: list[str]
) -> None:
    champion = rows(lambda i: i < 40, invalid=lambda i: i % 5 >= 3)
    assert failed(judge(rows(lambda i: i < 80, **changes), champion)) == fails  # type: ignore[arg-type]


def test_a_challenger_that_fails_on_the_expensive_questions_does_not_look_cheap() -> None:
    # Each of its valid workflows costs 1.6 times the champion's, and it fails on the 4 % that cost ten times as much.
    def champion_usd(i: int) -> float:
        return 0.1 if i >= 96 else 0.01

    champion = rows(lambda i: i < 80, usd=champion_usd)
    challenger = rows(lambda i: i < 80, invalid=lambda i: i >= 96, usd=lambda i: 1.6 * champion_usd(i))
    as_if_free = [sum(row.cost_usd for row in side) for side in (challenger, champion)]
    assert as_if_free[0] / as_if_free[1] < GATE.max_cost_ratio, "with failures at 0 USD it would pass"
    verdict = judge(challenger, champion)
    assert failed(verdict) == [COST]
    assert value(verdict, COST) == pytest.approx(1.6)


def test_a_challengers_invalid_workflows_where_the_champion_has_one_are_bounded() -> None:
    # Half of the champion's workflows are invalid. The challenger is valid on 96 %, and all of its failures are on
    # questions for which the champion wrote a workflow: 8 % of these.
    champion = rows(lambda i: i < 30, invalid=lambda i: i % 2 == 1)
    challenger = rows(lambda i: 10 <= i < 80, invalid=lambda i: i in (90, 92, 94, 96))
    verdict = judge(challenger, champion)
    assert failed(verdict) == [SHARED]
    assert value(verdict, SHARED) == pytest.approx(0.92)
    assert value(verdict, "format compliance") == pytest.approx(0.96)


@pytest.mark.parametrize(
    ("bounds", "usd", "fails"),
    [
        ({}, 0.01, [COMPARED]),
        ({"max_question_usd": 0.02}, 0.01, [COMPARED]),
        ({"max_question_usd": 0.02, "max_question_s": 2.0}, 0.01, []),
        ({"max_question_usd": 0.02, "max_question_s": 2.0}, 0.03, ["USD a question"]),
        ({"max_question_usd": 0.02, "max_question_s": 0.5}, 0.01, ["seconds a question"]),
    ],
)
def test_with_too_few_common_workflows_the_own_bounds_decide(
    bounds: dict[str, float], usd: float, fails: list[str]
) -> None:
    champion = rows(lambda i: i < 20, invalid=lambda i: i >= 20)  # 40 questions have a workflow of both
    verdict = judge(rows(lambda i: i < 80, usd=lambda _: usd), champion, **bounds)
    assert failed(verdict) == fails
    assert COST not in {check.name for check in verdict.checks}
    [said] = [check.explanation for check in verdict.checks if check.name == COMPARED]
    assert said.startswith("the 40 of 200 questions for which both wrote a valid workflow, which are too few; ")
    assert ("promotion.yaml does not set max_question_" in said) == (COMPARED in fails)
    assert {check.subject for check in verdict.failed} <= {"cost"}


def test_a_small_evaluation_needs_fewer_common_workflows() -> None:
    def small(right: Rule, invalid: Rule = never) -> list[OutcomeRow]:
        return [row for row in rows(right, invalid=invalid) if int(row.problem_id) < 10]

    worker, gate = small(never), PromotionGate(max_loss_against_champion=0.3, max_benchmark_loss=0.3)
    champions = small(lambda _: True, lambda i: i < 1), small(lambda _: True, lambda i: i < 2)
    verdicts = [decide_promotion(small(lambda _: True), champion, worker, gate) for champion in champions]
    assert [COMPARED in failed(verdict) for verdict in verdicts] == [False, True]


def test_a_set_bound_holds_for_every_challenger() -> None:
    # A challenger may spend most where only it writes a workflow, which no comparison with the champion shows.
    champion = rows(lambda i: i < 40, invalid=lambda i: i % 2 == 1)
    challenger = rows(lambda i: i < 80, usd=lambda i: 0.5 if i % 2 else 0.01)
    assert failed(judge(challenger, champion)) == []
    assert failed(judge(challenger, champion, max_question_usd=0.05)) == ["USD a question"]
    assert failed(decide_promotion(challenger, None, WORKER, PromotionGate(max_question_usd=0.05))) == [
        "USD a question"
    ]


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.floats(1e-4, 1.0), st.floats(1e-4, 1.0)), min_size=60, max_size=100
    )
)
@example([(True, True, 0.016, 0.01)] * 96 + [(False, True, 1.0, 0.1)] * 4)
def test_leaving_out_its_own_failures_never_promotes_a_challenger(
    questions: list[tuple[bool, bool, float, float]],
) -> None:
    """Each question: whether the challenger's and the champion's workflow is valid, and what each costs then."""

    def at(i: int) -> tuple[bool, bool, float, float]:
        return questions[i % len(questions)]

    ours = rows(lambda _: True, invalid=lambda i: not at(i)[0], usd=lambda i: at(i)[2])
    theirs = rows(lambda _: True, invalid=lambda i: not at(i)[1], usd=lambda i: at(i)[3])
    verdict = decide_promotion(
        ours, theirs, WORKER, GATE.model_copy(update={"min_format_compliance": 0.0, "min_shared_workflows": 0.0})
    )
    every = [at(i) for i in QUESTIONS]
    both = [each for each in every if each[0] and each[1]]
    assert (COMPARED in failed(verdict)) == (2 * len(both) < GATE.min_cost_questions)
    if COMPARED in failed(verdict):
        return
    ratio = sum(each[2] for each in both) / sum(each[3] for each in both)
    assert value(verdict, COST) == pytest.approx(ratio)
    counted_as_free = sum(each[2] for each in both) / sum(each[3] for each in every if each[1])
    assert ratio >= counted_as_free - 1e-12, "a failure that costs nothing would only lower the ratio"
    assert value(verdict, "questions shared with the champion") == 1, "no failure changes the share of paired questions"


def simulate(rng: np.random.Generator, cost: float, seconds: float, fails: float) -> bool:
    """Judge a better challenger of a champion that fails on 40 % of the questions; `cost` is the ratio of their costs,
    `fails` the probability that a workflow of the challenger is invalid."""
    usd = rng.lognormal(-4.6, 1.0, len(QUESTIONS))
    noise, chance = rng.lognormal(0, 0.1, len(QUESTIONS)), rng.random((4, len(QUESTIONS)))
    champion = rows(lambda i: chance[0, i] < 0.6, invalid=lambda i: chance[1, i] < 0.4, usd=lambda i: float(usd[i]))
    challenger = rows(
        lambda i: chance[0, i] < 0.6 or chance[2, i] < 0.8, invalid=lambda i: chance[3, i] < fails,
        usd=lambda i: float(usd[i] * cost * noise[i]), seconds=seconds,
    )  # fmt: skip
    return judge(challenger, champion).promote


@pytest.mark.parametrize(
    ("cost", "seconds", "fails", "promoted"),
    [(1.0, 1.0, 0.0, True), (1.8, 1.0, 0.0, False), (1.0, 1.8, 0.0, False), (1.0, 1.0, 0.15, False)],
    ids=["as cheap", "costly", "slow", "fails often"],
)
def test_simulated_challengers_of_a_failing_champion(cost: float, seconds: float, fails: float, promoted: bool) -> None:
    rng = np.random.default_rng(53)
    assert {simulate(rng, cost, seconds, fails) for _ in range(10)} == {promoted}


def test_the_page_says_on_how_many_questions_cost_is_compared_and_the_share_of_invalid_workflows() -> None:
    champion = rows(lambda i: i < 40, invalid=lambda i: i % 5 >= 3)
    challenger = rows(lambda i: i < 80, invalid=lambda i: i == 99)
    mean = compare_by_benchmark(challenger, champion, 0.975)[0]
    assert (mean.questions, mean.cost_questions) == (200, 120)
    assert (mean.values["usd"], mean.values["their_usd"]) == (pytest.approx(0.01), pytest.approx(0.01))
    assert (mean.invalid, mean.their_invalid) == (pytest.approx(0.01), pytest.approx(0.4))
    nothing = compare_by_benchmark(challenger, rows(never, invalid=lambda _: True), 0.975)[0]
    assert nothing.cost_questions == 0 and math.isnan(nothing.values["usd"])

    def page(*pairings: object) -> str:
        opponent = Opponent("champion, version 1", {}, pairings)  # type: ignore[arg-type]
        dossier = Dossier("2", "now", {}, {}, {}, 0.975, (opponent,), "Version 2 reaches 64.7 %.")
        return render_decision_page("2", judge(challenger, champion), dossier, VersionStatus("promoted"))

    shown = page(mean)
    assert "for which both wrote a valid workflow" in shown and "Version 2 reaches 64.7 %." in shown
    assert "an invalid workflow counts as 0" in page(replace(mean, cost_questions=None)), "an earlier version's page"
