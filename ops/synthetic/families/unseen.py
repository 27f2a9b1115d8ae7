"""Families of the unseen benchmarks: kinds of question that no training family has.

They imitate AIME25 (integers from 0 to 999), GPQA-Diamond (lettered science questions of several steps) and
BigCodeBench (functions under `unittest`).
"""

from __future__ import annotations

from random import Random

from ops.core.problem import CodeTest
from ops.synthetic.families.base import (
    CHECK,
    CHOOSE,
    COMPUTE,
    FORMALIZE,
    PLAN,
    PROGRAM,
    SOLVE_ALONE,
    VOTE,
    Family,
    ProblemDraft,
    format_number,
    letter_choices,
    look_up_step,
    pick_material,
)
from ops.synthetic.families.code import OPERATIONS, apply_operations, pick_operations, sample_inputs
from ops.synthetic.families.mmlu import describe_row
from ops.synthetic.knowledge import read_knowledge_table


def digits_of_a_sum(random: Random) -> ProblemDraft:
    """Ask for a triangular number modulo 1000."""
    n = random.randint(50, 5000)
    question = f"Find the last three digits of the sum of the first {n} positive integers, as an integer."
    value = n * (n + 1) // 2 % 1000
    return ProblemDraft(question, str(value), (value, sum(range(1, n + 1)) % 1000), (FORMALIZE, COMPUTE))


def border(random: Random) -> ProblemDraft:
    """Ask for the area of a border around a rectangle."""
    a, b, c = random.randint(2, 30), random.randint(2, 30), random.randint(1, 5)
    question = f"A rectangle of {a} by {b} is wrapped by a border {c} wide. What is the area of the border?"
    value = (a + 2 * c) * (b + 2 * c) - a * b
    return ProblemDraft(question, str(value), (value, 2 * c * (a + b) + 4 * c * c), (FORMALIZE, COMPUTE))


def _draft_amount(random: Random, name: str, facts: dict[str, str]) -> tuple[str, str, float, str]:
    grams = random.randint(20, 900)
    molar, density = float(facts["molar mass"]), float(facts["density"])
    return random.choice((
        (f"How many moles are in {grams} g of {name}?", "molar mass", grams / molar * 1000, "mmol"),
        (f"How much room do {grams} g of {name} take up?", "density", grams / density / 1000, "L"),
    ))  # fmt: skip


def amount(random: Random) -> ProblemDraft:
    """Ask a question that takes four steps, which are a fact, a formula, its value and the letter of the choice."""
    name, facts = pick_material(random)
    question, attribute, value, unit = _draft_amount(random, name, facts)
    wrong = [value * factor for factor in (0.5, 1.2, 1.5, 2, 3, 10)]
    choices, letter = letter_choices(
        random, f"{format_number(value)} {unit}", [f"{format_number(other)} {unit}" for other in wrong]
    )
    proof = (format_number(value), choices["ABCD".index(letter)].split()[0])
    return ProblemDraft(question, letter, proof, (look_up_step(attribute), FORMALIZE, COMPUTE, CHOOSE), choices)


def odd_one(random: Random) -> ProblemDraft:
    """Ask which of four substances has a property that the description of an experiment implies."""
    rows = read_knowledge_table("materials")
    names = random.sample(sorted(rows), 4)
    attribute, side, words = random.choice((
        ("molar mass", "largest", "has the heaviest atoms"),
        ("molar mass", "smallest", "has the lightest atoms"),
    ))  # fmt: skip
    while len({rows[name][attribute] for name in names}) < 4:
        names = random.sample(sorted(rows), 4)
    best = (max if side == "largest" else min)(names, key=lambda name: float(rows[name][attribute]))
    ranked = sorted((float(rows[name][attribute]), name) for name in names)
    question = f"Equal samples of four substances are compared. Which of these {words}?"
    solution = (look_up_step(attribute), ("editor", f"Pick the {side}."))
    proof = (best, ranked[-1 if side == "largest" else 0][1])
    return ProblemDraft(question, "ABCD"[names.index(best)], proof, solution, tuple(names))


def _unittest(name: str, cases: list[tuple[str, str]]) -> tuple[CodeTest, ...]:
    checks = "\n".join(f"        self.assertEqual({call}, {wanted})" for call, wanted in cases)
    return (
        CodeTest(
            "unittest",
            f"import unittest\nclass Test{name.title()}(unittest.TestCase):\n    def test_values(self):\n{checks}\n",
        ),
    )


def _draft_list_function(random: Random, names: list[str], solution: tuple[tuple[str, str], ...]) -> ProblemDraft:
    """Make a function `g(xs)` of these operations, tested on random lists; the caller adds the question."""
    body = "\n".join(f"    xs = {OPERATIONS[name][2]}" for name in names)
    program = f"def g(xs):\n{body}\n    return xs"
    scope: dict[str, object] = {}
    exec(program, scope)
    given = sample_inputs(random, 5)
    direct = [apply_operations(names, xs) for xs in given]
    again = [scope["g"](xs) for xs in given]  # type: ignore[operator]
    tests = _unittest("g", [(f"g({xs})", str(wanted)) for xs, wanted in zip(given, direct, strict=True)])
    return ProblemDraft("", program, (direct, again), solution, (), tests)


def list_function(random: Random) -> ProblemDraft:
    """Ask for a pipeline as a function instead of a program."""
    names = pick_operations(random, random.choice((2, 3)))
    words = ", then ".join(OPERATIONS[name][0] for name in names)
    draft = _draft_list_function(random, names, (PLAN, PROGRAM))
    opening = random.choice(("Write a function `g(xs)` over", "Define `g(xs)` for", "Implement `g(xs)` on"))
    return draft._replace(question=f"{opening} a list of integers: {words}; return the new list.")


def discount(random: Random) -> ProblemDraft:
    """Ask for a formula that no training family shows, as a function."""
    a, b = random.randint(2, 60), random.randint(1, 40)
    values = random.sample(range(1, 300), 4)
    program = f"def h(k):\n    return k - k * {a} / 100 + {b}"
    direct = [round(k - k * a / 100 + b, 4) for k in values]
    again = [round(k * (100 - a) / 100 + b, 4) for k in values]
    tests = _unittest("h", [(f"round(h({k}), 4)", repr(wanted)) for k, wanted in zip(values, direct, strict=True)])
    question = (
        f"Write a function `h(k)`: what is left to pay after a discount of {a} % on k euros and a fee of {b} euros."
    )
    return ProblemDraft(question, program, (direct, again), (FORMALIZE, PROGRAM), (), tests)


def two_squares(random: Random) -> ProblemDraft:
    """Ask for a decomposition into two squares, which is found by trial and checked at once. There are 200 of them."""
    while True:
        first, second = random.randint(2, 18), random.randint(19, 40)
        total = first**2 + second**2
        sums = {a + b for a in range(1, 45) for b in range(a, 45) if a * a + b * b == total}
        if len(sums) == 1:
            break
    question = f"The squares of two positive integers add up to {total}. What is the sum of the two integers?"
    return ProblemDraft(question, str(first + second), (first + second, sums.pop()), (SOLVE_ALONE, CHECK, CHECK, CHECK))


_SAMPLES = ("Kilo", "Lima", "Mike", "Oscar", "Papa", "Romeo", "Tango", "Yankee")


def melting_order(random: Random) -> ProblemDraft:
    """Ask for the order in which samples melt, from comparisons alone."""
    names = random.sample(_SAMPLES, 5)
    text, row = describe_row(random, names, "melts at more heat than", "melts at less heat than")
    words, place = random.choice((("last to melt", 0), ("first to melt", -1), ("second last to melt", 1)))
    choices, letter = letter_choices(random, names[place], names)
    proof = (choices["ABCD".index(letter)], row[place])
    return ProblemDraft(f"{text}. Which one is the {words}?", letter, proof, (*[SOLVE_ALONE] * 4, VOTE), choices)


def function_from_examples(random: Random) -> ProblemDraft:
    """Ask for a function that three example calls define."""
    names = pick_operations(random, 3)
    examples = [[random.randint(-9, 9) for _ in range(5)] for _ in range(3)]
    shown = "\n".join(f">>> g({xs})\n{apply_operations(names, xs)}" for xs in examples)
    draft = _draft_list_function(random, names, (SOLVE_ALONE, CHECK, CHECK, CHECK, CHECK))
    return draft._replace(question=f"Write the function `g(xs)` that these calls show.\n{shown}")


FAMILIES = (
    Family("digits_of_a_sum", "aime25", digits_of_a_sum),
    Family("border", "aime25", border),
    Family("two_squares", "aime25", two_squares, hard=True, solved_by_tools=False),
    Family("amount", "gpqa_diamond", amount, hard=True),
    Family("odd_one", "gpqa_diamond", odd_one),
    Family("melting_order", "gpqa_diamond", melting_order, hard=True, solved_by_tools=False),
    Family("list_function", "bigcodebench", list_function),
    Family("discount", "bigcodebench", discount),
    Family("function_from_examples", "bigcodebench", function_from_examples, hard=True, solved_by_tools=False),
)
