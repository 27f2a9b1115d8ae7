"""Baseline: Smoothie-Global; all workers answer, and one worker's answers are chosen for a whole benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from ops.evaluation.baseline import asking
from ops.evaluation.baselines._smoothie import DIFFERS, SOURCE, closest, deviations, distances, everybody
from ops.evaluation.method import Attempt, Known, Method


@asking("Smoothie", place=60, calls=lambda workers: workers, source=SOURCE, differs=DIFFERS, own_answers=True)
def smoothie(known: Known) -> Method:
    """Every worker answers, and the answer of the worker that agrees most with the others on the benchmark counts.

    Raises `ValueError` for fewer than three workers.
    """
    return Method.beside(everybody(known), choose)


def choose(attempts: Sequence[Attempt]) -> list[int]:
    """Choose the worker with the smallest deviation over all questions, among those that answered the question."""
    return closest(attempts, deviations(distances(attempts).mean(axis=0, keepdims=True)))
