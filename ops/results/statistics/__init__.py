"""Statistics: means with intervals, paired comparisons, multiple tests, power, and the choice among workers.

The functions compute with numbers only; they know no system and read no file. What a claim means is decided in
`ops.evaluation`, and what follows from it in `ops.release`. The unit of analysis is the question, because repeats of a
question share its difficulty. Every benchmark has the same weight.
"""

from ops.results.statistics.contrasts import OVERALL, Contrast, adjust_holm, compute_contrasts
from ops.results.statistics.estimates import (
    MeanEstimate,
    accuracy_from_moments,
    average_estimates,
    average_over_seeds,
    estimate_accuracy,
    estimate_difference,
    estimate_mean,
)
from ops.results.statistics.frontier import PricedAccuracy, find_frontier
from ops.results.statistics.oracle import (
    OracleEstimate,
    choose_workers,
    estimate_choice_gain,
    estimate_hindsight_gain,
    estimate_oracle,
    estimate_prior_weight,
    expected_oracle_by_chance,
    iterate_folds,
)
from ops.results.statistics.paired import Interval, McNemar, mcnemar_test, paired_bootstrap, sign_flip_test
from ops.results.statistics.pooled import PooledEstimate, estimate_pooled
from ops.results.statistics.power import Stratum, detectable_difference
from ops.results.statistics.score import is_difference, score_interval

__all__ = [
    "OVERALL",
    "Contrast",
    "Interval",
    "McNemar",
    "MeanEstimate",
    "OracleEstimate",
    "PooledEstimate",
    "PricedAccuracy",
    "Stratum",
    "accuracy_from_moments",
    "adjust_holm",
    "average_estimates",
    "average_over_seeds",
    "choose_workers",
    "compute_contrasts",
    "detectable_difference",
    "estimate_accuracy",
    "estimate_choice_gain",
    "estimate_difference",
    "estimate_hindsight_gain",
    "estimate_mean",
    "estimate_oracle",
    "estimate_pooled",
    "estimate_prior_weight",
    "expected_oracle_by_chance",
    "find_frontier",
    "is_difference",
    "iterate_folds",
    "mcnemar_test",
    "paired_bootstrap",
    "score_interval",
    "sign_flip_test",
]
