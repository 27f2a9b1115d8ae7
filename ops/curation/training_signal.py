"""Statistics of the workers' stored responses: pass rates, agreement of workers, and the expected training signal.

The signal of a problem is the probability that the rollouts of a group on it are neither all right nor all wrong.

GRPO normalises rewards within a group of G rollouts of one problem: a group in which all are right, or all wrong, has
no advantage and teaches nothing about answers. Each rollout picks its worker independently, so with the workers' pass
rates p_1 … p_W the probability that it is right is the mean rate p, and

P(disagree | p) = 1 - p^G - (1 - p)^G.

p is known only from a few samples. Pooled over workers they are s right of n; with a Beta(a, b) prior, p is Beta(a + s,
b + n - s), whose moments give the expectation in closed form. The prior is fitted to all problems of the benchmark
(empirical Bayes): hard problems are hard for every worker, so rates accumulate at 0 and 1, and a prior that treats each
worker's rate as independent would forecast disagreement nearly everywhere.

Rollouts also chain workers, and a chain can solve what no worker solves alone. The model therefore gives a rollout that
would fail a second chance u, with a Beta prior of its own (`make_rescue_prior`): it is right with probability 1 - (1 -
p)(1 - u). This is why problems that no worker solves alone have a higher forecast than problems that all workers solve.
The mean of u is an assumption (the recipe's `curation.rescued`), not a measurement; None leaves chains out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import betaln, gammaln, logsumexp, psi

from ops.benchmarks.graded import read_graded_responses
from ops.config import Curation
from ops.core.errors import DataError
from ops.core.problem import Problem, benchmark_of
from ops.core.response_rows import ResponseRow, response_file


class Tally(NamedTuple):
    """The number of right answers among a worker's `samples` answers to a problem; a pooled tally may have
    fractions."""

    right: float
    samples: float


class BetaDistribution(NamedTuple):
    """A Beta distribution of a probability, given by equivalent counts of right and wrong answers."""

    right: float
    wrong: float


Counts = NDArray[np.int64]
Tallies = Mapping[str, Mapping[str, Tally]]
"""Problem's key → worker's name → tally. Unmeasured pairs are absent."""

JEFFREYS_PRIOR = BetaDistribution(0.5, 0.5)
RESCUE_PRIOR_SAMPLES = 4.0
"""The number of prior samples; it is small, because chains rescue hardly any rollout on most problems and many on some.
"""
_PENALTY_WIDTH = 1.5
"""Standard deviation (in logarithms) of the penalty that pulls the fitted parameters towards Jeffreys's prior."""


def make_rescue_prior(mean: float) -> BetaDistribution | None:
    """Return the prior of the probability that a chain of workers rescues a failing rollout; None for a mean of 0."""
    return BetaDistribution(mean * RESCUE_PRIOR_SAMPLES, (1 - mean) * RESCUE_PRIOR_SAMPLES) if mean else None


DEFAULT_RESCUE_PRIOR = make_rescue_prior(Curation().rescued)


def pool_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the tally of a worker picked at random: the mean rate, and the number of samples with the same
    variance."""
    known = [tally for tally in tallies if tally.samples]
    if not known:
        return Tally(0.0, 0.0)
    rate = sum(tally.right / tally.samples for tally in known) / len(known)
    samples = len(known) ** 2 / sum(1 / tally.samples for tally in known)
    return Tally(rate * samples, samples)


def fit_prior(tallies: Iterable[Tally]) -> BetaDistribution:
    """Return the Beta prior with the highest likelihood of these pooled tallies; close to Jeffreys's prior for few
    data."""
    counts: defaultdict[Tally, int] = defaultdict(int)
    for tally in tallies:
        counts[tally] += 1
    seen = np.array([(*tally, count) for tally, count in sorted(counts.items())], dtype=float).reshape(-1, 3)
    right, samples, times = seen.T

    def negative_log_likelihood(logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the penalised negative log-likelihood and its gradient."""
        a, b = np.exp(logs)
        fit = times * (betaln(a + right, b + samples - right) - betaln(a, b))
        both = psi(a + b) - psi(a + b + samples)
        slopes = [a * (times * (psi(a + right) - psi(a) + both)).sum(),
                  b * (times * (psi(b + samples - right) - psi(b) + both)).sum()]  # fmt: skip
        away = logs - np.log(JEFFREYS_PRIOR)
        return float(-fit.sum() + (away**2).sum() / (2 * _PENALTY_WIDTH**2)), away / _PENALTY_WIDTH**2 - np.array(
            slopes
        )

    # To far more digits than are kept: an optimiser's last ones differ between machines, and the data must not.
    exact = {"ftol": 0.0, "gtol": 1e-8}
    optimum = minimize(
        negative_log_likelihood,
        np.log(JEFFREYS_PRIOR),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-6, 6)] * 2,
        options=exact,
    )
    a, b = (float(f"{value:.4g}") for value in np.exp(optimum.x))
    return BetaDistribution(a, b)


@lru_cache(maxsize=1 << 14)
def estimate_group_signal(
    tally: Tally,
    group_size: int,
    prior: BetaDistribution = JEFFREYS_PRIOR,
    rescue_prior: BetaDistribution | None = DEFAULT_RESCUE_PRIOR,
) -> float:
    """Return the probability that `group_size` rollouts on a problem are neither all right nor all wrong.

    `tally` is the problem's pooled tally. `rescue_prior` is that of `make_rescue_prior`; None means that rollouts do
    not chain workers.
    """
    rate = BetaDistribution(prior.right + tally.right, prior.wrong + tally.samples - tally.right)
    if rescue_prior is None:
        return 1 - float(np.exp(_log_moment(rate, group_size, 0)) + np.exp(_log_moment(rate, 0, group_size)))
    none = np.exp(_log_moment(rate, 0, group_size) + _log_moment(rescue_prior, 0, group_size))
    # 1 - (1 - p)(1 - u) = u + (1 - u) p; its power G expands by the binomial theorem without negative terms.
    by_rate = np.arange(group_size + 1)
    choose = gammaln(group_size + 1) - gammaln(by_rate + 1) - gammaln(group_size - by_rate + 1)
    every = np.exp(
        logsumexp(choose + _log_moment(rescue_prior, group_size - by_rate, by_rate) + _log_moment(rate, by_rate, 0))
    )
    return min(1.0, max(0.0, 1 - float(none + every)))


def estimate_group_signals(
    tallies: Tallies,
    group_size: int,
    rescue_prior: BetaDistribution | None = DEFAULT_RESCUE_PRIOR,
    problems: Iterable[str] | None = None,
) -> dict[str, float]:
    """Return problem's key → the probability that `group_size` rollouts on it are neither all right nor all wrong.

    `problems` None stands for all measured problems. The prior is fitted to each benchmark's measured problems; the
    forecast of a problem without answers is that of the prior.
    """
    wanted = tallies if problems is None else problems
    evidence = {key: pool_tallies(tallies.get(key, {}).values()) for key in wanted}
    priors = {
        name: fit_prior(tally for key, tally in evidence.items() if benchmark_of(key) == name)
        for name in sorted(set(map(benchmark_of, evidence)))
    }
    return {
        key: estimate_group_signal(tally, group_size, priors[benchmark_of(key)], rescue_prior)
        for key, tally in evidence.items()
    }


def _log_moment(chance: BetaDistribution, right: int | Counts, wrong: int | Counts) -> NDArray[np.float64]:
    """Return log E[p^right (1 - p)^wrong] of a Beta-distributed p."""
    moment: NDArray[np.float64] = betaln(chance.right + right, chance.wrong + wrong) - betaln(*chance)
    return moment


Agreement = Literal["all", "some", "none", "unmeasured"]
"""How many workers solve a problem alone: all of them in every sample, some, none; or no worker has answered."""


def classify_agreement(problem: Problem, tallies: Tallies) -> Agreement:
    """Return how many of the workers that answered the problem solve it."""
    measured = tallies.get(problem.key, {}).values()
    if not measured:
        return "unmeasured"
    if all(tally.right >= tally.samples for tally in measured):
        return "all"
    return "some" if any(tally.right > 0 for tally in measured) else "none"


def count_agreements(problems: Sequence[Problem], tallies: Tallies) -> Counter[Agreement]:
    """Return the number of problems in each class of agreement."""
    return Counter(classify_agreement(problem, tallies) for problem in problems)


def tally_responses(rows: Iterable[ResponseRow]) -> Tallies:
    """Return problem → worker → tally of right answers. Unreachable calls are left out; refusals count as wrong."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.status != "unreachable":
            scores[row.problem_key][row.worker].append(row.score)
    return {
        key: {worker: Tally(sum(samples), len(samples)) for worker, samples in by_worker.items()}
        for key, by_worker in scores.items()
    }


def read_responses(folder: Path, workers: Iterable[str], benchmarks: Iterable[str]) -> list[ResponseRow]:
    """Read the responses of these workers to these benchmarks. Raises `DataError` if a file is missing or
    unreadable."""
    wanted = list(benchmarks)
    files = [response_file(folder, worker, benchmark) for worker in workers for benchmark in wanted]
    for file in files:
        if not file.is_file():
            remedy = "Materialize worker_responses for this worker and benchmark"
            raise DataError(file, "", "does not exist", remedy)
    return [row for file in files for row in read_graded_responses(file)]
