"""Group responses by their answer to a question, by its grader's rules and without the gold answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ops.core.problem import Problem
from ops.grading.grader import GRADERS


def cluster_answers(problem: Problem, responses: Sequence[str | None]) -> list[list[int]]:
    """Group the indices of responses with the same answer, in the order of first appearance.

    A response without an answer is in no group. Each response is compared with the first of a group in both directions,
    because a grader's equality treats one of the two as gold.
    """
    blind = replace(problem, answer="")  # some graders look at the gold answer's form to find one in a response
    grader = GRADERS[problem.grader]
    same = grader.is_same_answer
    groups: dict[str, list[int]] = {}
    for place, response in enumerate(responses):
        answer = grader.normalize(grader.extract_answer(blind, response)) if response is not None else ""
        if answer:
            alike = (known for known in groups if same(known, answer, blind) or same(answer, known, blind))
            first = answer if answer in groups else next(alike, answer)
            groups.setdefault(first, []).append(place)
    return list(groups.values())


def find_largest_cluster(problem: Problem, responses: Sequence[str | None]) -> list[int]:
    """Return the indices of the responses with the most frequent answer; empty if no response has an answer.

    If several answers are equally frequent, the one that was given first counts.
    """
    return max(cluster_answers(problem, responses), key=len, default=[])
