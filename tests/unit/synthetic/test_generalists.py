"""The generalists: repeatable, without access to gold answers, and wrong only with a named misstep."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ops.core.problem import Problem
from ops.grading import grade, worker_prompt
from ops.synthetic import generalists
from ops.synthetic.families import FAMILIES
from ops.synthetic.generalists import SKILLS, Skill, Thought, think
from ops.synthetic.generalists import thought as thinking
from ops.synthetic.problems import generate, mirrored

Messages = list[dict[str, str]]
FLAWLESS = Skill(
    reading=0, arithmetic=0, algebra=0, programming=0, memory=1, units=0, tries=20_000, search=60_000, trust=0
)


def messages(question: str, subtask: str = "Solve the problem.", *earlier: str) -> Messages:
    opening = f"{question}\n\nSubtask: "
    turns: Messages = []
    for response in earlier:
        turns += [{"role": "user", "content": f"{opening}Solve it."}, {"role": "assistant", "content": response}]
        opening = "Subtask: "
    return [*turns, {"role": "user", "content": opening + subtask}]


def asked(problem: Problem, subtask: str = "Solve the problem.", *earlier: str) -> Messages:
    return messages(worker_prompt(problem), subtask, *earlier)


@cache
def problems(per_benchmark: int) -> list[Problem]:
    return [problem for name in sorted(mirrored()) for problem in generate(name, "test", per_benchmark, 3)]


def right(problem: Problem, thought: Thought) -> bool:
    return grade(problem, thought.text).correct


@pytest.mark.parametrize("name", SKILLS)
def test_every_wrong_answer_has_a_misstep(name: str) -> None:
    for problem in problems(8):
        thought = think(name, asked(problem), temperature=0.7)
        assert thought.missteps or right(problem, thought), (problem.question, problem.answer, thought.text)


def test_a_generalist_without_missteps_answers_everything_correctly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(thinking.SKILLS, "flawless", FLAWLESS)
    families = Counter(problem.family for problem in problems(8))
    failed = Counter(
        problem.family for problem in problems(8) if not right(problem, think("flawless", asked(problem)))
    )
    assert set(families) == {family.name for family in FAMILIES}
    # A rule of up to three operations can explain the examples without being the intended one.
    guessed = {"from_examples", "from_more_examples", "function_from_examples"}
    assert not set(failed) - guessed
    assert all(failed[name] < families[name] for name in guessed)


def test_the_same_sample_repeats_and_another_is_another_opinion() -> None:
    shown = [asked(problem) for problem in problems(10)]
    first = [think("solver", chat, sample=0, temperature=0.7).text for chat in shown]
    assert [think("solver", chat, sample=0, temperature=0.7).text for chat in shown] == first
    second = [think("solver", chat, sample=1, temperature=0.7).text for chat in shown]
    assert len(shown) // 10 <= sum(a != b for a, b in zip(first, second, strict=True)) < len(shown)


def test_at_temperature_0_every_sample_is_the_same() -> None:
    for problem in problems(4):
        texts = {think("scholar", asked(problem), sample=sample, temperature=0.0).text for sample in range(4)}
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
        assert think(name, asked(changed)) == think(name, asked(problem))


PAIR = "Two whole numbers add up to 51 and multiply to 440. What is the larger one?\nGive the answer in \\boxed{}."
"""40 and 11."""


def test_a_right_answer_passes_the_check_and_a_wrong_one_is_sought_again() -> None:
    for sample in range(20):
        kept = think("solver", messages(PAIR, "Check the answer.", "\\boxed{40}"), sample=sample)
        assert kept.text.endswith("\\boxed{40}")
        assert not kept.missteps
    alone = sum("\\boxed{40}" in think("solver", messages(PAIR), sample=sample).text for sample in range(400))
    checked = sum(
        "\\boxed{40}" in think("solver", messages(PAIR, "Check the answer.", "\\boxed{31}"), sample=sample).text
        for sample in range(400)
    )
    assert checked > alone + 40  # two more searches, and a test that tells


def test_an_earlier_answer_misleads_a_worker_without_the_instruction_to_check() -> None:
    misled = [think("apprentice", messages(PAIR, "Answer.", "\\boxed{31}"), sample=n) for n in range(40)]
    believed = [thought for thought in misled if thought.text.endswith("\\boxed{31}")]
    assert len(believed) > 20
    assert all(thought.missteps[-1].kind == "trust" for thought in believed)


def test_a_shown_fact_and_a_shown_plan_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(thinking.SKILLS, "flawless", FLAWLESS)
    question = 'What is the mass of 10 cubic centimetres of iron?\nFinish with "Answer: " and a short answer.'
    shown = think("flawless", messages(question, "Solve it.", "FACT: density of iron = 100 g/cm^3"), temperature=0.0)
    assert shown.text.endswith("Answer: 1000 g")
    owns = "Ana owns 5 coins. Bo owns 2 more than Ana. How many does Bo own now?\nGive the \\boxed{} answer."
    plan = think("flawless", messages(owns, "Compute the result.", "PLAN: ana = 50; bo = ana + 2"), temperature=0.0)
    assert plan.text.endswith("\\boxed{52}")
