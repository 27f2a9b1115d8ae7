"""Families that imitate MMLU, with questions that have four choices with letters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

from ops.synthetic.families.base import (
    CHOOSE,
    COMPUTE,
    COUNTRY_WORDS,
    FORMALIZE,
    PEOPLE,
    SOLVE_ALONE,
    VOTE,
    Family,
    ProblemDraft,
    format_number,
    letter_choices,
    look_up_step,
    pick_country,
    pick_material,
)
from ops.synthetic.knowledge import read_knowledge_table

_IN_OTHER_WORDS = {
    "capital": ("Where does the government of {} sit?", "In which city do the ministers of {} meet?"),
    "currency": ("Which money do people in {} pay with?", "What do shops in {} take in cash?"),
    "language": ("What do most people in {} speak?",),
    "symbol": ("How do chemists abbreviate {}?", "Which letters stand for {} in a formula?"),
}
EXTREMES = {
    ("density", "largest"): ("is the heaviest for its size", "sinks fastest in a heavy liquid"),
    ("density", "smallest"): ("is the lightest for its size", "floats best in a heavy liquid"),
    ("melting point", "largest"): ("stays solid the longest when heated",),
    ("melting point", "smallest"): ("turns liquid first when heated",),
    ("population", "largest"): ("is home to the most people",),
    ("population", "smallest"): ("is home to the fewest people",),
}


def _word_fact(random: Random) -> tuple[str, str, str, list[str]]:
    """Return the name of an entity, an attribute, its value, and the values of this attribute for all entities."""
    attribute = random.choice((*COUNTRY_WORDS, "symbol"))
    kind = "materials" if attribute == "symbol" else "countries"
    name, facts = (pick_material if attribute == "symbol" else pick_country)(random)
    return name, attribute, facts[attribute], [row[attribute] for row in read_knowledge_table(kind).values()]


def _second_reading(name: str, attribute: str) -> str:
    """Return the value of an attribute from the table that contains the name, as a second derivation."""
    return (read_knowledge_table("materials").get(name) or read_knowledge_table("countries")[name])[attribute]


def fact(random: Random) -> ProblemDraft:
    """Ask for a fact by the name of its attribute."""
    name, attribute, value, others = _word_fact(random)
    choices, letter = letter_choices(random, value, others)
    opening = random.choice(("What is the", "Name the"))
    end = "?" if opening.startswith("What") else "."
    proof = (choices["ABCD".index(letter)], _second_reading(name, attribute))
    return ProblemDraft(
        f"{opening} {attribute} of {name}{end}",
        letter,
        proof,
        (("librarian", "Solve the problem."),),
        choices,
    )


def fact_in_other_words(random: Random) -> ProblemDraft:
    """Ask for a fact without naming its attribute, so that the subtask must name it."""
    name, attribute, value, others = _word_fact(random)
    choices, letter = letter_choices(random, value, others)
    question = random.choice(_IN_OTHER_WORDS[attribute]).format(name)
    return ProblemDraft(
        question,
        letter,
        (choices["ABCD".index(letter)], _second_reading(name, attribute)),
        (look_up_step(attribute),),
        choices,
    )


def extreme(random: Random) -> ProblemDraft:
    """Ask which of four things is first by a quantity that the question describes only by its effect."""
    (attribute, side), words = random.choice(sorted(EXTREMES.items()))
    rows = read_knowledge_table("countries" if attribute == "population" else "materials")
    names = random.sample(sorted(rows), 4)
    values = [float(rows[name][attribute]) for name in names]
    while len(set(values)) < 4:
        names = random.sample(sorted(rows), 4)
        values = [float(rows[name][attribute]) for name in names]
    best = (max if side == "largest" else min)(zip(values, names, strict=True))[1]
    ranked = sorted(names, key=lambda name: float(rows[name][attribute]), reverse=side == "largest")
    question = f"Which of these {random.choice(words)}?"
    solution = (look_up_step(attribute), ("editor", f"Pick the {side}."))
    return ProblemDraft(question, "ABCD"[names.index(best)], (best, ranked[0]), solution, tuple(names))


def computed(random: Random) -> ProblemDraft:
    """Ask for the result of a rate whose choices have another unit than the formula gives."""
    a, b = random.randint(3, 90), random.randint(2, 9)
    subject, question, unit, factor = random.choice((
        ("A train", f"runs at {a} km/h for {b} hours. How far does it go?", "m", 1000),
        ("A pump", f"pours {a} litres a minute for {b} minutes. How much comes out?", "mL", 1000),
        ("A clerk", f"earns {a} euros an hour for {b} hours. How much is paid?", "cent", 100),
    ))  # fmt: skip
    value = a * b * factor
    again = sum(a * factor for _ in range(b))
    wrong = [
        (a + b) * factor,
        a * (b + 1) * factor,
        (a + 1) * b * factor,
        a * b * factor * 10,
        a * b * factor // 10,
    ]
    texts = [f"{other} {unit}" for other in wrong if other != value]
    choices, letter = letter_choices(random, f"{value} {unit}", texts)
    proof = (choices["ABCD".index(letter)], f"{format_number(again)} {unit}")
    return ProblemDraft(f"{subject} {question}", letter, proof, (FORMALIZE, COMPUTE, CHOOSE), choices)


def two_hops(random: Random) -> ProblemDraft:
    """Ask for a fact about a country that is named only by its capital."""
    _, facts = pick_country(random)
    attribute = random.choice(("currency", "language"))
    rows = read_knowledge_table("countries")
    choices, letter = letter_choices(random, facts[attribute], [row[attribute] for row in rows.values()])
    question = f"What is the {attribute} of the land that is governed from {facts['capital']}?"
    back = next(row for row in rows.values() if row["capital"] == facts["capital"])
    proof = (choices["ABCD".index(letter)], back[attribute])
    return ProblemDraft(question, letter, proof, (look_up_step("country"), look_up_step(attribute)), choices)


def describe_row(random: Random, names: Sequence[str], above: str, below: str) -> tuple[str, list[str]]:
    """Return sentences that describe a row of names, and the only row that agrees with them.

    `names` is in the order of the row, and the sentences are in random order.
    """
    pairs = list(itertools.pairwise(names))
    first, last = sorted(random.sample(range(len(names)), 2))
    if last - first > 1:
        pairs.append((names[first], names[last]))
    random.shuffle(pairs)
    sentences = [f"{a} {above} {b}" if random.random() < 0.5 else f"{b} {below} {a}" for a, b in pairs]
    rows = [row for row in itertools.permutations(names) if all(row.index(a) < row.index(b) for a, b in pairs)]
    assert len(rows) == 1  # the sentences about neighbours determine the row
    return ". ".join(sentences), list(rows[0])


def tallest(random: Random) -> ProblemDraft:
    """Ask who has a given place in a row of five or six people, which no tool can solve."""
    names = random.sample(PEOPLE, random.choice((5, 6)))
    text, row = describe_row(random, names, "is taller than", "is shorter than")
    words, place = random.choice((("tallest", 0), ("second tallest", 1), ("shortest", -1), ("second shortest", -2)))
    choices, letter = letter_choices(random, names[place], names)
    proof = (choices["ABCD".index(letter)], row[place])
    return ProblemDraft(f"{text}. Who is the {words}?", letter, proof, (*[SOLVE_ALONE] * 4, VOTE), choices)


FAMILIES = (
    Family("fact", "mmlu", fact),
    Family("fact_in_other_words", "mmlu", fact_in_other_words),
    Family("extreme", "mmlu", extreme),
    Family("computed", "mmlu", computed),
    Family("two_hops", "mmlu", two_hops, hard=True),
    Family("tallest", "mmlu", tallest, hard=True, solved_by_tools=False),
)
