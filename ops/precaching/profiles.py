"""Summarise precached responses: accuracy, cost and latency of the workers, and the expected training signal.

A refused answer counts as wrong. Unreachable answers are counted but excluded from every mean.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ops.curation.training_signal import Tallies


class Score(NamedTuple):
    """The mean score (0 to 1) over `n` problems, with its standard error over problems."""

    n: int
    accuracy: float
    se: float


class WorkerUsage(NamedTuple):
    """Means over a worker's answered calls: tokens, and USD at the prices that were paid."""

    calls: int
    prompt_tokens: float
    completion_tokens: float
    cost_usd: float


class Latency(NamedTuple):
    """Quantiles of the latency of a worker's answered calls, in seconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Profile:
    """The measurements of one worker by precaching; tokens and USD are means over its answered calls.

    `by_domain` and `by_subject` (with keys "domain/subject") are empty if the problems were not given.
    """

    worker: str
    overall: Score
    by_benchmark: dict[str, Score]
    prompt_tokens: float
    completion_tokens: float
    cost_usd: float
    total_usd: float
    latency_s: Latency
    calls: int
    refused: int
    unreachable: int
    truncated: int = 0
    """The number of answers that were cut off at the worker's `max_tokens` (finish reason "length")."""
    usage: dict[str, WorkerUsage] = field(default_factory=dict)
    """Benchmark → the mean usage of a call."""
    by_domain: dict[str, Score] = field(default_factory=dict)
    by_subject: dict[str, Score] = field(default_factory=dict)

    @property
    def mean_accuracy(self) -> float:
        """The unweighted mean accuracy over the benchmarks (0 to 1)."""
        return fmean(score.accuracy for score in self.by_benchmark.values()) if self.by_benchmark else 0.0

    @property
    def rates(self) -> dict[str, float]:
        """The shares of calls (0 to 1) that were refused, truncated and unreachable."""
        return {name: getattr(self, name) / max(1, self.calls) for name in ("refused", "truncated", "unreachable")}

    def as_row(self) -> dict[str, Any]:
        """Return the profile as an object for JSON."""
        row = asdict(self) | {"overall": self.overall._asdict(), "latency_s": self.latency_s._asdict()}
        for name in ("by_benchmark", "usage", "by_domain", "by_subject"):
            row[name] = {key: value._asdict() for key, value in getattr(self, name).items()}
        return row


def profile_workers(rows: Sequence[ResponseRow], problems: Iterable[Problem] = ()) -> list[Profile]:
    """Return one profile per worker, in alphabetical order.

    `problems` give the domain and the subject (an embedded problem's family) of each row.
    """
    kinds = {problem.key: problem for problem in problems}
    by_worker = _group_rows(rows, lambda row: row.worker)
    return [_profile_worker(worker, own, kinds) for worker, own in sorted(by_worker.items())]


def _profile_worker(worker: str, rows: Sequence[ResponseRow], kinds: Mapping[str, Problem]) -> Profile:
    answered = [row for row in rows if row.status == "ok"]
    known = [row for row in rows if row.problem_key in kinds]

    def domain(row: ResponseRow) -> str:
        return kinds[row.problem_key].domain

    def subject(row: ResponseRow) -> str:
        problem = kinds[row.problem_key]
        return f"{problem.domain}/{problem.subject or problem.family or 'other'}"

    total = _mean_usage(answered)
    return Profile(
        worker=worker,
        overall=_estimate_score(_compute_pass_rates(rows).values()),
        by_benchmark=_score_groups(rows, lambda row: row.benchmark),
        prompt_tokens=total.prompt_tokens,
        completion_tokens=total.completion_tokens,
        cost_usd=total.cost_usd,
        total_usd=math.fsum(row.response.cost_usd for row in answered),
        latency_s=_compute_quantiles([row.response.latency_s for row in answered]),
        calls=len(rows),
        refused=sum(row.status == "refused" for row in rows),
        unreachable=sum(row.status == "unreachable" for row in rows),
        truncated=sum(row.response.finish_reason == "length" for row in answered),
        usage={
            name: _mean_usage(own) for name, own in sorted(_group_rows(answered, lambda row: row.benchmark).items())
        },
        by_domain=_score_groups(known, domain),
        by_subject=_score_groups(known, subject),
    )


def _score_groups(rows: Sequence[ResponseRow], key: Callable[[ResponseRow], str]) -> dict[str, Score]:
    """Score each group of rows that has at least one answer."""
    groups = sorted(_group_rows(rows, key).items())
    return {name: score for name, own in groups if (score := _estimate_score(_compute_pass_rates(own).values())).n}


def _mean_usage(answered: Sequence[ResponseRow]) -> WorkerUsage:
    return WorkerUsage(
        len(answered),
        _mean_or_zero(row.response.prompt_tokens for row in answered),
        _mean_or_zero(row.response.completion_tokens for row in answered),
        _mean_or_zero(row.response.cost_usd for row in answered),
    )


def find_best_worker(rows: Sequence[ResponseRow]) -> Profile:
    """Return the profile of the first worker of `rank_workers`. Raises `ValueError` without rows."""
    if not rows:
        raise ValueError("no responses: there is no best worker")
    return rank_workers(rows)[0]


def rank_workers(rows: Sequence[ResponseRow]) -> list[Profile]:
    """Return the workers' profiles by mean accuracy over benchmarks, best first; the cheaper of two equal workers comes
    first."""
    return sorted(profile_workers(rows), key=lambda p: (-p.mean_accuracy, p.cost_usd, p.worker))


def select_oracle_rows(rows: Iterable[ResponseRow]) -> list[ResponseRow]:
    """Return for each problem the rows of the worker with the highest mean score; of equal workers the cheapest counts.

    With several samples, the oracle chooses a worker and not a lucky sample. If no worker is right and one was
    unreachable, that worker's rows are returned, because it might have been right.
    """
    problems: dict[str, dict[str, list[ResponseRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        problems[row.problem_key][row.worker].append(row)
    return [row for workers in problems.values() for row in min(workers.values(), key=_oracle_preference)]


def _oracle_preference(rows: list[ResponseRow]) -> tuple[float, bool, float, str]:
    reached = [row for row in rows if row.status != "unreachable"]
    rate, cost = _mean_or_zero(row.score for row in reached), _mean_or_zero(row.response.cost_usd for row in reached)
    return -rate, len(reached) == len(rows), cost, rows[0].worker


def score_oracle(rows: Iterable[ResponseRow]) -> dict[str, Score]:
    """Return benchmark → the score of the rows that `select_oracle_rows` chooses."""
    return _score_groups(select_oracle_rows(rows), lambda row: row.benchmark)


def map_subjects(problems: Iterable[Problem]) -> dict[str, str]:
    """Return problem key → its subject, or the family of an embedded problem."""
    return {problem.key: problem.subject or problem.family for problem in problems}


def tally_responses(rows: Iterable[ResponseRow]) -> Tallies:
    """Return problem key → worker → the number of right answers and of samples, from which the training signal is
    forecast."""
    from ops.curation.training_signal import Tally

    by_problem: dict[str, dict[str, Tally]] = defaultdict(dict)
    for row in rows:
        if row.status != "unreachable":
            right, samples = by_problem[row.problem_key].get(row.worker, (0.0, 0))
            by_problem[row.problem_key][row.worker] = Tally(right + row.score, samples + 1)
    return by_problem


class WorkerScores(NamedTuple):
    """The scores of several workers on the problems of one benchmark."""

    problems: list[str]
    """The problems' keys in sorted order, so that the order of the rows does not matter."""
    scores: NDArray[np.float64]
    """An array of shape (problems, workers, samples) with scores from 0 to 1; NaN where no answer is known."""


def tabulate_scores(rows: Iterable[ResponseRow], workers: Sequence[str]) -> dict[str, WorkerScores]:
    """Return benchmark → the scores of these workers, in this order."""
    import numpy as np

    known: dict[str, dict[tuple[str, int, int], float]] = defaultdict(dict)
    places = {worker: place for place, worker in enumerate(workers)}
    for row in rows:
        if row.worker in places and row.status != "unreachable":
            known[row.benchmark][row.problem_key, places[row.worker], row.sample] = row.score
    made = {}
    for benchmark, cells in sorted(known.items()):
        problems = sorted({problem for problem, _, _ in cells})
        lines = {problem: line for line, problem in enumerate(problems)}
        samples = 1 + max(sample for _, _, sample in cells)
        made[benchmark] = WorkerScores(problems, np.full((len(problems), len(workers), samples), np.nan))
        for (problem, worker, sample), score in cells.items():
            made[benchmark].scores[lines[problem], worker, sample] = score
    return made


def forecast_signal(rows: Sequence[ResponseRow], group_size: int, rescued: float = 0.0) -> float:
    """Return the expected share (0 to 1) of groups of `group_size` rollouts whose rewards differ (see
    `ops.curation.training_signal`).

    `rescued` is the assumed share of failing rollouts that a chain of workers corrects. Raises `ValueError` for a group
    size below 1.
    """
    from ops.curation.training_signal import estimate_group_signals, make_rescue_prior

    if group_size < 1:
        raise ValueError(f"a group has at least one rollout, not {group_size}")
    return _mean_or_zero(estimate_group_signals(tally_responses(rows), group_size, make_rescue_prior(rescued)).values())


# ── sums ─────────────────────────────────────────────────────────────────────


def _group_rows(rows: Iterable[ResponseRow], key: Any) -> Mapping[str, list[ResponseRow]]:
    groups: dict[str, list[ResponseRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _compute_pass_rates(rows: Iterable[ResponseRow]) -> dict[str, float]:
    """Return problem key → mean score over samples (and over workers, if there are several)."""
    scores: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.status != "unreachable":
            scores[row.problem_key].append(row.score)
    return {key: fmean(values) for key, values in scores.items()}


def _estimate_score(rates: Iterable[float]) -> Score:
    values = list(rates)
    if not values:
        return Score(0, 0.0, 0.0)
    mean = fmean(values)
    if len(values) == 1:
        return Score(1, mean, 0.0)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Score(len(values), mean, math.sqrt(variance / len(values)))


def _mean_or_zero(values: Iterable[float]) -> float:
    kept = list(values)
    return fmean(kept) if kept else 0.0


def _compute_quantiles(values: Sequence[float]) -> Latency:
    """Return quantiles by the nearest-rank method, so that each is a latency that was observed."""
    ordered = sorted(values) or [0.0]
    return Latency(*(ordered[min(math.ceil(q * len(ordered)), len(ordered)) - 1] for q in (0.5, 0.9, 0.99)))
