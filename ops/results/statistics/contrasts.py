"""Compare one system with many others: paired differences with interval, p-value, adjusted p-value and power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ops.results.statistics.estimates import average_estimates, estimate_mean
from ops.results.statistics.paired import Differences, McNemar, mcnemar_test, paired_bootstrap, sign_flip_test
from ops.results.statistics.power import Stratum, detectable_difference
from ops.results.statistics.score import score_interval

QuestionMeans = Mapping[str, Mapping[str, float]]
"""The accuracy over repeats by benchmark and question, as `ops.results.summary.accuracy_by_question` returns it."""
_MIN_DIFFERING_QUESTIONS = 10
"""If two systems differ on fewer questions than this, a bootstrap underestimates the uncertainty."""
OVERALL = ""
"""The value of `Contrast.benchmark` for the mean over benchmarks."""


class Contrast(NamedTuple):
    """Our accuracy minus another system's, as a share (0.02 means two points), on the questions that both systems
    scored."""

    system: str
    """The other system's name."""
    benchmark: str
    """The benchmark's name, or `OVERALL`."""
    difference: float
    standard_error: float
    low: float
    high: float
    p_value: float
    """The p-value of `sign_flip_test`."""
    p_adjusted: float
    """The p-value after Holm's adjustment, either for all means or for all contrasts on single benchmarks."""
    n: int
    """The number of questions."""
    mcnemar: McNemar | None
    """McNemar's test on a single benchmark; None for the mean over benchmarks."""
    detectable: float
    """The smallest true difference that the test detects with the given power, as a share."""


def compute_contrasts(
    systems: Mapping[str, QuestionMeans],
    ours: str,
    *,
    confidence: float = 0.95,
    power: float = 0.8,
    samples: int = 10_000,
    seed: int = 0,
) -> list[Contrast]:
    """Compare `systems[ours]` with every other system: first the mean over benchmarks, then each benchmark.

    Benchmarks without shared questions are left out, and so are systems without such benchmarks. P-values are adjusted
    in two families, the means over benchmarks and the single benchmarks of all systems, because a reader may pick any
    cell of the table. Intervals are bootstrapped with `samples` draws; they are score intervals if fewer than ten
    questions differ. Raises `KeyError` if `ours` is not among the systems.
    """
    our_means, rows = systems[ours], []
    for name, their_means in systems.items():
        pairs = _pair_questions(our_means, their_means) if name != ours else {}
        strata = {benchmark: a - b for benchmark, (a, b) in pairs.items()}
        groups = (
            {OVERALL: list(strata.values()), **{key: [differences] for key, differences in strata.items()}}
            if strata
            else {}
        )
        for benchmark, group in groups.items():
            if sum(int(np.count_nonzero(differences)) for differences in group) < _MIN_DIFFERING_QUESTIONS:
                interval = score_interval(group, confidence=confidence)
            else:
                interval = paired_bootstrap(group, samples=samples, confidence=confidence, seed=seed)
            estimate = average_estimates([estimate_mean(differences) for differences in group])
            rows.append(
                Contrast(
                    system=name,
                    benchmark=benchmark,
                    difference=interval.mean,
                    standard_error=estimate.standard_error,
                    low=interval.low,
                    high=interval.high,
                    p_value=sign_flip_test(group, samples=samples, seed=seed),
                    p_adjusted=1.0,
                    n=estimate.n,
                    mcnemar=mcnemar_test(*pairs[benchmark]) if benchmark in pairs else None,
                    detectable=detectable_difference(
                        [_make_stratum(differences) for differences in group], alpha=1 - confidence, power=power
                    ),
                )
            )
    return _adjust_p_values(rows)


def _pair_questions(ours: QuestionMeans, theirs: QuestionMeans) -> dict[str, tuple[Differences, Differences]]:
    """Return for each benchmark the accuracies of both systems on their shared questions, in the same order."""
    pairs = {}
    for benchmark in [name for name in ours if name in theirs]:
        a, b = ours[benchmark], theirs[benchmark]
        if shared := sorted(a.keys() & b.keys()):
            pairs[benchmark] = (np.array([a[key] for key in shared]), np.array([b[key] for key in shared]))
    return pairs


def _make_stratum(differences: Differences) -> Stratum:
    # Half a pair is added to each of the four cells, so that the estimated discordance is never zero
    # (A. Agresti and Y. Min, Statistics in Medicine 24, 2005).
    return Stratum(differences.size, float(np.sum(differences**2) + 1) / (differences.size + 2))


def _adjust_p_values(rows: Sequence[Contrast]) -> list[Contrast]:
    adjusted = np.ones(len(rows))
    for overall in (True, False):
        family = [i for i, row in enumerate(rows) if (row.benchmark == OVERALL) is overall]
        if family:
            adjusted[family] = adjust_holm([rows[i].p_value for i in family])
    return [row._replace(p_adjusted=float(p)) for row, p in zip(rows, adjusted, strict=True)]


def adjust_holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return the adjusted p-values in the given order. Rejecting those below α limits the family-wise error rate to α.

    The method is that of S. Holm, "A simple sequentially rejective multiple test procedure" (Scandinavian Journal of
    Statistics 6, 1979). It is valid under any dependence between the tests, for example tests on the same questions.
    Raises `ValueError` for a value outside [0, 1].
    """
    p = np.asarray(p_values, dtype=float)
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError("p-values lie in 0 … 1")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
