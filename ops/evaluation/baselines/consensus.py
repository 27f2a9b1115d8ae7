"""Baseline: the majority vote of all workers, one answer each."""

from __future__ import annotations

from ops.evaluation.baseline import Answers, Standing, baseline
from ops.evaluation.baselines._vote import ballots, vote
from ops.evaluation.runner import summarize


@baseline("consensus", place=40, usual=False)
def consensus(answers: Answers) -> Standing:
    """Score the vote on the evaluation questions."""
    return Standing(summarize(map(vote, ballots(answers.evaluation))), "all workers")
