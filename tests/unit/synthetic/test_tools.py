"""The tool workers: the subtask and the access list change their answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.synthetic.formula import NotAFormula, parse
from ops.synthetic.reading import read
from ops.synthetic.tools import TOOLS

BOXED = "Give the final answer in \\boxed{}."
LETTER = 'Finish with "Answer: X", X being the letter.'
SHORT = 'Finish with "Answer: " and a short answer.'
PROGRAM = "Give the complete program in one ```python block."


def ask(tool: str, question: str, form: str, subtask: str, *earlier: str) -> str:
    opening = f"{question}\n{form}\n\nSubtask: "
    turns = [*[("Earlier.", response) for response in earlier], (subtask, None)]
    messages = []
    for index, (told, response) in enumerate(turns):
        messages.append({"role": "user", "content": (opening if index == 0 else "Subtask: ") + told})
        if response is not None:
            messages.append({"role": "assistant", "content": response})
    return TOOLS[tool](read(messages))


@pytest.mark.parametrize(
    ("subtask", "answer"),
    [
        ("Find the zeros.", "\\boxed{2, 3}"),
        ("Find the derivative.", "\\boxed{2 x - 5}"),
        ("Find the minimum.", "\\boxed{- \\frac{1}{4}}"),
        ("Find the integral.", "\\boxed{\\frac{x^{3}}{3} - \\frac{5 x^{2}}{2} + 6 x}"),
    ],
)
def test_the_subtask_commands_the_algebraist(subtask: str, answer: str) -> None:
    assert ask("algebraist", "Let $f(x) = x^{2} - 5 x + 6$.", BOXED, subtask) == answer


def test_the_algebraist_works_on_what_it_is_shown_and_keeps_its_unit() -> None:
    assert ask("algebraist", "A tale.", SHORT, "Compute.", "EXPR: 3*7.87 [g]") == "Answer: 23.61 g"
    assert ask("algebraist", "A tale.", BOXED, "Compute.", "EXPR: (5)+2", "EXPR: (PREV)*2") == "\\boxed{14}"
    assert "no formula" in ask("algebraist", "A tale.", BOXED, "Compute.")


def test_the_librarian_needs_the_attribute_named_somewhere() -> None:
    question = "Which money do people in Japan pay with?\nA) yen\nB) euro"
    assert "Say what to look up" in ask("librarian", question, LETTER, "Solve the problem.")
    assert ask("librarian", question, LETTER, "Look up the currency.").endswith("Answer: A")
    literal = ask("librarian", "What is the currency of Japan?\nA) yen\nB) euro", LETTER, "Solve the problem.")
    assert literal.endswith("Answer: A")


def test_the_librarian_goes_on_from_an_earlier_fact() -> None:
    shown = "FACT: country of Tokyo = Japan"
    question = "What is the currency of the land governed from Tokyo?\nA) yen\nB) euro"
    assert ask("librarian", question, LETTER, "Look up the currency.", shown).endswith("Answer: A")
    assert "Say what to look up" in ask("librarian", question, LETTER, "Look up the currency.")


def test_the_analyst_formalizes_and_asks_for_the_fact_it_lacks() -> None:
    question = "What is the mass of 3 cubic centimetres of iron?"
    assert "look up the density" in ask("analyst", question, SHORT, "Write it as a formula.")
    shown = "FACT: density of iron = 7.87 g/cm^3"
    assert ask("analyst", question, SHORT, "Write it as a formula.", shown) == "EXPR: 3*7.87 [g]"


def test_the_analyst_reads_four_clauses_at_a_time() -> None:
    story = "Ana has 5 cards, buys 1, buys 2, buys 3, the pile then doubles. How many are there now?"
    assert ask("analyst", story, BOXED, "Write it as a formula.").startswith("EXPR: (((5)+1)+2)+3\n")
    assert ask("analyst", story, BOXED, "Read the rest.") == "EXPR: (PREV)*2"


def test_the_programmer_follows_a_plan_or_finds_the_rule() -> None:
    assert "xs = xs[::-1]" in ask("programmer", "Anything.", PROGRAM, "Write.", "PLAN: sort; reverse")
    shown = "Input: 3 1 2\nOutput: 1 2 3\nInput: 9 4\nOutput: 4 9"
    assert "sorted(xs)" in ask("programmer", f"Find the rule.\n{shown}", PROGRAM, "Write.")
    assert "I need a plan" in ask("programmer", "Read integers and reverse the order.", PROGRAM, "Write.")
    assert "def f(k):" in ask("programmer", "Anything.", PROGRAM, "Write.", "EXPR: f(k) = 2*k")


def test_the_editor_compares_converts_and_chooses() -> None:
    facts = "FACT: density of iron = 7.87 g/cm^3\nFACT: density of gold = 19.30 g/cm^3"
    question = "Which of these sinks?\nA) iron\nB) gold"
    assert ask("editor", question, LETTER, "Pick the largest.", facts) == "Answer: B"
    assert ask("editor", question, LETTER, "Pick the smallest.", facts) == "Answer: A"
    assert ask("editor", "How far?\nA) 2 m\nB) 2000 m", LETTER, "Choose the letter.", "Answer: 2 km") == "Answer: B"
    assert ask("editor", "Convert 2 hours to minutes.", SHORT, "Convert the units.") == "Answer: 120 min"


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=300),
    st.text(max_size=60),
    st.lists(st.text(max_size=120), max_size=2),
    st.sampled_from(sorted(TOOLS)),
)
def test_any_request_gets_some_answer(question: str, subtask: str, earlier: list[str], tool: str) -> None:
    answer = ask(tool, question, SHORT, subtask, *earlier)
    assert isinstance(answer, str) and answer


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "x.real",
        "9**9**9",
        "(" * 500,
        "lambda: 1",
        "1 if 2 else 3",
        "2**10000",
        "print(1)",
        "[1]",
    ],
)
def test_formulas_are_read_and_never_run(text: str) -> None:
    with pytest.raises(NotAFormula):
        parse(text)
