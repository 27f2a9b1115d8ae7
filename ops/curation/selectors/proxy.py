"""Prefer problems by level, length and form of the answer, before any worker is called.

These proxies were not fitted to any worker. Problems of medium difficulty within their benchmark are assumed to divide
workers most, and level, length and the form of the answer stand for difficulty.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from ops.core.problem import Problem
from ops.curation.diverse_choice import COVERAGE_DESCRIPTION, choose_diverse
from ops.curation.question_text import tokenize
from ops.curation.selector import SelectionEvidence, Weighting, selector

PROXY_DESCRIPTIONS = (
    ("level", "the middle of the benchmark's levels, where it states levels"),
    ("length", "a question of middling length for its benchmark, in words"),
    ("disagreement", "choices that share words with each other; without choices, a long gold answer, or many tests"),
)
"""Each proxy and its preference, for the data card."""
_NAMED_LEVELS = {"easy": 0.0, "medium": 1.0, "hard": 2.0}
_MIN_WEIGHT = 0.2
"""The weight of the least promising problem, which is above 0 because a proxy may be wrong."""


def compute_proxy_weights(problems: Sequence[Problem]) -> dict[str, float]:
    """Return `BENCHMARK/ID` → the mean of the problem's proxies, each from 0.2 to 1 and compared within its
    benchmark."""
    grouped: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        grouped[problem.benchmark].append(problem)
    return {name: weight for group in grouped.values() for name, weight in _weigh_benchmark(group)}


def _weigh_benchmark(problems: list[Problem]) -> Iterable[tuple[str, float]]:
    level = _rank_values(problems, _read_level)
    length = _rank_values(problems, lambda problem: float(len(problem.question.split())))
    divided = _rank_values(problems, _estimate_disagreement)
    for problem in problems:
        name = problem.key
        proxies = [_prefer_middle(ranks[name]) for ranks in (level, length) if name in ranks]
        proxies += [_MIN_WEIGHT + (1 - _MIN_WEIGHT) * divided[name]] if name in divided else []
        yield name, fmean(proxies) if proxies else 1.0


def _rank_values(problems: list[Problem], value: Callable[[Problem], float | None]) -> dict[str, float]:
    """Return name → the rank of its value, from 0 (lowest) to 1 (highest); empty if all values are equal.

    Equal values share a rank.
    """
    values = {problem.key: amount for problem in problems if (amount := value(problem)) is not None}
    places = sorted(values.values())
    if not places or places[0] == places[-1]:
        return {}
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for place, amount in enumerate(places):
        first.setdefault(amount, place)
        last[amount] = place
    return {name: (first[amount] + last[amount]) / 2 / (len(places) - 1) for name, amount in values.items()}


def _prefer_middle(rank: float) -> float:
    return 1 - (1 - _MIN_WEIGHT) * abs(2 * rank - 1)


def _read_level(problem: Problem) -> float | None:
    if problem.level.casefold() in _NAMED_LEVELS:
        return _NAMED_LEVELS[problem.level.casefold()]
    digits = re.search(r"\d+", problem.level)
    return float(digits[0]) if digits else None


def _estimate_disagreement(problem: Problem) -> float:
    if problem.choices:
        return _mean_similarity([frozenset(tokenize(choice)) for choice in problem.choices])
    return float(problem.test_count) if problem.test_count else float(len(tokenize(problem.answer)))


def _mean_similarity(sets: list[frozenset[str]]) -> float:
    pairs = [(choice, other) for place, choice in enumerate(sets) for other in sets[:place]]
    return fmean(len(choice & other) / max(len(choice | other), 1) for choice, other in pairs) if pairs else 0.0


EXPLANATION = (
    "The mean of these proxies, each from 0.2 to 1 and compared within its benchmark. They are guesses:\n\n"
    + "\n".join(f"- {name}: preferred is {preferred}." for name, preferred in PROXY_DESCRIPTIONS)
)
PROXY_WEIGHTING = Weighting(
    "Proxies", lambda evidence: EXPLANATION, lambda problems, evidence: compute_proxy_weights(problems)
)


@selector(
    "**Nothing here was measured**: no worker has answered. Preferred are problems that by proxies should "
    f"divide workers. Beside it, {COVERAGE_DESCRIPTION}",
    weighting=PROXY_WEIGHTING,
)
def proxy(candidates: Sequence[Problem], places: int, evidence: SelectionEvidence) -> list[Problem]:
    """Choose by the proxies and by the words of the questions (`ops.curation.diverse_choice`)."""
    return choose_diverse(candidates, compute_proxy_weights(candidates), places, evidence.seed)
