"""Only what stands outside of reasoning is an answer, in every notation; control tokens behind it do not matter."""

from __future__ import annotations

import pytest

from ops.core.reply_text import KNOWN_NOTATIONS
from ops.grading import grade, grade_many
from tests.builders import make_problem

PROBLEMS = {
    "math": (make_problem(grader="math", answer="4"), "So \\boxed{4}", "So \\boxed{5}"),
    "choice": (
        make_problem(grader="choice", answer="B", choices=("3", "4")), "The answer is (B).", "The answer is (A).",
    ),
    "text": (make_problem(grader="text", answer="Lima"), "Answer: Lima", "Answer: Oslo"),
}  # fmt: skip
HARMONY = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}"
LEFT = (
    "<|im_end|>", "</s>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>", "\ud83d", "\ufffd", "\n<|im_end|>\n", "\x00",
)  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("notation", KNOWN_NOTATIONS, ids=lambda each: each.opening)
def test_reasoning_is_no_answer_and_does_not_hide_one(name: str, notation: object) -> None:
    problem, right, wrong = PROBLEMS[name]
    opening, closing = notation.opening, notation.closing  # type: ignore[attr-defined]
    credited = [
        f"{opening}{wrong}{closing}\n{right}",
        f"{wrong}\n{closing}\n{right}",
        f"{right}\n{opening}{wrong}{closing}",
        f"{right}\n{opening}{wrong}",
        HARMONY.format(wrong, right),
    ]
    without = [
        f"{opening}{right}",
        f"{opening}{right}{closing}",
        f"{opening}{right}{closing}\n{wrong}",
        f"{right}\n{closing}",
        f"{wrong}\n{opening}{right}",
        HARMONY.format(right, ""),
        f"<|channel|>analysis<|message|>{right}",
    ]
    assert [grade(problem, response).score for response in credited] == [1.0] * len(credited)
    assert [grade(problem, response).score for response in without] == [0.0] * len(without)


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("name", PROBLEMS)
def test_what_a_server_leaves_behind_an_answer_does_not_matter(name: str, left: str) -> None:
    problem, right, wrong = PROBLEMS[name]
    assert [grade.score for grade in grade_many([(problem, right + left), (problem, wrong + left)])] == [1.0, 0.0]
    assert grade(problem, f"<think>{wrong}</think>{right}{left}").score == 1.0
