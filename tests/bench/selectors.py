"""Compare the selectors on measured outcomes (`python -m tests.bench.selectors`, `make selectors`), into the docs.

A pool is half of the models. Some samples of each are precached, and only these are given to the forecast and the
selectors. The result is computed on the *other* samples, which represent fresh rollouts: a group is a draw of G of them
without replacement, so nothing is assumed about the underlying rates.

The outcomes are LiveCodeBench's published results of February 2024, which may be absent: per question and model, how
many of ten samples passed.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from scipy.stats import spearmanr

from ops.config import Curation
from ops.core.documents import MEASUREMENTS, replace_marked_text
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.curation.selection import choose_in_domain
from ops.curation.selector import SelectionEvidence
from ops.curation.training_signal import JEFFREYS_PRIOR, Tallies, Tally, estimate_group_signals
from tests.bench.real_data import json_lines
from tests.bench.row import sized

MARK = "<!-- made by `make selectors` -->"
OUTCOMES = Path("outcomes") / "livecodebench_leaderboard_2024-02.json.gz"
SAMPLES = 10
"""Samples behind each published pass rate."""
GROUPS = (8, 64)
POOLS = sized(20, 2)
ALONE = "signal, `rescued: 0`"
PICKED = 0.25
"""Share of the questions that a selector may keep."""

Array = NDArray[np.float64]


class Outcomes(NamedTuple):
    """`passed[model, question]` of ten samples, and the questions with their properties that need no worker."""

    models: list[str]
    problems: list[Problem]
    passed: NDArray[np.int64]


class Split(NamedTuple):
    """One pool's outcomes: the precached ones, and each question's numbers of right and of all fresh samples."""

    tallies: Tallies
    right: NDArray[np.int64]
    fresh: int


def shared() -> Path:
    """Return the folder of real data beside the project."""
    return Workspace.find().root.parent / "shared"


def load(folder: Path) -> Outcomes:
    """Load the published outcomes; a question without a result of every model is left out."""
    with gzip.open(folder / OUTCOMES, "rt", encoding="utf-8") as file:
        rows = json.load(file)["performances"]
    by_name = {str(row["question_id"]): row for row in rows}
    rates = {(row["model"], str(row["question_id"])): row["pass@1"] for row in rows}
    models = sorted({model for model, _ in rates})
    names = [name for name in sorted(by_name) if all((model, name) in rates for model in models)]
    passed = np.array([[round(rates[model, name] * SAMPLES / 100) for name in names] for model in models])
    statements = json_lines(folder / "benchmarks" / "livecodebench_v1.jsonl.gz")
    texts = {row["id"].removeprefix("lcb-"): row["question"] for row in statements}
    problems = [
        Problem(n, "livecodebench", "code", "train", texts.get(n, n), "", "code", level=by_name[n]["difficulty"])
        for n in names
    ]
    return Outcomes(models, problems, passed)


def split(outcomes: Outcomes, pool: list[int], samples: int, chance: np.random.Generator, other: bool = False) -> Split:
    """Precache `samples` of each model of `pool`. The fresh samples
    are the pool's others, or those of the other models.
    """
    passed = outcomes.passed[pool]
    seen = chance.hypergeometric(passed, SAMPLES - passed, samples)
    tallies = {
        problem.key: {outcomes.models[m]: Tally(float(n), samples) for m, n in zip(pool, column, strict=True)}
        for problem, column in zip(outcomes.problems, seen.T, strict=True)
    }
    if other:
        rest = [model for model in range(len(outcomes.models)) if model not in pool]
        return Split(tallies, outcomes.passed[rest].sum(axis=0), SAMPLES * len(rest))
    return Split(tallies, (passed - seen).sum(axis=0), (SAMPLES - samples) * len(pool))


def disagree(draw: Split, group: int) -> Array:
    """Return per question the probability that `group` of the fresh samples, drawn without replacement, disagree."""

    def same(count: NDArray[np.int64]) -> Array:
        with np.errstate(invalid="ignore"):
            ways = gammaln(count + 1) - gammaln(np.maximum(count - group, 0) + 1)
        whole = gammaln(draw.fresh + 1) - gammaln(draw.fresh - group + 1)
        return np.where(count >= group, np.exp(ways - whole), 0.0)

    return np.asarray(1 - same(draw.right) - same(draw.fresh - draw.right))


def by_prior(draw: Split, group: int) -> Array:
    """Return Podium's forecast without chains, because these outcomes are of single models."""
    return np.array(list(estimate_group_signals(draw.tallies, group, rescue_prior=None).values()))


def plugged_in(draw: Split, group: int) -> Array:
    """Return the forecast with the observed mean rate as the true rate."""
    rates = np.array([np.mean([t.right / t.samples for t in ones.values()]) for ones in draw.tallies.values()])
    return np.asarray(1 - rates**group - (1 - rates) ** group)


def worker_by_worker(draw: Split, group: int) -> Array:
    """Return the forecast with each worker's rate under a separate
    Jeffreys prior; the mixture is estimated by 400 draws.
    """
    chance = np.random.default_rng(0)
    tallies = np.array([[(t.right, t.samples) for t in ones.values()] for ones in draw.tallies.values()])
    right, samples = tallies[..., 0], tallies[..., 1]
    rates = chance.beta(JEFFREYS_PRIOR.right + right, JEFFREYS_PRIOR.wrong + samples - right, (400, *right.shape)).mean(
        axis=2
    )
    return np.asarray((1 - rates**group - (1 - rates) ** group).mean(axis=0))


FORECASTS: dict[str, Callable[[Split, int], Array]] = {
    "**pooled, fitted prior**": by_prior,
    "pooled, no smoothing": plugged_in,
    "worker by worker, Jeffreys": worker_by_worker,
}


def agreement_rows(outcomes: Outcomes) -> list[str]:
    """Compare the forecast with the results of groups of fresh samples, over `POOLS` pools."""
    lines = []
    for samples, other in ((1, False), (2, False), (2, True)):
        chance = np.random.default_rng(1)
        pools = [chance.permutation(len(outcomes.models))[: len(outcomes.models) // 2].tolist() for _ in range(POOLS)]
        splits = [split(outcomes, pool, samples, chance, other) for pool in pools]
        for group in (g for g in GROUPS if g <= splits[0].fresh):
            truths = [disagree(draw, group) for draw in splits]
            for name, way in FORECASTS.items():
                guesses = [way(draw, group) for draw in splits]
                pairs = list(zip(guesses, truths, strict=True))
                # Brier score against single groups: the squared error of the probability, and the variance of a binary
                # outcome.
                brier = np.mean([((g - t) ** 2 + t * (1 - t)).mean() for g, t in pairs])
                rank = np.mean([spearmanr(g, t).statistic for g, t in pairs])
                fresh = "the other models" if other else "the same models"
                lines.append(
                    f"| {samples} | {fresh} | {group} | {name} | {np.mean(guesses):.3f} | {np.mean(truths):.3f} "
                    f"| {brier:.3f} | {rank:.2f} |"
                )
    return lines


def calibration_rows(outcomes: Outcomes, samples: int = 2) -> list[str]:
    """Return Podium's forecast by bins, with the share of groups that disagreed."""
    lines = []
    for group in GROUPS:
        chance = np.random.default_rng(1)
        pairs = []
        for _ in range(POOLS):
            pool = chance.permutation(len(outcomes.models))[: len(outcomes.models) // 2].tolist()
            draw = split(outcomes, pool, samples, chance)
            pairs.append((by_prior(draw, group), disagree(draw, group)))
        guesses, truths = np.concatenate([g for g, _ in pairs]), np.concatenate([t for _, t in pairs])
        for low in np.arange(0, 1, 0.2):
            inside = (guesses >= low) & (guesses < low + 0.2 if low < 0.8 else guesses <= 1)
            if inside.any():
                lines.append(
                    f"| {group} | {low:.1f}-{low + 0.2:.1f} | {inside.mean():.1%} | {guesses[inside].mean():.3f} "
                    f"| {truths[inside].mean():.3f} |"
                )
    return lines


def selector_rows(outcomes: Outcomes, samples: int = 1, pools: int = POOLS) -> list[str]:
    """Return the expected share of groups with non-zero variance that each selector keeps: mean ± SE over the pools."""
    places = round(PICKED * len(outcomes.problems))
    names = ("uniform", "diversity", "proxy", "disagreement", "signal", ALONE)
    shares: dict[tuple[str, int], list[float]] = {}
    chance = np.random.default_rng(2)
    place = {problem.id: number for number, problem in enumerate(outcomes.problems)}
    for seed in range(pools):
        pool = chance.permutation(len(outcomes.models))[: len(outcomes.models) // 2].tolist()
        draw = split(outcomes, pool, samples, chance)
        for group in GROUPS:
            truth = disagree(draw, group)
            for name in names:
                chains = {"rescued": 0.0} if name == ALONE else {}
                settings = Curation(selector=name.split(",")[0], per_domain=places, **chains)
                evidence = SelectionEvidence(settings, seed, draw.tallies, group)
                kept = choose_in_domain(outcomes.problems, evidence, "code")
                shares.setdefault((name, group), []).append(float(truth[[place[p.id] for p in kept]].mean()))
            shares.setdefault(("(the best possible)", group), []).append(float(np.sort(truth)[-places:].mean()))
    return [
        f"| {name} | " + " | ".join(_mean(shares[name, group]) for group in GROUPS) + " |"
        for name in (*names, "(the best possible)")
    ]


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.1%} ± {np.std(values, ddof=1) / len(values) ** 0.5:.1%}"


def tables(outcomes: Outcomes) -> str:
    """Return the three tables in Markdown."""
    half, size = len(outcomes.models) // 2, len(outcomes.problems)
    groups = " | ".join(f"G = {group}" for group in GROUPS)
    kept = round(PICKED * size)
    selectors = [f"| selector | {groups} |", "| --- |" + " --- |" * len(GROUPS), *selector_rows(outcomes)]
    agreement = ["| precached | groups of | G | forecast | its mean | groups | Brier | rank |"]
    calibration = ["| G | forecast in | questions | its mean | groups |", "| --- |" + " --- |" * 4]
    parts = [
        f"{len(outcomes.models)} models × {size} questions; {POOLS} pools of {half} models.",
        f"**Share of groups with non-zero reward variance** in the {kept} questions that a selector keeps (± SE):",
        "\n".join(selectors),
        "**Forecast against held-out groups**, over all questions (Brier: of single groups; rank: Spearman's):",
        "\n".join([*agreement, "| --- |" + " --- |" * 7, *agreement_rows(outcomes)]),
        "**Calibration of the shipped forecast**, two precached samples:",
        "\n".join([*calibration, *calibration_rows(outcomes)]),
    ]
    return "\n\n".join(parts)


def main() -> int:
    """Write the tables into files of docs/reference. Returns the exit status."""
    if not (shared() / OUTCOMES).is_file():
        print(f"no outcomes at {shared() / OUTCOMES}: the tables stay as they are", file=sys.stderr)
        return 1
    replace_marked_text(Workspace.find().root / MEASUREMENTS, MARK, tables(load(shared())))
    print(f"written to {MEASUREMENTS.with_suffix('')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
