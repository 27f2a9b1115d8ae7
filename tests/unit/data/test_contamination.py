"""Contamination: repetitions are found by id, by text and in other words; templates with other numbers are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.curation.decontaminate import (
    RemovedCandidate,
    build_contamination_report,
    decontaminate,
    find_leaks,
    find_upstream_item,
)
from ops.curation.question_features import PERMUTATIONS, choose_bands
from ops.curation.question_text import make_exact_key, tokenize
from tests.unit.data.inputs import make

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
    ("text", "other", "same"),
    [
        (r"Evaluate $\log_8 2$.", r"evaluate \( \log_8 2 \)", True),
        (r"Find $\left( 3, \dfrac{1}{2} \right)$.", r"Find $(3,\frac{1}{2})$", True),
        (r"Let $x\,=\,1{,}000$;  then what?", r"Let $x = 1{,}000$, then what?", True),
        ("It’s “five” – why?", 'It\'s "five" - why', True),
        ("Ｗｈａｔ is ①?", "what is 1", True),
        ("What is 1.5 + 2?", "What is 15 + 2?", False),
        ("Is 2:3 more?", "Is 23 more?", False),
        ("x - 1", "x + 1", False),
        (r"$a \leftarrow b$", r"$a \rightarrow b$", False),
    ],
)
def test_only_spacing_punctuation_and_unicode_leave_the_key_as_it_is(text: str, other: str, same: bool) -> None:
    assert (make_exact_key(text) == make_exact_key(other)) == same


@pytest.mark.parametrize(
    ("question", "again"),
    [
        ("What is the greatest common factor of 252 and 96?", "Please find the greatest common divisor of 252 and 96."),
        ("A fair coin is flipped 7 times. What is the probability of exactly 3 heads?",
         "Hello! A fair coin is tossed 7 times. Compute the probability of exactly 3 heads, thanks."),
        (r"Simplify $\sqrt{50} + 3\sqrt{8}$.", r"Could you please reduce $\sqrt{50}+3\sqrt{8}$?"),
        ("Which enzyme unwinds the double helix of DNA during replication?",
         "During DNA replication, which enzyme is it that unwinds the double helix?"),
    ],
)  # fmt: skip
def test_a_light_rewording_of_a_short_question_is_found(question: str, again: str) -> None:
    (leak,) = find_leaks([make("planted", again)], [make("held-out", question, split="test")])
    assert (leak.problem, leak.other, leak.kind) == ("math500/planted", "math500/held-out", "reworded")
    assert 0.7 <= leak.similarity <= 1


@pytest.mark.parametrize(
    ("question", "other"),
    [
        ("What is the greatest common factor of 252 and 96?", "What is the greatest common factor of 252 and 98?"),
        ("A train covers three miles in 5 minutes.", "A train covers four miles in 5 minutes."),
        (r"Solve $x^2 - 5x + 6 = 0$ for $x$.", r"Solve $x^2 + 5x + 6 = 0$ for $x$."),
        ("Which of these is a noble gas?", "Which of these is not a noble gas?"),
        ("What is the capital of France?", "What is the currency of France?"),
        ("Find the area of the triangle with sides 3, 4 and 5.", "Find the volume of the cube with sides 3, 4 and 5."),
    ],
)
def test_a_template_filled_otherwise_is_another_question(question: str, other: str) -> None:
    assert find_leaks([make("candidate", other)], [make("held-out", question, split="test")]) == []


def test_other_choices_make_another_question_and_some_shared_ones_do_not() -> None:
    stem, again = "Which gas do plants absorb most?", "Which gas is it that plants absorb the most?"
    held_out = make("held-out", stem, grader="choice", choices=("oxygen", "carbon dioxide", "argon", "helium"))
    kept = make("kept", again, grader="choice", choices=("A only", "B only", "both", "neither"))
    same = make("same", again, grader="choice", choices=("argon", "carbon dioxide", "oxygen", "neon"))
    assert [leak.problem for leak in find_leaks([kept, same], [held_out])] == ["math500/same"]


@pytest.mark.parametrize(
    ("benchmark", "train", "test"),
    [
        ("math500", "test/algebra/123.json", "MATH/test/algebra/123"),
        ("livecodebench", "lcb-1873_A", "1873_a"),
        ("livecodebench", "v1/abc343_e", "release_v6-abc343_e"),
        ("rlpr", "webinstruct-12", "webinstruct-12"),
        ("mmlu", "mmlu-test-virology-3", "mmlu-test-virology-3"),
    ],
)
def test_the_same_upstream_item_is_found_by_id(benchmark: str, train: str, test: str) -> None:
    mix = [make(train, "These words", benchmark=benchmark), make("math-train-1", "Other words")]
    held_out = [make(test, "are not alike", benchmark=benchmark, split="test")]
    assert find_leaks(mix, held_out) == [
        RemovedCandidate(f"{benchmark}/{train}", f"{benchmark}/{test}", "contamination", "id", 1.0)
    ]


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [("mmlu", "mmlu-17"), ("math500", "math-train-17"), ("math500", "math500-17"), ("aime25", "1")],
)
def test_an_id_without_an_upstream_item_is_not_evidence(benchmark: str, name: str) -> None:
    assert find_upstream_item(make(name, benchmark=benchmark)) is None


def test_train_and_test_items_of_one_number_differ() -> None:
    assert find_upstream_item(make("train/algebra/1.json")) != find_upstream_item(make("test/algebra/1.json"))


def test_duplicates_within_the_candidates_are_no_leaks() -> None:
    twice = [make("1", "How many primes are below 50?"), make("2", "how many primes are below 50")]
    assert find_leaks(twice, []) == []
    assert [removal.cause for removal in decontaminate(twice, []).removed] == ["duplicate"]


def test_the_kept_candidates_do_not_depend_on_the_order() -> None:
    offered = [make(str(i), f"How many primes are below {i // 2}?") for i in range(20)]
    kept = {problem.id for problem in decontaminate(offered, []).kept}
    assert kept == {problem.id for problem in decontaminate(offered[::-1], []).kept}
    assert len(kept) == 10


@pytest.mark.parametrize(
    ("planted", "kind"),
    [(LONG, "exact"), (RESPACED, "exact"), (REWORDED, "near")],
    ids=["verbatim", "respaced", "reworded"],
)
def test_planted_contamination_is_removed_and_reported(planted: str, kind: str) -> None:
    test = make("held-out", LONG, split="test")
    clean = decontaminate([make("other", OTHER), make("planted", planted)], [test], threshold=0.8)
    assert [problem.id for problem in clean.kept] == ["other"]
    (removed,) = clean.removed
    assert (removed.problem, removed.other) == ("math500/planted", "math500/held-out")
    assert (removed.cause, removed.kind) == ("contamination", kind)
    assert 0.8 <= removed.similarity <= 1
    written = build_contamination_report(clean, 2, 1, 0.8)
    assert written["removed"] == [{"benchmark": "math500", "cause": "contamination", "kind": kind, "count": 1}]
    assert written["pairs"][0]["problem"] == "math500/planted"


def test_threshold_decides_what_is_near() -> None:
    grams, other = (
        {tuple(words[i : i + 5]) for i in range(len(words) - 4)} for words in map(tokenize, (LONG, REWORDED))
    )
    similarity = len(grams & other) / len(grams | other)
    test, planted = make("held-out", LONG, split="test"), make("planted", REWORDED)
    kinds = {shift: decontaminate([planted], [test], similarity + shift).removed[0].kind for shift in (-0.001, 0.001)}
    assert kinds == {-0.001: "near", 0.001: "reworded"}
    assert not decontaminate([planted], [test], 1.0).removed


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.5, 0.9, 1.0])
def test_every_threshold_that_a_recipe_may_set_works(threshold: float) -> None:
    test = make("held-out", LONG, split="test")
    clean = decontaminate([make("other", OTHER), make("planted", RESPACED)], [test], threshold)
    assert "math500/planted" in {removed.problem for removed in clean.removed}
    assert [problem.id for problem in clean.kept] == ["other"]


def test_same_stem_with_other_choices_is_another_question() -> None:
    stem = "Which of the following statements is true?"
    choices = [("a", "b"), ("b", "a"), ("c", "d")]
    problems = [make(str(i), stem, grader="choice", choices=offered) for i, offered in enumerate(choices)]
    clean = decontaminate(problems, [], 0.8)
    assert [problem.id for problem in clean.kept] == ["0", "2"]
    assert (clean.removed[0].cause, clean.removed[0].kind) == ("duplicate", "exact")
    long = [make(str(i), LONG, grader="choice", choices=offered) for i, offered in enumerate(choices)]
    assert [problem.id for problem in decontaminate(long, [], 0.8).kept] == ["0"]


def test_an_evaluation_question_from_another_benchmark_counts() -> None:
    test = make("1", LONG, benchmark="rlpr", domain="rlpr", split="test")
    assert decontaminate([make("1", LONG)], [test], 0.8).removed[0].other == "rlpr/1"


@given(st.text(), st.text(alphabet=" \t\n\u00a0\u3000", max_size=5))
def test_spacing_never_changes_the_exact_key(text: str, space: str) -> None:
    assert make_exact_key(text) == make_exact_key(space.join(text)) == make_exact_key(f"{space}{text}{space}")


@given(st.floats(min_value=0.2, max_value=1.0))
def test_bands_use_at_most_all_permutations_and_miss_little(threshold: float) -> None:
    count, rows = choose_bands(threshold)
    assert 2 <= count <= count * rows <= PERMUTATIONS
    assert (1 - threshold**rows) ** count <= 1e-3
