"""Families that imitate RLPR, with questions that ask for a short answer including its unit."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from ops.synthetic.families.base import (
    COMPUTE,
    FORMALIZE,
    MATERIAL_FACTS,
    SOLVE_ALONE,
    VOTE,
    Family,
    ProblemDraft,
    format_number,
    look_up_step,
    pick_country,
    pick_material,
)
from ops.synthetic.knowledge import FACT_UNITS, convert_unit, read_knowledge_table


def fact_value(random: Random) -> ProblemDraft:
    """Ask for a quantity that the question names."""
    if random.random() < 0.6:
        attribute = random.choice(MATERIAL_FACTS)
        name, facts = pick_material(random)
    else:
        attribute = random.choice(("population", "capital", "currency", "language"))
        name, facts = pick_country(random)
    opening = random.choice(("State the", "Give the", "What is the", "Report the", "Tell me the"))
    answer = f"{facts[attribute]} {FACT_UNITS[attribute]}".strip()
    rows = read_knowledge_table("materials" if name in read_knowledge_table("materials") else "countries")
    proof = (facts[attribute], rows[name][attribute])
    return ProblemDraft(f"{opening} {attribute} of {name}.", answer, proof, (("librarian", "Solve the problem."),))


_PAIRS = (
    ("miles", "kilometres", "km"),
    ("kilometres", "metres", "m"),
    ("feet", "centimetres", "cm"),
    ("pounds", "kilograms", "kg"),
    ("tonnes", "kilograms", "kg"),
    ("hours", "minutes", "min"),
    ("litres", "millilitres", "mL"),
    ("kilojoules", "joules", "J"),
)


def conversion(random: Random) -> ProblemDraft:
    """Ask for a quantity in another unit."""
    source, target, name = random.choice(_PAIRS)
    amount = random.randint(2, 990) / random.choice((1, 2, 10))
    value = convert_unit(amount, source, target)
    assert value is not None  # the units of every pair have the same dimension
    back = convert_unit(value, target, source)
    assert back is not None
    opening = random.choice(("Convert", "Express", "Rewrite"))
    link = "to" if opening == "Convert" else "in"
    question = f"{opening} {format_number(amount)} {source} {link} {target}."
    proof = (round(amount, 6), round(back, 6))
    return ProblemDraft(question, f"{format_number(value)} {name}", proof, (("editor", "Convert the units."),))


def rate(random: Random) -> ProblemDraft:
    """Ask for a simple calculation with two or three quantities of a sentence."""
    a, b, c = random.randint(3, 95), random.randint(2, 12), random.randint(2, 9)
    stories = (
        (f"A train runs at {a} km/h for {b} hours. How far does it go?", a * b, "km", sum([a] * b)),
        (f"A cyclist covers {a} km at {b} km/h. How long does it take?", a / b, "h", 1 / (b / a)),
        (
            f"A tap pours {a} litres a minute for {b} minutes. How much water is that?",
            a * b,
            "L",
            sum([b] * a),
        ),
        (f"A cook earns {a} euros an hour for {b} hours. What is the pay?", a * b, "EUR", sum([a] * b)),
        (
            f"Someone lends {a * 10} euros at {b} % simple interest for {c} years. How much interest is due?",
            a * 10 * b / 100 * c,
            "EUR",
            sum(a * b / 10 for _ in range(c)),
        ),
        (
            f"A ride costs {b} euros plus {c} euros for each of {a} km. What is the fare?",
            b + c * a,
            "EUR",
            sum([c] * a) + b,
        ),
    )
    question, value, unit, again = random.choice(stories)
    return ProblemDraft(
        question, f"{format_number(value)} {unit}", (round(value, 6), round(again, 6)), (FORMALIZE, COMPUTE)
    )


def rate_with_fact(random: Random) -> ProblemDraft:
    """Ask for a calculation with a property of a material that the question does not give."""
    name, facts = pick_material(random)
    a, b = random.randint(2, 400), random.randint(2, 60)
    question, attribute, count, unit = random.choice((
        (f"What is the mass of {a} cubic centimetres of {name}?", "density", a, "g"),
        (f"In grams, how much is {b} mol of {name}?", "molar mass", b, "g"),
    ))  # fmt: skip
    value = count * float(facts[attribute])
    proof = (round(float(facts[attribute]), 6), round(value / count, 6))
    return ProblemDraft(
        question, f"{format_number(value)} {unit}", proof, (look_up_step(attribute), FORMALIZE, COMPUTE)
    )


_CLAIMS = {
    ("density", "largest"): "is heavier for its size than",
    ("density", "smallest"): "is lighter for its size than",
    ("melting point", "largest"): "stays solid at more heat than",
    ("melting point", "smallest"): "turns liquid at less heat than",
}


def claim(random: Random) -> ProblemDraft:
    """Ask whether a comparison is true."""
    (attribute, side), words = random.choice(sorted(_CLAIMS.items()))
    rows = read_knowledge_table("materials")
    first, second = random.sample(sorted(rows), 2)
    while rows[first][attribute] == rows[second][attribute]:
        first, second = random.sample(sorted(rows), 2)
    a, b = float(rows[first][attribute]), float(rows[second][attribute])
    truth = a > b if side == "largest" else a < b
    winner = (max if side == "largest" else min)((a, first), (b, second))[1]
    solution = (look_up_step(attribute), ("editor", f"Pick the {side}."))
    return ProblemDraft(f"True or false: {first} {words} {second}.", str(truth), (truth, winner == first), solution)


_RIDES = ("bus", "ferry", "coach", "tram")


def arrival(random: Random) -> ProblemDraft:
    """Ask for a time of day after several durations, which no tool can compute."""
    hour, minute = random.randint(6, 14), random.randint(0, 59)
    stretches = [random.randint(5, 140) for _ in range(random.choice((4, 5)))]
    verbs = ("drives for", "waits", "drives another", "stops for", "goes on for")
    journey = ", ".join(f"{verb} {_stretch(minutes)}" for verb, minutes in zip(verbs, stretches, strict=False))
    ride = random.choice(_RIDES)
    question = f"A {ride} leaves at {hour}:{minute:02d}, {journey}. At what time does it arrive (24-hour clock)?"
    total = hour * 60 + minute + sum(stretches)
    clock = datetime(2001, 1, 1, hour, minute) + timedelta(minutes=sum(stretches))
    value = f"{total // 60 % 24}:{total % 60:02d}"
    return ProblemDraft(question, value, (value, f"{clock.hour}:{clock.minute:02d}"), (*[SOLVE_ALONE] * 4, VOTE))


def _stretch(minutes: int) -> str:
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{rest} minutes"
    return f"{hours} hour{'s' if hours > 1 else ''} and {rest} minutes"


FAMILIES = (
    Family("fact_value", "rlpr", fact_value),
    Family("conversion", "rlpr", conversion),
    Family("rate", "rlpr", rate),
    Family("rate_with_fact", "rlpr", rate_with_fact, hard=True),
    Family("claim", "rlpr", claim),
    Family("arrival", "rlpr", arrival, hard=True, solved_by_tools=False),
)
