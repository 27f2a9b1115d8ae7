"""The embedded workers. Generalists: repeatable, without gold answers, wrong only with a named misstep. Tools: the
subtask and the access list change their answers."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.core.messages import Message
from ops.core.problem import Problem
from ops.grading import grade, worker_prompt
from ops.synthetic import generalists
from ops.synthetic.families import FAMILIES
from ops.synthetic.formula import NotAFormula, parse_formula
from ops.synthetic.generalists import SKILLS, GeneralistResponse, Skill, respond
from ops.synthetic.generalists import procedure as thinking
from ops.synthetic.problems import generate_problems, mirrored_benchmarks
from ops.synthetic.reading import parse_task
from ops.synthetic.tools import TOOLS

FLAWLESS = Skill(
    reading=0, arithmetic=0, algebra=0, programming=0, memory=1, units=0, tries=20_000, search=60_000, trust=0
)


def messages(question: str, subtask: str = "Solve the problem.", *earlier: str) -> list[Message]:
    """The messages of a step that sees these responses of earlier ones."""
    opening = f"{question}\n\nSubtask: "
    turns: list[Message] = []
    for response in earlier:
        turns += [{"role": "user", "content": f"{opening}Solve it."}, {"role": "assistant", "content": response}]
        opening = "Subtask: "
    return [*turns, {"role": "user", "content": opening + subtask}]


def asked(problem: Problem) -> list[Message]:
    return messages(worker_prompt(problem))


@cache
def problems(per_benchmark: int) -> list[Problem]:
    return [
        problem
        for name in sorted(mirrored_benchmarks())
        for problem in generate_problems(name, "test", per_benchmark, 3)
    ]


def right(problem: Problem, thought: GeneralistResponse) -> bool:
    return grade(problem, thought.text).correct


@pytest.mark.parametrize("name", SKILLS)
def test_every_wrong_answer_has_a_misstep(name: str) -> None:
    for problem in problems(8):
        thought = respond(name, asked(problem), temperature=0.7)
        assert thought.missteps or right(problem, thought), (problem.question, problem.answer, thought.text)


def test_a_generalist_without_missteps_answers_everything_correctly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(thinking.SKILLS, "flawless", FLAWLESS)
    families = Counter(problem.family for problem in problems(8))
    wrong = [problem for problem in problems(8) if not right(problem, respond("flawless", asked(problem)))]
    failed = Counter(problem.family for problem in wrong)
    assert set(families) == {family.name for family in FAMILIES}
    # A rule of up to three operations can explain the examples without being the intended one.
    guessed = {"from_examples", "from_more_examples", "function_from_examples"}
    assert not set(failed) - guessed
    assert all(failed[name] < families[name] for name in guessed)


def test_the_same_sample_repeats_and_another_is_another_opinion() -> None:
    shown = [asked(problem) for problem in problems(10)]
    first = [respond("solver", chat, sample=0, temperature=0.7).text for chat in shown]
    assert [respond("solver", chat, sample=0, temperature=0.7).text for chat in shown] == first
    second = [respond("solver", chat, sample=1, temperature=0.7).text for chat in shown]
    assert len(shown) // 10 <= sum(a != b for a, b in zip(first, second, strict=True)) < len(shown)


def test_at_temperature_0_every_sample_is_the_same() -> None:
    for problem in problems(4):
        texts = {respond("scholar", asked(problem), sample=sample, temperature=0.0).text for sample in range(4)}
        assert len(texts) == 1


def test_workers_see_messages_alone() -> None:
    """No module of theirs imports knowledge of how a question was made, or its answer."""
    folder = Path(generalists.__file__).parent
    for file in (*folder.glob("*.py"), *(folder.parent / "tools").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            for name in (module, *(f"{module}.{name}" for name in names)):
                assert not name.startswith(("ops.synthetic.families", "ops.synthetic.problems", "ops.core.problem"))


@pytest.mark.parametrize("name", SKILLS)
def test_another_gold_answer_changes_no_response(name: str) -> None:
    for problem in problems(5):
        changed = replace(problem, answer="something else", tests=())
        assert asked(changed) == asked(problem)  # the gold answer is not among the messages
        assert respond(name, asked(changed)) == respond(name, asked(problem))


PAIR = "Two whole numbers add up to 51 and multiply to 440. What is the larger one?\nGive the answer in \\boxed{}."
"""40 and 11."""


def test_a_right_answer_passes_the_check_and_a_wrong_one_is_sought_again() -> None:
    for sample in range(20):
        kept = respond("solver", messages(PAIR, "Check the answer.", "\\boxed{40}"), sample=sample)
        assert kept.text.endswith("\\boxed{40}")
        assert not kept.missteps
    alone = sum("\\boxed{40}" in respond("solver", messages(PAIR), sample=sample).text for sample in range(400))
    checked = sum(
        "\\boxed{40}" in respond("solver", messages(PAIR, "Check the answer.", "\\boxed{31}"), sample=sample).text
        for sample in range(400)
    )
    assert checked > alone + 40  # two more searches, and a test that tells


def test_an_earlier_answer_misleads_a_worker_without_the_instruction_to_check() -> None:
    misled = [respond("apprentice", messages(PAIR, "Answer.", "\\boxed{31}"), sample=n) for n in range(40)]
    believed = [thought for thought in misled if thought.text.endswith("\\boxed{31}")]
    assert len(believed) > 20
    assert all(thought.missteps[-1].kind == "trust" for thought in believed)


def test_a_shown_fact_and_a_shown_plan_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(thinking.SKILLS, "flawless", FLAWLESS)
    question = 'What is the mass of 10 cubic centimetres of iron?\nFinish with "Answer: " and a short answer.'
    shown = respond("flawless", messages(question, "Solve it.", "FACT: density of iron = 100 g/cm^3"), temperature=0.0)
    assert shown.text.endswith("Answer: 1000 g")
    owns = "Ana owns 5 coins. Bo owns 2 more than Ana. How many does Bo own now?\nGive the \\boxed{} answer."
    plan = respond("flawless", messages(owns, "Compute the result.", "PLAN: ana = 50; bo = ana + 2"), temperature=0.0)
    assert plan.text.endswith("\\boxed{52}")


# ── tools ────────────────────────────────────────────────────────────────────

BOXED = "Give the final answer in \\boxed{}."
LETTER = 'Finish with "Answer: X", X being the letter.'
SHORT = 'Finish with "Answer: " and a short answer.'
PROGRAM = "Give the complete program in one ```python block."


def ask(tool: str, question: str, form: str, subtask: str, *earlier: str) -> str:
    return TOOLS[tool](parse_task(messages(f"{question}\n{form}", subtask, *earlier)))


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
    ["__import__('os')", "x.real", "9**9**9", "(" * 500, "lambda: 1", "1 if 2 else 3", "2**10000", "print(1)", "[1]"],
)
def test_formulas_are_read_and_never_run(text: str) -> None:
    with pytest.raises(NotAFormula):
        parse_formula(text)
