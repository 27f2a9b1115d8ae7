"""Contamination: repetitions are found by id, by text and in other words; templates with other numbers are kept."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ops.core.problem import Domain, GraderName, Problem, Split
from ops.curation.decontaminate import Removed, decontaminate, leaks, upstream_item
from ops.curation.text import exact_key

Make = Callable[..., Problem]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (r"Evaluate $\log_8 2$.", r"evaluate \( \log_8 2 \)"),
        (r"Find $\left( 3, \dfrac{1}{2} \right)$.", r"Find $(3,\frac{1}{2})$"),
        (r"Let $x\,=\,1{,}000$;  then what?", r"Let $x = 1{,}000$, then what?"),
        ("It’s “five” – why?", "It's \"five\" - why"),
        ("Ｗｈａｔ is ①?", "what is 1"),
    ],
)
def test_spacing_punctuation_and_unicode_make_no_other_text(text: str, other: str) -> None:
    assert exact_key(text) == exact_key(other)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("What is 1.5 + 2?", "What is 15 + 2?"),
        ("Is 2:3 more?", "Is 23 more?"),
        ("x - 1", "x + 1"),
        (r"$a \leftarrow b$", r"$a \rightarrow b$"),
    ],
)
def test_a_change_of_the_question_changes_the_key(text: str, other: str) -> None:
    assert exact_key(text) != exact_key(other)


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
def test_a_light_rewording_of_a_short_question_is_found(make: Make, question: str, again: str) -> None:
    (leak,) = leaks([make("planted", again)], [make("held-out", question, split="test")])
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
def test_a_template_filled_otherwise_is_another_question(make: Make, question: str, other: str) -> None:
    assert leaks([make("candidate", other)], [make("held-out", question, split="test")]) == []


def test_other_choices_make_another_question_and_some_shared_ones_do_not(make: Make) -> None:
    stem, again = "Which gas do plants absorb most?", "Which gas is it that plants absorb the most?"
    held_out = make("held-out", stem, grader="choice", choices=("oxygen", "carbon dioxide", "argon", "helium"))
    kept = make("kept", again, grader="choice", choices=("A only", "B only", "both", "neither"))
    same = make("same", again, grader="choice", choices=("argon", "carbon dioxide", "oxygen", "neon"))
    assert [leak.problem for leak in leaks([kept, same], [held_out])] == ["math500/same"]


def test_a_threshold_of_one_asks_for_equal_texts(make: Make) -> None:
    test = make("held-out", "What is the greatest common factor of 252 and 96?", split="test")
    again = make("again", "Please find the greatest common divisor of 252 and 96.")
    same = make("same", "what is the greatest common factor of 252 and 96")
    assert [leak.problem for leak in leaks([again, same], [test], 1.0)] == ["math500/same"]


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
def test_the_same_upstream_item_is_found_by_id(make: Make, benchmark: str, train: str, test: str) -> None:
    mix = [make(train, "These words", benchmark=benchmark), make("math-train-1", "Other words")]
    held_out = [make(test, "are not alike", benchmark=benchmark, split="test")]
    assert leaks(mix, held_out) == [Removed(f"{benchmark}/{train}", f"{benchmark}/{test}", "contamination", "id", 1.0)]


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [("mmlu", "mmlu-17"), ("math500", "math-train-17"), ("math500", "math500-17"), ("aime25", "1")],
)
def test_an_id_without_an_upstream_item_is_not_evidence(make: Make, benchmark: str, name: str) -> None:
    assert upstream_item(make(name, benchmark=benchmark)) is None


def test_train_and_test_items_of_one_number_differ(make: Make) -> None:
    assert upstream_item(make("train/algebra/1.json")) != upstream_item(make("test/algebra/1.json"))


def test_duplicates_within_the_candidates_are_no_leaks(make: Make) -> None:
    twice = [make("1", "How many primes are below 50?"), make("2", "how many primes are below 50")]
    assert leaks(twice, []) == []
    assert [removal.cause for removal in decontaminate(twice, []).removed] == ["duplicate"]


def test_the_kept_candidates_do_not_depend_on_the_order(make: Make) -> None:
    offered = [make(str(i), f"How many primes are below {i // 2}?") for i in range(20)]
    kept = {problem.id for problem in decontaminate(offered, []).kept}
    assert kept == {problem.id for problem in decontaminate(offered[::-1], []).kept}
    assert len(kept) == 10


# ── real rows ────────────────────────────────────────────────────────────────────────

SYNONYMS = {
    "find": "determine", "compute": "calculate", "evaluate": "compute", "determine": "find", "what": "which",
    "number": "count", "sum": "total", "total": "overall", "simplify": "reduce", "express": "write",
    "distinct": "different", "smallest": "least", "largest": "greatest", "greatest": "largest", "least": "smallest",
    "each": "every", "has": "possesses", "gives": "yields", "area": "surface area", "length": "extent",
    "contains": "includes", "points": "locations", "equation": "relation", "people": "persons", "buy": "purchase",
    "costs": "is priced at", "such": "so", "shown": "depicted", "below": "underneath", "if": "when",
    "answer": "result", "given": "provided", "possible": "feasible", "function": "mapping", "solve": "work out",
    "round": "approximate", "nearest": "closest", "value": "quantity", "integer": "whole number",
    "integers": "whole numbers", "equal": "identical", "ways": "manners", "between": "amid",
}  # fmt: skip
"""Some change more than a careful editor would; the measured figure includes such misses."""


def respaced(question: str, chance: random.Random) -> str:
    """Change white space, case, spaces in formulas and the final stop."""
    words = question.replace(" = ", r"\, =\; ").replace("\\frac", chance.choice(("\\frac", "\\dfrac"))).split(" ")
    return "".join(word + chance.choice((" ", "  ", "\n", "\t ")) for word in words).strip().rstrip(".?").swapcase()


def reworded(question: str, chance: random.Random) -> str:
    """Swap two words for synonyms, add a greeting or a request, change the final punctuation."""
    words = question.split(" ")
    able = [place for place, word in enumerate(words) if word.casefold().strip(".,?") in SYNONYMS]
    for place in chance.sample(able, min(2, len(able))):
        word = SYNONYMS[words[place].casefold().strip(".,?")]
        words[place] = word.capitalize() if words[place][:1].isupper() else word
    text = " ".join(words).rstrip(".?")
    before = chance.choice(("", "Hello! ", "Please help me with this: ", "I would like to know the following. "))
    return before + text + chance.choice((".", "?", " Thank you.", " Thanks!"))


def load(folder: Path, name: str, benchmark: str, domain: Domain, grader: GraderName, split: Split) -> list[Problem]:
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Problem(row["id"], benchmark, domain, split, row["question"], row["answer"] or "", grader,
                choices=tuple(row["choices"] or ()))
        for row in rows
    ]  # fmt: skip


@pytest.mark.long
def test_planted_math500_is_found_in_the_real_training_rows(shared: Path) -> None:
    clean = load(shared, "math_train", "math500", "math", "math", "train")
    held_out = load(shared, "math500", "math500", "math", "math", "test")
    planted: dict[str, Problem] = {}
    for place, problem in enumerate(held_out):
        chance = random.Random(place)
        for way, text in (
            ("verbatim", problem.question),
            ("respaced", respaced(problem.question, chance)),
            ("reworded", reworded(problem.question, chance)),
        ):
            planted[f"math500/{way}-{place}"] = replace(problem, id=f"{way}-{place}", split="train", question=text)
    assert sum(p.question != held_out[int(p.id.split("-")[1])].question for p in planted.values()) >= 990
    repeats = {item.problem: item for item in leaks([*clean, *planted.values()], held_out)}
    recall = Counter(name.split("/")[1].split("-")[0] for name in repeats if name in planted)
    assert (recall["verbatim"], recall["respaced"]) == (500, 500)
    assert recall["reworded"] >= 480, f"{recall['reworded']} of 500 rewordings found"
    kinds = {way: Counter(repeats[n].kind for n in planted if f"/{way}-" in n and n in repeats) for way in recall}
    assert set(kinds["verbatim"]) == set(kinds["respaced"]) == {"exact"}
    assert kinds["reworded"]["reworded"] > kinds["reworded"]["near"] > 0
    # Of 7,500 clean rows: real repetitions, and questions that differ in one word. None by id or by equal text.
    wrong = {name: item.kind for name, item in repeats.items() if name not in planted}
    assert set(wrong.values()) <= {"near", "reworded"} and len(wrong) <= 40


@pytest.mark.long
def test_evaluation_questions_inside_webinstruct_train_are_found(shared: Path) -> None:
    train = load(shared, "webinstruct_train", "rlpr", "rlpr", "text", "train")
    held_out = load(shared, "webinstruct_test", "rlpr", "rlpr", "text", "test")
    repeats = leaks(train, held_out)
    # The shipped test rows have no exact repetitions; these are the remaining ones.
    assert Counter(item.kind for item in repeats)["exact"] == 0
    assert ("rlpr/webinstruct-400", "rlpr/webinstruct-3984") in {(item.problem, item.other) for item in repeats}
    assert 8 <= len(repeats) <= 30
    planted = [replace(held_out[place], id=f"copy-{place}", split="train") for place in range(0, 949, 31)]
    names = {item.problem for item in leaks([*train, *planted], held_out)}
    assert len(planted) == 31 and {f"rlpr/copy-{place}" for place in range(0, 949, 31)} <= names
