"""Sums in ordinary words: what counts as one, its value, and that every worker which can answer answers it rightly."""

from __future__ import annotations

from fractions import Fraction
from itertools import islice

import pytest

from ops.core.messages import Message
from ops.synthetic import sums
from ops.synthetic.families import FAMILIES
from ops.synthetic.generalists import SKILLS, respond
from ops.synthetic.problems import generate_drafts
from ops.synthetic.reading import parse_task
from ops.synthetic.tools import TOOLS

SUMS = {
    "What is 17 * 23?": "391",
    "What is 6 * 7?": "42",
    "17 times 23": "391",
    "Calculate 12 + 30.": "42",
    "what's 144 divided by 12?": "12",
    "What’s 144 divided by 12?": "12",
    "How much is 15 - 7?": "8",
    "How much is 15 − 7": "8",
    "3 × 4": "12",
    "144 ÷ 12 = ?": "12",
    "6x7": "42",
    "6 x 7 =": "42",
    r"What is $6 \cdot 7$?": "42",
    "What is 1,234 * 5,678?": "7006652",
    "123456789 * 987654321": "121932631112635269",
    "What is seventeen times twenty-three?": "391",
    "What is two hundred and five plus three?": "208",
    "a hundred divided by 4": "25",
    "What is the sum of 3 and 4?": "7",
    "What is the sum of 1, 2 and 3?": "6",
    "What is the difference between 3 and 8?": "5",
    "What's the product of 12 and 12": "144",
    "What is the quotient of 84 and 7?": "12",
    "Add 12 to 30": "42",
    "Subtract 7 from fifteen.": "8",
    "Multiply 12 by 12!": "144",
    "Divide 144 by 12.": "12",
    "Can you tell me what 12 + 30 is?": "42",
    "Hi, please calculate 12 + 30, thanks": "42",
    "What does 6 times 7 equal?": "42",
    "What is 2 + 3 * 4?": "14",
    "(12 + 8) / 5": "4",
    "What is 12 plus 30 minus 7?": "35",
    "What is 2 to the power of 10?": "1024",
    "2^10": "1024",
    "12 squared": "144",
    "How much is 20 % of 150?": "30",
    "What is 15 percent of 80?": "12",
    "half of 30": "15",
    "-5 + 3": "-2",
    "1.5 * 4": "6",
    "10 / 4": "2.5",
}
NO_SUMS = (
    "", "17", "What is 5?", "7 30", "What is the capital of France?", "What is 1/0?", "9**9**9", "What is 3 plus?",
    "3 apples plus 4 apples", "How much is 5 mol of iron?", "What is 10 - 3 = 7?", "I have 3 and 4", "5 less than 3",
    "7,5 + 1", "What is 2 + x?", "Ana has 3 cards, buys 4. How many are there now?", "2 + 3; import os", "+", "1 +* 2",
    "What is the greatest common divisor of 12 and 30?", "+ 3" * 300,
)  # fmt: skip


def asked(question: str, *earlier: str, form: str = "") -> list[Message]:
    turns: list[Message] = []
    for response in earlier:
        turns += [{"role": "user", "content": f"{question}{form}\n\nSubtask: Solve."}]
        turns += [{"role": "assistant", "content": response}]
    last = "Subtask: Solve the problem."
    return [*turns, {"role": "user", "content": last if turns else f"{question}{form}\n\n{last}"}]


def answers(worker: str, chat: list[Message]) -> str:
    return TOOLS[worker](parse_task(chat)) if worker in TOOLS else respond(worker, chat, sample=1).text


@pytest.mark.parametrize(("question", "value"), SUMS.items())
def test_a_sum_has_its_exact_value_and_each_worker_that_can_compute_states_it(question: str, value: str) -> None:
    assert sums.sum_value(question) == Fraction(value)
    for worker in ("algebraist", *SKILLS):
        assert answers(worker, asked(question)).endswith(f"Answer: {value}"), worker
    formula = answers("analyst", asked(question))
    assert formula == f"EXPR: {sums.find_sum(question)}"
    for worker in ("algebraist", *SKILLS):  # after the analyst, and after a wrong guess
        assert answers(worker, asked(question, formula)).endswith(f"Answer: {value}"), worker
    for worker in SKILLS:
        assert answers(worker, asked(question, "Answer: 17")).endswith(f"Answer: {value}"), worker


@pytest.mark.parametrize("question", NO_SUMS, ids=lambda text: text[:40] or "nothing")
def test_another_question_is_no_sum(question: str) -> None:
    assert sums.find_sum(question) is None
    assert sums.sum_value(question) is None


def test_no_question_of_another_family_is_a_sum() -> None:
    """Otherwise its workers' answers would have changed."""
    for family in FAMILIES:
        shown = [
            draft.question for split in ("train", "test") for draft in islice(generate_drafts(family, split, 3), 20)
        ]  # type: ignore[arg-type]
        found = [question for question in shown if sums.find_sum(question)]
        assert not found or family.name == "arithmetic", found
        assert all("\\frac" not in question for question in found)
