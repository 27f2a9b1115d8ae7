"""Choose the problems of a step in proportion to the expected variance of their rewards.

At first the variance is forecast from precached responses: if a rollout is right with probability p, its rewards of 0.5
and 1 have the variance p(1 - p) / 4. During training, the observed rewards of a domain's subject correct the forecast
for all problems of that subject. The correction is a ratio that is shrunk towards 1, and old observations lose weight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any

from ops.benchmarks.graded import read_graded_responses
from ops.config import Setup
from ops.core.problem import Problem

HALF_LIFE_STEPS = 20
"""The number of steps after which an observation has half of its weight."""
PRIOR_GROUPS = 1.0
"""The number of observed groups that have as much weight as a subject's forecast."""
UNIFORM_SHARE = 0.1
"""The share (0-1) of the questions that is spread evenly over all problems, so that each is chosen sometimes."""
_PAIR_TO_VARIANCE = 1 / 8
"""The factor from the probability 2p(1 - p) that two rollouts differ to the variance p(1 - p) / 4 of their rewards."""


def forecast_variances(setup: Setup, problems: Sequence[Problem]) -> dict[str, float]:
    """Return the variance of each problem's rewards by the problem's key, forecast from the precached responses.

    Raises `DataError` if the responses cannot be read.
    """
    from ops.curation.training_signal import estimate_group_signals, make_rescue_prior
    from ops.precaching.profiles import tally_responses

    rows = [row for row in read_graded_responses(setup.workspace.data / "responses") if row.worker in setup.pool.names]
    chains, keys = make_rescue_prior(setup.recipe.curation.rescued), [problem.key for problem in problems]
    pairs = estimate_group_signals(tally_responses(rows), 2, chains, keys)
    return {key: chance * _PAIR_TO_VARIANCE for key, chance in pairs.items()}


class WeightedRoundRobin:
    """Chooses problems by weighted round-robin.

    The credit of each problem grows by its share at every step, and the problems with the most credit are chosen. With
    equal shares, each problem is chosen once before any is chosen again. Only the initial credits are random; they
    depend on the seed.
    """

    def __init__(self, problems: Sequence[Problem], seed: int, expected: Mapping[str, float]) -> None:
        """Begin with random credits. `expected` maps each problem's key to the forecast variance of its rewards."""
        random = Random(f"order {seed}")
        self._problems = {problem.key: problem for problem in problems}
        self._credits = {key: random.random() for key in self._problems}
        self._expected = dict(expected)
        self._observed: defaultdict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        """The weighted sums of observed and of forecast variances, by domain and subject."""

    def choose_problems(self, count: int) -> list[Problem]:
        """Return the `count` problems of the next step."""
        for key, share in self.problem_shares().items():
            self._credits[key] += min(1.0, count * share)
        chosen = sorted(self._credits, key=lambda key: -self._credits[key])[:count]
        for key in chosen:
            self._credits[key] -= 1.0
        return [self._problems[key] for key in chosen]

    def problem_shares(self) -> dict[str, float]:
        """Return each problem's share of the questions by the problem's key. The shares add up to 1."""
        ratios = self._ratios()
        weights = {key: self._expected[key] * ratios[_subject_of(problem)] for key, problem in self._problems.items()}
        total, even = sum(weights.values()), 1 / len(weights)
        if not total:
            return dict.fromkeys(weights, even)
        return {key: UNIFORM_SHARE * even + (1 - UNIFORM_SHARE) * weight / total for key, weight in weights.items()}

    def _ratios(self) -> dict[str, float]:
        """Return the ratio of the observed to the forecast variance, by domain and subject."""
        forecasts: defaultdict[str, list[float]] = defaultdict(list)
        for key, problem in self._problems.items():
            forecasts[_subject_of(problem)].append(self._expected[key])
        ratios = {}
        for subject, values in forecasts.items():
            prior = PRIOR_GROUPS * fmean(values)
            seen, predicted = self._observed.get(subject, (0.0, 0.0))
            ratios[subject] = (prior + seen) / (prior + predicted) if prior + predicted else 1.0
        return ratios

    def record_variances(self, variances: Iterable[tuple[str, float]]) -> None:
        """Record the results of one step, given as pairs of a question's key and the variance of its rewards."""
        kept = 0.5 ** (1 / HALF_LIFE_STEPS)
        for subject, (seen, predicted) in self._observed.items():
            self._observed[subject] = (kept * seen, kept * predicted)
        for key, variance in variances:
            seen, predicted = self._observed[_subject_of(self._problems[key])]
            self._observed[_subject_of(self._problems[key])] = (seen + variance, predicted + self._expected[key])

    @property
    def state(self) -> dict[str, Any]:
        """Return everything on which the choice in later steps depends, in a form for JSON.

        The forecast is included, because new responses would change it.
        """
        return {"claims": dict(self._credits), "expected": self._expected, "seen": dict(self._observed)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that the property `state` returned."""
        self._credits = {key: state["claims"][key] for key in self._problems}
        self._expected = state["expected"]
        self._observed.clear()
        self._observed.update({subject: (seen, predicted) for subject, (seen, predicted) in state["seen"].items()})


def _subject_of(problem: Problem) -> str:
    return f"{problem.domain}/{problem.subject}"
