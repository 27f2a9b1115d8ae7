"""What a worker is asked: the question, the choices and the form of the answer."""

from __future__ import annotations

import string

from ops.core.problem import GraderName, Problem

ANSWER_FORMAT: dict[GraderName, str] = {
    "math": r"Give the final answer in \boxed{}.",
    "choice": 'Finish with "Answer: X", X being the letter.',
    "text": 'Finish with "Answer: " and a short answer.',
    "code": "Give the complete program in one ```python block.",
}
"""The last line of the prompt, by grader: what the grader will look for."""


def choice_lines(problem: Problem) -> list[str]:
    """The choices as `A) …` lines; none where the question offers none."""
    return [f"{letter}) {text}" for letter, text in zip(string.ascii_uppercase, problem.choices, strict=False)]


def worker_prompt(problem: Problem) -> str:
    """The question as a worker reads it: its text, its choices, and how to give the answer."""
    return "\n".join([problem.question, *choice_lines(problem), ANSWER_FORMAT[problem.grader]])
