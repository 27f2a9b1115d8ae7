"""What precaching measured of the workers: accuracy, cost, latency, and the signal to expect in training.

What belongs here: pure arithmetic on response rows. What does not: getting the
rows (precache), and statistics that compare two policies (evaluation).

A refused answer counts as wrong. An unreachable one counts as nothing: it is
missing from every mean here, and only counted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, NamedTuple

from ops.errors import DataError
from ops.workers.precache import ResponseRow


class Score(NamedTuple):
    """Mean score (0-1) over `n` problems with its standard error, the problems being the sample."""

    n: int
    accuracy: float
    se: float


class Latency(NamedTuple):
    """Quantiles of the answered calls (seconds)."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Profile:
    """One worker as precaching measured it; tokens and USD are means per call."""

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

    @property
    def mean_accuracy(self) -> float:
        """Mean over the benchmarks, each weighing the same (0-1)."""
        return fmean(score.accuracy for score in self.by_benchmark.values()) if self.by_benchmark else 0.0

    def as_row(self) -> dict[str, Any]:
        """A JSON-ready row."""
        row = asdict(self) | {"overall": self.overall._asdict(), "latency_s": self.latency_s._asdict()}
        return row | {"by_benchmark": {name: score._asdict() for name, score in self.by_benchmark.items()}}


def profile(rows: Sequence[ResponseRow]) -> list[Profile]:
    """One profile per worker, in the workers' alphabetical order."""
    by_worker = _grouped(rows, lambda row: row.worker)
    return [_profile(worker, own) for worker, own in sorted(by_worker.items())]


def _profile(worker: str, rows: Sequence[ResponseRow]) -> Profile:
    by_benchmark = _grouped(rows, lambda row: row.benchmark)
    answered = [row for row in rows if row.status == "ok"]
    return Profile(
        worker=worker,
        overall=_score(_pass_rates(rows).values()),
        by_benchmark={
            name: score for name, own in sorted(by_benchmark.items()) if (score := _score(_pass_rates(own).values())).n
        },
        prompt_tokens=_mean(row.prompt_tokens for row in answered),
        completion_tokens=_mean(row.completion_tokens for row in answered),
        cost_usd=_mean(row.cost_usd for row in answered),
        total_usd=math.fsum(row.cost_usd for row in answered),
        latency_s=_quantiles([row.latency_s for row in answered]),
        calls=len(rows),
        refused=sum(row.status == "refused" for row in rows),
        unreachable=sum(row.status == "unreachable" for row in rows),
    )


def best_single(rows: Sequence[ResponseRow]) -> Profile:
    """The worker with the best mean over benchmarks; of equals the cheaper. `ValueError`: no rows."""
    profiles = profile(rows)
    if not profiles:
        raise ValueError("no responses: there is no best worker")
    return min(profiles, key=lambda p: (-p.mean_accuracy, p.cost_usd, p.worker))


def oracle(rows: Sequence[ResponseRow]) -> dict[str, Score]:
    """Benchmark → what choosing the best worker for each problem, with hindsight, would score.

    With several samples a worker's rate on a problem is its mean: the oracle knows the
    worker, not the luck of a sample.
    """
    best: dict[tuple[str, str], float] = {}
    for own in _grouped(rows, lambda row: row.worker).values():
        for key, rate in _pass_rates(own).items():
            best[key] = max(rate, best.get(key, 0.0))
    by_benchmark: dict[str, list[float]] = defaultdict(list)
    for (benchmark, _), rate in sorted(best.items()):
        by_benchmark[benchmark].append(rate)
    return {benchmark: _score(rates) for benchmark, rates in by_benchmark.items()}


def successes(rows: Sequence[ResponseRow]) -> dict[str, list[str]]:
    """Problem id → the workers that answered it right in at least half of their samples, sorted.

    Problems that nobody answered are there with an empty list. Raises `DataError` when
    two benchmarks use one id.
    """
    found = {key: list[str]() for key in _by_problem(rows)}
    for worker, own in sorted(_grouped(rows, lambda row: row.worker).items()):
        for (_, problem_id), rate in _pass_rates(own).items():
            if rate >= 0.5:
                found[problem_id].append(worker)
    return found


def disagreement(rows: Sequence[ResponseRow]) -> dict[str, float]:
    """Problem id → pass rate over the workers (0-1): near 0.5 they disagree most.

    Each worker weighs the same, however many samples it has. Raises `DataError` when two
    benchmarks use one id.
    """
    rates: dict[str, list[float]] = defaultdict(list)
    _by_problem(rows)
    for own in _grouped(rows, lambda row: row.worker).values():
        for (_, problem_id), rate in _pass_rates(own).items():
            rates[problem_id].append(rate)
    return {problem_id: fmean(values) for problem_id, values in sorted(rates.items())}


def signal_forecast(rows: Sequence[ResponseRow], group: int) -> float:
    """Expected share of groups whose rewards differ, so that GRPO has an advantage to learn from.

    A forecast before money is spent: each of the `group` rollouts asks one uniformly
    random worker, right with the problem's pass rate p: 1 - p^G - (1-p)^G.
    """
    if group < 1:
        raise ValueError(f"a group has at least one rollout, not {group}")
    return _mean(1.0 - p**group - (1.0 - p) ** group for p in disagreement(rows).values())


# ── sums ─────────────────────────────────────────────────────────────────────


def _grouped(rows: Iterable[ResponseRow], key: Any) -> Mapping[str, list[ResponseRow]]:
    groups: dict[str, list[ResponseRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _pass_rates(rows: Iterable[ResponseRow]) -> dict[tuple[str, str], float]:
    """(benchmark, problem id) → mean score over samples (and workers, if there are several)."""
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.status != "unreachable":
            scores[row.benchmark, row.problem_id].append(row.score)
    return {key: fmean(values) for key, values in scores.items()}


def _by_problem(rows: Iterable[ResponseRow]) -> dict[str, str]:
    """Problem id → benchmark. Ids are unique within a benchmark; keyed by id alone, also across them."""
    benchmarks: dict[str, str] = {}
    for row in rows:
        if benchmarks.setdefault(row.problem_id, row.benchmark) != row.benchmark:
            raise DataError(
                "worker responses", f"problem {row.problem_id!r}",
                f"is in both {benchmarks[row.problem_id]} and {row.benchmark}",
                "Give problems ids that are unique over all benchmarks",
            )  # fmt: skip
    return dict(sorted(benchmarks.items()))


def _score(rates: Iterable[float]) -> Score:
    values = list(rates)
    if not values:
        return Score(0, 0.0, 0.0)
    mean = fmean(values)
    if len(values) == 1:
        return Score(1, mean, 0.0)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return Score(len(values), mean, math.sqrt(variance / len(values)))


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return fmean(kept) if kept else 0.0


def _quantiles(values: Sequence[float]) -> Latency:
    """Nearest-rank quantiles: each is a latency that was seen."""
    ordered = sorted(values) or [0.0]
    return Latency(*(ordered[min(math.ceil(q * len(ordered)), len(ordered)) - 1] for q in (0.5, 0.9, 0.99)))
