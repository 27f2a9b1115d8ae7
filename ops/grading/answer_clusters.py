"""Group responses by their answer to a question, with its grader's extraction and equality and without the gold
answer."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

from ops.core.problem import AnswerForm, Problem
from ops.grading import GRADERS, math, text
from ops.grading.program import UNPARSED, tree

Same = Callable[[str, str, Problem], bool]


def answer_clusters(problem: Problem, responses: Sequence[str | None]) -> list[list[int]]:
    """Group the indices of responses with the same answer, by first appearance; a response without an answer is in no
    group.

    Each response is compared with the first of a group in both directions, because a grader's equality treats one of
    the two as gold.
    """
    blind = replace(problem, answer="")  # some graders look at the gold answer's form to find one in a response
    extracted, same = GRADERS[problem.grader].extracted, _SAME[problem.grader]
    groups: dict[str, list[int]] = {}
    for place, response in enumerate(responses):
        answer = _normal(problem, extracted(blind, response)) if response is not None else ""
        if answer:
            alike = (known for known in groups if same(known, answer, blind) or same(answer, known, blind))
            first = answer if answer in groups else next(alike, answer)
            groups.setdefault(first, []).append(place)
    return list(groups.values())


def _normal(problem: Problem, answer: str) -> str:
    """Return a program in a form in which comments, quotes and layout do not matter."""
    if problem.grader != "code":
        return answer.strip()
    try:
        return ast.dump(tree(answer)) if answer.strip() else ""
    except UNPARSED:
        return "\n".join(line.rstrip() for line in answer.splitlines() if line.strip())


_SAME: dict[AnswerForm, Same] = {
    "math": lambda one, other, problem: math.same_answer(one, other, problem.question),
    "text": lambda one, other, problem: text.same_answer(one, other),
    "choice": lambda one, other, problem: one == other,
    "code": lambda one, other, problem: one == other,
}
