"""Each exhibit on evidence with known numbers; the frontier of systems and what mixtures of them reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.core.charts import DotPlot, LineChart, ScatterPlot, StackedBars
from ops.evaluation.study import STUDIES
from ops.reports.claims import FAILS, HOLDS, test_claims
from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import EXHIBITS, Exhibit, ExhibitContent, MadeExhibit, Table, exhibit, make_exhibits
from ops.reports.prices import compute_mixture_accuracy
from ops.results.statistics import PricedAccuracy, find_frontier
from tests.unit.reports.conftest import N, first, rows, system


def tables(shown: ExhibitContent) -> list[Table]:
    return [part for part in shown.parts if isinstance(part, Table)]


def cells(table: Table) -> dict[str, dict[str, object]]:
    """Return first cell → heading → cell."""
    return {str(row[0]): dict(zip(table.head, row, strict=True)) for row in table.rows}


def without_breaks(cell: object) -> str:
    return str(cell).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("name", EXHIBITS)
def test_every_exhibit_is_whole(name: str, made: list[MadeExhibit]) -> None:
    assert EXHIBITS[name].description.endswith(".")
    (shown,) = (each.content for each in made if each.exhibit.name == name)
    assert isinstance(shown, ExhibitContent)
    assert shown.sample_description
    assert shown.parts
    for part in shown.parts:
        if isinstance(part, Table):
            assert len(set(part.head)) == len(part.head)
            assert part.rows
            assert all(len(row) == len(part.head) for row in part.rows)
        else:
            assert part.x_label
            assert part.y_label
        if isinstance(part, StackedBars):
            assert [sum(shares) for shares in zip(*part.layers.values(), strict=True)] == pytest.approx(
                [100.0] * len(part.categories)
            )


def test_accuracies_stand_with_their_errors_and_the_papers_in_columns_of_their_own(evidence: Evidence) -> None:
    systems, ends, beside = tables(EXHIBITS["accuracy"].make_content(evidence))
    shown = cells(systems)
    assert without_breaks(shown["Conductor"]["math500"]) == "80.0 ± 4.0"
    assert without_breaks(shown["worker solver (best by the mix)"]["in-domain mean"]) == "50.0 ± 3.6"
    assert without_breaks(shown["random worker"]["out-of-distribution mean"]).startswith("35.0 ± ")
    assert without_breaks(cells(ends)["Conductor"]["math500"]) == "71.1 … 86.7"
    assert (systems.highlighted, ends.highlighted, ends.head) == ([0], [0], systems.head)
    theirs = "paper, its own setting: constrained, %"
    assert (cells(beside)["mmlu"][theirs], cells(beside)["mmlu"]["questions"]) == ("93.14 ± 0.36", 100)
    as_paper = replace(evidence, run=evidence.run._replace(is_synthetic=False, has_paper_setting=True))
    assert "paper: constrained, %" in tables(EXHIBITS["accuracy"].make_content(as_paper))[2].head


def test_the_cost_of_one_question(evidence: Evidence) -> None:
    (table,) = tables(EXHIBITS["in_domain"].make_content(evidence))
    assert [row[0] for row in table.rows][:2] == ["5 × context", "Conductor"]
    ours = cells(table)["Conductor"]
    assert (ours["tokens"], ours["calls"], ours["USD"], ours["latency, s"]) == ("20", "2.00", "$2.00", "1.50")
    assert ours["paper, its own setting: tokens"] == "1,820"
    assert cells(table)["5 × context"]["paper, its own setting: accuracy, %"] == "67.60"
    assert cells(table)["worker solver"]["paper, its own setting: accuracy, %"] == "–", "the paper has other workers"


def test_invalid_workflows_stand_beside_the_mean_cost_that_they_lower(evidence: Evidence) -> None:
    failed = [replace(row, format_ok=i % N >= 40, cost_usd=0.0 if i % N < 40 else 2.0)
              for i, row in enumerate(rows(first(80), 2.0, ("solver", "checker")))]  # fmt: skip
    failing = System.from_rows("conductor", "Conductor", "Conductor", failed)
    changed = replace(evidence, systems={**evidence.systems, "conductor": failing}, conductor_rows=failed)
    (table,) = tables(EXHIBITS["in_domain"].make_content(changed))
    shown = cells(table)
    assert (shown["Conductor"]["USD"], shown["Conductor"]["invalid workflows, %"]) == ("$1.20", "40.0")
    assert (shown["5 × context"]["invalid workflows, %"], shown["random worker"]["invalid workflows, %"]) == (
        "0.0",
        "–",
    )
    (equal,) = tables(EXHIBITS["equal_cost"].make_content(changed))
    usd = equal.head.index("USD a question")
    assert equal.rows[0][usd] == "$1.20, 40% invalid" and equal.numeric_columns[usd]
    adjusted = cells(tables(EXHIBITS["cost_adjusted"].make_content(changed))[0])
    assert adjusted["Conductor"]["USD a question"] == "$1.20, 40% invalid"
    assert adjusted["cold start"]["USD a question"] == "$1.00"


def test_the_frontier_rises_and_omits_dominated_systems(evidence: Evidence) -> None:
    plane, line, *_ = EXHIBITS["accuracy_against_usd"].make_content(evidence).parts
    assert isinstance(plane, ScatterPlot)
    assert isinstance(line, Table)
    assert [row[0] for row in line.rows] == [
        "worker checker",
        "random worker",
        "cold start",
        "Conductor",
        "5 × context",
    ]
    said = EXHIBITS["accuracy_against_usd"].make_content(evidence).summary
    assert said.startswith(
        "In-domain, 1 of 4 workers and baselines are more accurate than the Conductor; the cheapest of "
    )
    assert "5 × context (+15.0 points, $10.00 instead of $2.00 a question)" in said
    on_it = [plane.points[place] for place in plane.frontier]
    assert all(a.x < b.x and a.y < b.y for a, b in pairwise(on_it))


def test_the_opponent_is_the_best_that_takes_no_more(evidence: Evidence) -> None:
    shown = EXHIBITS["equal_cost"].make_content(evidence)
    (table,) = tables(shown)
    in_domain = [row for row in table.rows if row[0] == "in-domain"]
    assert [(row[1], row[2], row[6]) for row in in_domain] == [
        ("Conductor", "Conductor", ""),
        ("best at no more USD, best at no more calls", "worker solver", "+30.0"),
        ("best at any price", "5 × context", "−15.0"),
    ]
    assert "In-domain the Conductor is 30.0 points above the best at no more" in shown.summary


def test_a_system_without_a_cheaper_opponent_is_shown_alone(evidence: Evidence) -> None:
    cheapest = system("conductor", "Conductor", rows(first(80), 0.01), "Conductor")
    alone = replace(evidence, systems=evidence.systems | {"conductor": cheapest})
    shown = EXHIBITS["equal_cost"].make_content(alone)
    assert tables(shown)[0].rows[1][2] == "none"
    assert "no opponent costs as little" in shown.summary


def test_claims_hold_fail_or_are_undecided(evidence: Evidence) -> None:
    tested = {(claim.against.name, claim.group): claim for claim in test_claims(evidence)}
    assert tested["worker solver", "in-domain"].verdict == HOLDS
    assert tested["five_context", "in-domain"].verdict == FAILS
    undecided = tested["cold_start", "out-of-distribution"].verdict
    assert undecided.startswith("undecided (minimum detectable difference ")
    assert tested["five_context", "in-domain"].price == "0.20 ×"
    assert all(claim.contrast.p_adjusted >= claim.contrast.p_value for claim in tested.values())
    assert "worker checker" not in {name for name, _ in tested}  # of the workers the best by the mix only


def test_a_claim_that_fails_is_reported_as_failing(made: list[MadeExhibit]) -> None:
    (shown,) = (each.content for each in made if each.exhibit.name == "claims")
    assert isinstance(shown, ExhibitContent)
    verdicts = {(row[0], row[1]): row[-1] for row in tables(shown)[0].rows}
    assert verdicts["Conductor over 5 × context", "in-domain"] == "does not hold"
    assert verdicts["Conductor over worker solver", "out-of-distribution"] == "holds"
    assert shown.summary == "Of 8 claims, 4 hold, 2 do not hold, and 2 are undecided."
    picture = shown.parts[0]
    assert isinstance(picture, DotPlot)
    assert picture.shows_zero_line


def test_worker_use_steps_and_shapes_are_the_conductors(evidence: Evidence) -> None:
    use = cells(tables(EXHIBITS["worker_use"].make_content(evidence))[0])
    assert use["mmlu"] == {"domain": "mmlu", "steps": 400, "checker, %": "50", "solver, %": "50"}
    steps = cells(tables(EXHIBITS["steps"].make_content(evidence))[0])
    assert steps["math500"]["mean steps"] == "2.00 ± 0.00"
    shapes = cells(tables(EXHIBITS["shapes"].make_content(evidence))[0])
    assert (shapes["mmlu"]["chain, %"], shapes["mmlu"]["more than one worker, %"]) == ("100", "100")
    invalid = [replace(row, format_ok=row.benchmark != "mmlu", shape="", steps=0) for row in evidence.conductor_rows]
    without = cells(tables(EXHIBITS["steps"].make_content(replace(evidence, conductor_rows=invalid)))[0])
    assert (without["mmlu"]["valid workflows"], without["mmlu"]["mean steps"]) == (0, "–")


def test_training_shows_both_ends_and_skips_steps_without_a_reward(evidence: Evidence) -> None:
    rows = [row | ({"reward": None} if row["step"] == 2 else {}) for row in evidence.curves["conductor"]]
    shown = EXHIBITS["training"].make_content(replace(evidence, curves={"conductor": rows}))
    before, after = tables(shown)[0].rows
    assert (before[3], after[3]) == ("50.0", "100.0")
    assert (before[4], after[4]) == ("50.0", "50.0")
    assert (before[6], after[6]) == ("3.45", "1.45")
    reward = shown.parts[0]
    assert isinstance(reward, LineChart)
    x, y = reward.series["reward"]
    assert list(x[:2]) == [1, 3]
    assert y[1] == pytest.approx(0.02)
    assert shown.sample_description == "30 steps, 480 rollouts"


def test_cost_is_taken_off_against_what_the_others_reach_for_it(evidence: Evidence) -> None:
    shown = cells(tables(EXHIBITS["cost_adjusted"].make_content(evidence))[0])
    # From the cold start (1 USD, 79 %) to 5 × context (10 USD, 95 %): at 2 USD 79 + 16 / 9 = 80.8 %.
    assert shown["Conductor"]["beyond the others at its price, points"] == "−0.8"
    assert shown["Conductor"]["USD a right answer"] == "$2.50"
    assert shown["worker checker"]["right answers a USD"] == "2"


def test_the_oracle_with_and_without_hindsight(evidence: Evidence) -> None:
    shown = EXHIBITS["oracle"].make_content(evidence)
    mmlu = cells(tables(shown)[0])["mmlu"]
    # Percent of 100 questions; the first worker is always right below 50, the second once below 20 and once below 60.
    # With hindsight 50 and half of 10. Where the first answers choose, the first worker is better: 50. Where the
    # second choose, the second worker is, also for the questions on which both were right: 20.
    assert without_breaks(mmlu["upper bound, with hindsight, %"]).startswith("55.0 ")
    assert without_breaks(mmlu["oracle, %"]).startswith("35.0 ")
    assert shown.summary == ""
    once = {name: {key: [worker[:1] for worker in own] for key, own in every.items()}
            for name, every in evidence.worker_scores.items()}  # fmt: skip
    single = EXHIBITS["oracle"].make_content(replace(evidence, worker_scores=once))
    assert "was not run" in single.summary
    assert cells(tables(single)[0])["mmlu"]["oracle, %"] == "–"
    assert float(cells(tables(single)[0])["mmlu"]["by chance, %"]) > 0 and "by chance, %" not in mmlu


def test_experiments_that_were_not_run_are_named_with_their_command(evidence: Evidence) -> None:
    *_, absent, paper = tables(EXHIBITS["experiments"].make_content(replace(evidence, experiments={})))
    assert [row[1] for row in absent.rows] == [
        *(f"not run: podium study {name} --recipe quickstart --seed 1" for name in STUDIES),
        "podium study prompting_and_size",
    ]
    assert paper.title == "Ablations: paper, its own setting"
    whole = tables(EXHIBITS["experiments"].make_content(evidence))
    assert [table.title for table in whole[: len(STUDIES)]] == [entry.title for entry in STUDIES.values()]


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"curves": {"conductor": []}}, {"training": "not run: podium train quickstart --seed 1"}),
        ({"worker_scores": {}}, {"oracle": "not run: podium evaluate quickstart --seed 1"}),
    ],
)
def test_missing_parts_are_reported(changes: dict[str, object], missing: dict[str, str], evidence: Evidence) -> None:
    less = replace(evidence, **changes)  # type: ignore[arg-type]
    assert {name: said for name, entry in EXHIBITS.items() if (said := entry.explain_missing(less))} == missing


def test_without_any_score_only_training_and_what_to_run_is_left(evidence: Evidence) -> None:
    made = make_exhibits(replace(evidence, systems={}, conductor_rows=(), worker_scores={}, best_worker=""))
    shown = {each.exhibit.name for each in made if not isinstance(each.content, str)}
    assert shown == {"training", "experiments"}


def test_an_exhibit_cannot_need_unknown_evidence(evidence: Evidence) -> None:
    register: Callable[..., Exhibit]
    with pytest.raises(ValueError, match="unknown need scores; known: conductor"):
        register = exhibit("title", shows="What.", needs=("scores",))  # noqa: F841


OFFERS = st.lists(st.builds(PricedAccuracy, st.floats(1e-6, 10), st.floats(0, 1)), min_size=1, max_size=30)


@given(OFFERS)
def test_the_frontier_rises_and_no_system_is_above_it(offers: list[PricedAccuracy]) -> None:
    line = [offers[place] for place in find_frontier(offers)]
    assert all(a.price < b.price and a.accuracy < b.accuracy for a, b in pairwise(line))
    for offer in offers:
        assert any(each.price <= offer.price and each.accuracy >= offer.accuracy for each in line)


@given(OFFERS, st.floats(0, 20))
def test_mixing_reaches_at_least_the_best_within_the_price_and_never_more_than_the_best(
    offers: list[PricedAccuracy], price: float
) -> None:
    reached = compute_mixture_accuracy(offers, price)
    assert reached <= max(offer.accuracy for offer in offers) + 1e-12
    assert all(reached >= offer.accuracy - 1e-9 for offer in offers if offer.price <= price)


def test_half_the_questions_to_each_of_two() -> None:
    offers = [PricedAccuracy(1.0, 0.4), PricedAccuracy(3.0, 0.8), PricedAccuracy(2.0, 0.5)]
    assert compute_mixture_accuracy(offers, 2.0) == pytest.approx(0.6)
    assert compute_mixture_accuracy(offers, 0.5) == pytest.approx(0.2)  # the other half is not answered
    assert compute_mixture_accuracy(offers, 9.0) == pytest.approx(0.8)
