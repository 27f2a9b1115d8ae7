"""Where a response answers: behind headings and lists, before a next question, in JSON, behind the mark `####`."""

from __future__ import annotations

import json

import pytest

from ops.grading import grade
from tests.builders import make_problem

METALS = ("Copper", "Iron", "Neon", "Zinc")
TEN = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")


def letter(response: str, choices: tuple[str, ...] = METALS) -> str:
    return grade(make_problem(grader="choice", answer="A", choices=choices), response).extracted


LIST = "\nA. Copper is a metal.\nB. Iron is a metal.\nC. Neon is a gas.\nD. Zinc is a metal.\n\n"


@pytest.mark.parametrize(
    "heading",
    [
        "Let's analyze each option:", "Option analysis:", "Breaking down the answer:", "Looking at the letter:",
        "Step 2: Evaluate each selection:", "To determine the answer:", "Now consider the choice:", "Answer choices:",
        "4. **Select the correct option:**", "Possible answers:", "To get the answer:", "**Options:**",
        "Let's think about the best choice:",
    ],
)  # fmt: skip
@pytest.mark.parametrize("conclusion", ["The answer is (C).", "C is the noble gas.", "Thus, choice C is correct."])
def test_a_heading_that_introduces_a_list_states_nothing(heading: str, conclusion: str) -> None:
    assert letter(heading + LIST + conclusion) == "C"
    assert letter(heading + LIST) == ""


@pytest.mark.parametrize(
    "heading",
    ["Answer:", "My final choice:", "The correct option:", "So the answer is:", "Thus we get the answer:", "## Answer"],
)
def test_a_heading_that_announces_an_answer_states_the_next_line(heading: str) -> None:
    assert letter(f"It is inert.\n\n{heading}\n\n**C. Neon**\n\nCopper and iron are metals.") == "C"
    assert letter(f"{heading}\n(B) Iron\n(C) Neon") == "", "two are no answer"


@pytest.mark.parametrize(
    ("response", "wanted"),
    [
        ("ANSWER: <B>", "B"),
        ("ANSWER: <b>B</b>", "B"),
        ("Conclusion: (B). Eliminated: (A), (C), (D).", "B"),
        ("Ruled out: (A), (C), (D)\nRemaining: (B)", "B"),
        ("Wrong: A, C, D. Right: B.", "B"),
        ("**B. Iron**\n\nRationale: copper (A) is red, neon (C) is a gas and zinc (D) is grey.", "B"),
        ("The answer is B. The answer is also C.", ""),
        ("Answer: C, but D is also correct", ""),
        ("Answer: C\nAlternatively, D.", ""),
        ("Answer: C (D would also be possible)", ""),
        (r"\boxed{C} or \boxed{D}", ""),
        ("**C** or **D**", ""),
        ("Answer: C\n\nD also needs a full shell. A is red.", "C"),
        ("We get d[A]/dt = -k[A][B].", ""),
        ("ln([A]) = -kt + ln([A]_0)", ""),
        ("Let (A) = 3x.", ""),
        ("Thus a = b + 2.\na = 4, so\nb", ""),
        ("The temperature is 25 °C.", ""),
        ("The correct answer is James D. Watson.", ""),
        ("The answer is N/A.", ""),
        ("Statement (D) is correct. The answer is not in the options provided.", ""),
        ("C is nowhere near correct.", ""),
        ("It is a long derivation in which D is the diameter of the tube. " * 8, ""),
        ("The energy of an atom with this radius is given by the energy of B " * 8, ""),
        ("The passage speaks of metals.\n\nB. Iron\n\nThis follows from its second paragraph.", "B"),
    ],
)
def test_what_only_looks_like_a_letter_is_none(response: str, wanted: str) -> None:
    assert letter(response) == wanted


@pytest.mark.parametrize("response", ["I think so.", "I would say it is plausible.", "I must admit it.", "I"])
def test_the_pronoun_is_no_letter_in_a_sentence(response: str) -> None:
    assert letter(response, TEN) == ("I" if response == "I" else "")


@pytest.mark.parametrize(
    "mark",
    ["Question:", "### Question 2\n", "**Question 2:**", "Q:", "Next question:", "Human:", "User:", "Exercise 3."],
)
@pytest.mark.parametrize("stated", ["Answer: 18", "The answer is 18.", r"It is \boxed{18}.", "18", "#### 18"])
def test_a_next_question_ends_the_answer(mark: str, stated: str) -> None:
    response = f"She has them.\n{stated}\n\n{mark} Tom has 3 cats. How many paws?\nAnswer: 12"
    assert grade(make_problem(grader="math", answer="18"), response).correct
    assert not grade(make_problem(grader="math", answer="12"), response).correct
    assert letter("So C is correct.\n\n" + response.partition("\n\n")[2].replace("12", "B")) == "C"


def test_a_question_that_is_repeated_before_the_answer_ends_nothing() -> None:
    response = "Let us see.\n\n**Question:** How many are 9 and 9?\nOptions:\nA. 9\nB. 18\n\nAnswer: 18"
    assert grade(make_problem(grader="math", answer="18"), response).correct
    assert grade(make_problem(answer="Lima"), "Q: What is the capital of Peru?\nA: Lima").correct


def wrapped(value: object) -> list[str]:
    """Replies that a pool may ask for by `response_format`."""
    return [
        json.dumps({"answer": value}),
        json.dumps({"reasoning": "The answer is 8 or (A).", "final_answer": value}),
        json.dumps({"answer": value, "explanation": "The answer is not 8."}),
        "```json\n" + json.dumps({"steps": [{"result": 8}], "answer": value}, indent=2) + "\n```",
        "Here it is: " + json.dumps({"output": {"answer": value, "confidence": 8}}) + " I hope this helps.",
        str({"answer": value}),
    ]


@pytest.mark.parametrize(
    ("grader", "gold", "value"),
    [
        ("math", "9", 9), ("math", "9", "9"), ("math", "-1/2", -0.5), ("math", r"\frac{1}{2}", r"\frac{1}{2}"),
        ("math", "1, 2", [1, 2]), ("choice", "C", "C"), ("choice", "C", "(C) Neon"), ("choice", "C", "Neon"),
        ("text", "9", 9), ("text", "Lima", "Lima"), ("text", "9 m", "9 m"),
    ],
)  # fmt: skip
def test_every_grader_reads_json(grader: str, gold: str, value: object) -> None:
    problem = make_problem(grader=grader, answer=gold, choices=METALS if grader == "choice" else ())
    assert [response for response in wrapped(value) if not grade(problem, response).correct] == []


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        (r'{"answer": "\sqrt{2}"}', r"\sqrt{2}"),
        (r'{"answer": "\frac{1}{2}"}', r"\frac{1}{2}"),
        (r'{"answer": "\\frac{1}{2}"}', r"\frac{1}{2}"),
        (r'{"answer": "\(\text{even}\)"}', r"\text{even}"),
        ('{"answer": 8}\nWait, that is wrong.\n{"answer": 9}', "9"),
        ('The set is {"a", "b"}; its size is 2.', "2"),
    ],
)
def test_json_with_formulas_and_corrections(response: str, gold: str) -> None:
    assert grade(make_problem(grader="math", answer=gold), response).correct


@pytest.mark.parametrize("response", ['{"answer": null, "other": "C"}', '{"answer": ""}'])
def test_json_without_an_answer_states_none(response: str) -> None:
    assert letter(response) == ""


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        ("Thus, there are 8 8-point bucks. #### 8", "8"),
        ("She spends $160 a week, which is 40% of the total. #### 160", "160"),
        ("She has 3+5=8.####8", "8"),
        ("#### 8\n\nThis follows because she has 5 and 3.", "8"),
        ("#### 7\n\nWait, I forgot one.\n\n#### 8", "8"),
        ("The answer is 7. #### 8", "8"),
        ("### 1. Setup\n\n#### 1.1 Values\nWe have 3 and 5.\n\n#### 1.2 Sum\n3+5=8\n\nThe sum is 8.", "8"),
        ("#### $n = 1$\nThat is 24.\n\n#### $n = 2$\nThen it is 48.\n\nThe answer is 48.", "48"),
        ("#### Step 1: Count\nThere are 3.\n#### Step 2: Add 5\nSo it is 8.", "8"),
        ("Final Answer: The largest $n$ is 34.", "34"),
        ("Final Answer: $n$ must be 34", "34"),
        ("Final Answer: Since a = 30 and b = 4, the sum is 34.", "34"),
        ("Final Answer: There are 34 such numbers.", "34"),
        ("Answer: Janet makes $18 every day at the farmers' market.", "18"),
        ("Answer: Let $x$ be the number. Then $2x = 20$, so $x = 10$.", "10"),
        ("**Answer:**\n\nWe add 2 and 3 and double the sum.\n\n$2(2+3)=10$.\n\nSo the total is **10**.", "10"),
        ("36 dollars in total (3 tickets at 12 dollars)", "36"),
        ("We test each option:\n$x=3$ gives 5.\n$x=4$ gives 0.\n\nTherefore $x=4$.", "4"),
    ],
)
def test_what_stands_behind_a_mark_or_an_announcement(response: str, gold: str) -> None:
    assert grade(make_problem(grader="math", answer=gold), response).correct


@pytest.mark.parametrize(
    ("response", "wrong"),
    [
        ("She spends $160 a week, which is 40% of the total. #### 160", "40"),
        ("#### 8\n\nThis follows because she has 5 and 3.", "3"),
        ("Final Answer: The smallest of the 5 primes is 11.", "5"),
        ("Answer: It is more than 5", "5"),
        ("Answer: She can never get 5 of them.", "5"),
        ("36 dollars in total (3 tickets at 12 dollars)", "12"),
        ("We test each option:\n$x=3$ gives 5.\n$x=4$ gives 0.\n\nTherefore $x=4$.", "3"),
    ],
)
def test_what_stands_before_a_mark_or_beside_the_value_is_no_answer(response: str, wrong: str) -> None:
    assert not grade(make_problem(grader="math", answer=wrong), response).correct
