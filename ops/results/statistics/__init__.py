"""Statistics: means with intervals, paired comparisons, multiple tests, power and the choice among workers.

What belongs here: functions of numbers that depend on no system and read no file. What does not: the meaning of a claim
(`ops.evaluation`) and the decision that follows from it (`ops.release`). The unit of analysis is the question, because
repeats of a question share its difficulty. Every benchmark has the same weight.
"""

from ops.results.statistics.contrasts import OVERALL, Contrast, contrasts, holm
from ops.results.statistics.estimates import (
    MeanEstimate,
    accuracy_estimate,
    accuracy_of,
    difference_estimate,
    mean_estimate,
    mean_of,
    mean_over_seeds,
)
from ops.results.statistics.frontier import Offer, frontier
from ops.results.statistics.oracle import (
    OracleEstimate,
    choices,
    folds,
    gain_of_choice,
    hindsight_gain,
    oracle_by_chance,
    oracle_over_workers,
    prior_weight,
)
from ops.results.statistics.paired import Interval, McNemar, mcnemar, paired_bootstrap, sign_flip
from ops.results.statistics.pooled import Pooled, pooled
from ops.results.statistics.power import Stratum, detectable_paired
from ops.results.statistics.score import is_difference, score_interval

__all__ = [
    "OVERALL",
    "Contrast",
    "Interval",
    "McNemar",
    "MeanEstimate",
    "Offer",
    "OracleEstimate",
    "Pooled",
    "Stratum",
    "accuracy_estimate",
    "accuracy_of",
    "choices",
    "contrasts",
    "detectable_paired",
    "difference_estimate",
    "folds",
    "frontier",
    "gain_of_choice",
    "hindsight_gain",
    "holm",
    "is_difference",
    "mcnemar",
    "mean_estimate",
    "mean_of",
    "mean_over_seeds",
    "oracle_by_chance",
    "oracle_over_workers",
    "paired_bootstrap",
    "pooled",
    "prior_weight",
    "score_interval",
    "sign_flip",
]
