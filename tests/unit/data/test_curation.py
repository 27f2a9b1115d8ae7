"""Curation: planted contamination is found, strata share places evenly, the mix follows disagreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.config import Curation
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.curation.cover import draw
from ops.curation.decontaminate import decontaminate, report
from ops.curation.selection import choose_mix, shortlist
from ops.curation.selector import SELECTORS, SelectionEvidence
from ops.curation.signal import Tallies, Tally, agreement
from ops.curation.sketch import PERMUTATIONS, bands
from ops.curation.text import exact_key, full_text, tokens

Make = Callable[..., Problem]
DOMAINS = ("math", "mmlu", "rlpr", "code")

LONG = (
    "A farmer keeps hens and rabbits in one yard. Looking over the fence a visitor counts thirty five heads, "
    "and somewhat later, when the animals have lain down in the shade of the old pear tree, ninety 4 feet. "
    "Assuming that no animal was missed or counted twice, how many hens does the farmer keep, and how many "
    "rabbits are there?"
)
REWORDED = LONG.replace("the old pear tree", "an old apple tree")
RESPACED = "  " + LONG.upper().replace(" ", " \n ").replace("4", "４")
OTHER = (
    "A train leaves the station at noon and travels north at sixty kilometres an hour; a second leaves two "
    "hours later at ninety. After how many hours has the second train caught up with the first?"
)


@pytest.mark.parametrize(
    ("planted", "kind"),
    [(LONG, "exact"), (RESPACED, "exact"), (REWORDED, "near")],
    ids=["verbatim", "respaced", "reworded"],
)
def test_planted_contamination_is_removed_and_reported(make: Make, planted: str, kind: str) -> None:
    test = make("held-out", LONG, split="test")
    clean = decontaminate([make("other", OTHER), make("planted", planted)], [test], threshold=0.8)
    assert [problem.id for problem in clean.kept] == ["other"]
    (removed,) = clean.removed
    assert (removed.problem, removed.other) == ("math500/planted", "math500/held-out")
    assert (removed.cause, removed.kind) == ("contamination", kind)
    assert 0.8 <= removed.similarity <= 1
    written = report(clean, 2, 1, 0.8)
    assert written["removed"] == [
        {"benchmark": "math500", "cause": "contamination", "kind": kind, "count": 1}
    ]
    assert written["pairs"][0]["problem"] == "math500/planted"


def test_threshold_decides_what_is_near(make: Make) -> None:
    grams, other = ({tuple(words[i : i + 5]) for i in range(len(words) - 4)} for words in map(tokens, (LONG, REWORDED)))
    similarity = len(grams & other) / len(grams | other)
    test, planted = make("held-out", LONG, split="test"), make("planted", REWORDED)
    kinds = {shift: decontaminate([planted], [test], similarity + shift).removed[0].kind for shift in (-0.001, 0.001)}
    assert kinds == {-0.001: "near", 0.001: "reworded"}
    assert not decontaminate([planted], [test], 1.0).removed


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.5, 0.9, 1.0])
def test_every_threshold_that_a_recipe_may_set_works(make: Make, threshold: float) -> None:
    test = make("held-out", LONG, split="test")
    clean = decontaminate([make("other", OTHER), make("planted", RESPACED)], [test], threshold)
    assert "math500/planted" in {removed.problem for removed in clean.removed}
    assert [problem.id for problem in clean.kept] == ["other"]


def test_same_stem_with_other_choices_is_another_question(make: Make) -> None:
    stem = "Which of the following statements is true?"
    choices = [("a", "b"), ("b", "a"), ("c", "d")]
    problems = [make(str(i), stem, grader="choice", choices=offered) for i, offered in enumerate(choices)]
    clean = decontaminate(problems, [], 0.8)
    assert [problem.id for problem in clean.kept] == ["0", "2"]
    assert clean.removed[0].cause == "duplicate"
    long = [make(str(i), LONG, grader="choice", choices=offered) for i, offered in enumerate(choices)]
    assert [problem.id for problem in decontaminate(long, [], 0.8).kept] == ["0"]


def test_an_evaluation_question_from_another_benchmark_counts(make: Make) -> None:
    test = make("1", LONG, benchmark="rlpr", domain="rlpr", split="test")
    assert decontaminate([make("1", LONG)], [test], 0.8).removed[0].other == "rlpr/1"


@given(st.text(), st.text(alphabet=" \t\n\u00a0\u3000", max_size=5))
def test_spacing_never_changes_the_exact_key(text: str, space: str) -> None:
    assert exact_key(text) == exact_key(space.join(text)) == exact_key(f"{space}{text}{space}")


@given(st.floats(min_value=0.2, max_value=1.0))
def test_bands_use_at_most_all_permutations_and_miss_little(threshold: float) -> None:
    count, rows = bands(threshold)
    assert 2 <= count <= count * rows <= PERMUTATIONS
    assert (1 - threshold**rows) ** count <= 1e-3


def test_draw_shares_places_evenly_and_fills_what_a_small_stratum_cannot(make: Make) -> None:
    sizes = {"a": 2, "b": 50, "c": 50}
    problems = [make(f"{name}{i}", family=name) for name, size in sizes.items() for i in range(size)]
    chosen = draw(problems, 20, seed=0)
    assert Counter(problem.family for problem in chosen) == {"a": 2, "b": 9, "c": 9}
    assert chosen == [problem for problem in problems if problem in chosen]
    assert draw(problems, 20, seed=1) != chosen
    assert draw(problems, 500, seed=0) == problems


@given(st.permutations(range(30)), st.integers(0, 40))
def test_draw_depends_on_names_not_on_order(order: list[int], count: int) -> None:
    def problem(i: int) -> Problem:
        return Problem(str(i), "math500", "math", "train", f"q{i}", "1", "math", family=str(i % 4))

    chosen = {p.id for p in draw([problem(i) for i in order], count, seed=3)}
    assert chosen == {p.id for p in draw([problem(i) for i in range(30)], count, seed=3)}
    assert len(chosen) == min(count, 30)


def candidates(make: Make, count: int) -> list[Problem]:
    return [
        make(f"{domain}{i}", f"{domain} question {i} of {count}", domain=domain, family=f"f{i % 3}")
        for domain in DOMAINS
        for i in range(count)
    ]


def test_shortlist_has_the_factor_of_places_and_no_contamination(make: Make) -> None:
    offered = [*candidates(make, 30), make("planted", RESPACED)]
    held_out = {"math500": [make("held-out", LONG, split="test")]}
    selection = shortlist(offered, held_out, Curation(per_domain=10, shortlist_factor=1.25), seed=0)
    assert Counter(problem.domain for problem in selection.problems) == dict.fromkeys(DOMAINS, 13)
    assert "planted" not in {problem.id for problem in selection.problems}
    assert (selection.report["candidates"], selection.report["kept"], selection.report["evaluation_questions"]) == (
        121,
        120,
        1,
    )


def test_shortlist_without_enough_clean_candidates_names_the_domain(make: Make) -> None:
    with pytest.raises(DataError, match=r"domain 'math': has 10 candidates, of 10, .* the mix needs 11"):
        shortlist(candidates(make, 10), {}, Curation(per_domain=11), seed=0)


def rated(problems: list[Problem], rate: Callable[[int], dict[str, float]]) -> Tallies:
    """Return one sample of each worker, correct if its rate is 1."""
    return {
        p.key: {
            worker: Tally(right, 1) for worker, right in rate(int(p.id.removeprefix(p.domain))).items()
        }
        for p in problems
    }


@pytest.mark.parametrize("selector", ["signal", "disagreement"])
def test_mix_leaves_out_what_every_worker_solves_first(make: Make, selector: Any) -> None:
    problems = candidates(make, 20)
    rates = rated(problems, lambda i: {str(worker): float(i % 4 == 0 or worker % 2) for worker in range(12)})
    classes = Counter(agreement(problem, rates) for problem in problems if problem.domain == "math")
    assert classes == {"all": 5, "some": 15}
    mix = choose_mix(problems, SelectionEvidence(Curation(per_domain=15, selector=selector), 0, rates, group=8))
    assert Counter(problem.domain for problem in mix) == dict.fromkeys(DOMAINS, 15)
    assert {agreement(problem, rates) for problem in mix} == {"some"}
    more = choose_mix(problems, SelectionEvidence(Curation(per_domain=18, selector=selector), 0, rates, group=8))
    assert Counter(agreement(p, rates) for p in more if p.domain == "code") == {"some": 15, "all": 3}


def test_mix_keeps_problems_that_no_worker_solves_alone(make: Make) -> None:
    problems = candidates(make, 40)
    rates = rated(problems, lambda i: {"a": float(i % 2), "b": 0.0})
    mix = choose_mix(problems, SelectionEvidence(Curation(per_domain=20, selector="disagreement"), 0, rates))
    classes = Counter(agreement(problem, rates) for problem in mix)
    assert classes["none"] > 20 and classes["some"] > 20


@pytest.mark.parametrize("selector", ["uniform", "diversity", "proxy"])
def test_selectors_without_responses_ignore_them(make: Make, selector: Any) -> None:
    problems = candidates(make, 20)
    rates = rated(problems, lambda i: {"a": float(i % 2)})
    curation = Curation(per_domain=10, selector=selector)
    assert not SELECTORS[selector].reads_responses
    with_rates, without = (SelectionEvidence(curation, 0, known) for known in (rates, {}))
    assert choose_mix(problems, with_rates) == choose_mix(problems, without)


def test_unmeasured_problems_are_named_so_and_kept(make: Make) -> None:
    assert agreement(make("1"), {}) == "unmeasured"
    assert agreement(make("1"), {"mmlu/1": {"a": Tally(1, 1)}}) == "unmeasured"


def test_mix_from_too_small_a_shortlist_says_what_to_do(make: Make) -> None:
    with pytest.raises(DataError, match=r"shortlist.jsonl: domain 'math'.*Materialize the shortlist again"):
        choose_mix(candidates(make, 3), SelectionEvidence(Curation(per_domain=4), 0, {}))


def test_full_text_puts_choices_in_one_order(make: Make) -> None:
    assert full_text(make("1", "q", choices=("b", "a"))) == full_text(make("2", "q", choices=("a", "b")))
