"""Smoothie, independent of the question: all workers answer, and the one that lies nearest to all others counts."""

from __future__ import annotations

from collections.abc import Sequence

from ops.evaluation.baseline import asking
from ops.evaluation.baselines._smoothie import DIFFERS, SOURCE, closest, deviations, distances, everybody
from ops.evaluation.method import Attempt, Known, Method


@asking("Smoothie", place=60, calls=lambda workers: workers, source=SOURCE, differs=DIFFERS)
def smoothie(known: Known) -> Method:
    """One estimate of each worker for a whole benchmark (the paper's Smoothie-Global). Raises as `everybody` does."""
    return Method.beside(everybody(known), choose)


def choose(attempts: Sequence[Attempt]) -> list[int]:
    """The same worker for every question that it answered."""
    return closest(attempts, deviations(distances(attempts).mean(axis=0, keepdims=True)))
