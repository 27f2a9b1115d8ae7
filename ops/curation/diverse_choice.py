"""Two ways to choose diverse problems: an even draw over strata, and a weighted choice that also prefers new words.

A stratum is a family or subject together with a level. `choose_diverse` greedily maximises a sum over strata of the
square root of each stratum's total. A problem contributes its weight, up to half of which depends on its novelty: the
share of its word uni- and bigrams that no chosen problem has yet. Because of the root, a second problem of a stratum
adds less than the first problem of another one; because of novelty, near repetitions add less. Both only ever lower a
gain, so gains can be refreshed lazily, and the result is that of the plain greedy choice.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ops.benchmarks.source_rows import shuffle_by_hash
from ops.core.problem import Problem
from ops.curation.question_text import tokenize


def stratum(problem: Problem) -> tuple[str, str]:
    """Return the stratum of a problem: its family, or its subject without a family; and its level."""
    return problem.family or problem.subject, problem.level


def draw_evenly(
    problems: Sequence[Problem],
    count: int,
    seed: int,
    stratum_of: Callable[[Problem], Hashable] = stratum,
) -> list[Problem]:
    """Draw at most `count` problems, distributed evenly over their strata; return them in the given order.

    `stratum_of` maps a problem to its stratum. Each stratum gets an equal number of places as far as it can fill them.
    Unfilled places go to other strata, and remaining places to strata chosen by the seed. Within a stratum the seed
    chooses. The result depends on the problems' names, not on their order.
    """
    ranked = shuffle_by_hash(list(problems), [problem.key for problem in problems], seed)
    taken: Counter[Hashable] = Counter()
    turns: list[tuple[int, str]] = []
    for problem in ranked:
        turns.append((taken[stratum_of(problem)], problem.key))
        taken[stratum_of(problem)] += 1
    chosen = {name for _, name in sorted(turns, key=lambda turn: turn[0])[:count]}
    return [problem for problem in problems if problem.key in chosen]


CANDIDATES_PER_PLACE = 20
"""The number of candidates that are examined for each place; more are first sampled evenly over the strata."""
MIN_WEIGHT = 1e-3
"""The minimum weight of a problem, so that all places can be filled."""
REPEATED_WEIGHT_SHARE = 0.5
"""The share of its weight that a problem without new words keeps, since many problems differ only in their numbers."""
COVERAGE_DESCRIPTION = (
    "strata (family or subject, and level) are covered, and questions that say what no chosen one says."
)
"""The rule of `choose_diverse`, in the words of the data card."""
NOVELTY_OFFSET = 5
"""The number of words that count as covered in every question, so that a short text does not seem entirely new. A word
that only one question has is ignored."""

Features = NDArray[np.int64]


def choose_diverse(problems: Sequence[Problem], weights: Mapping[str, float], places: int, seed: int) -> list[Problem]:
    """Choose at most `places` problems by weight and diversity; return them in the given order.

    `weights` maps `BENCHMARK/ID` to a weight of at least 0; it is 1 where absent. The result depends on the problems'
    names, texts and weights and on the seed, not on their order.
    """
    pool = draw_evenly(problems, places * CANDIDATES_PER_PLACE, seed)
    if len(pool) <= places:
        return pool
    pool = shuffle_by_hash(pool, [problem.key for problem in pool], seed)
    worth = [max(weights.get(problem.key, 1.0), MIN_WEIGHT) for problem in pool]
    features, size = _number_features(pool)
    covered = np.zeros(size, dtype=bool)
    gathered: defaultdict[tuple[str, str], float] = defaultdict(float)

    def value(place: int) -> float:
        own = features[place]
        new = (len(own) - int(covered[own].sum())) / (len(own) + NOVELTY_OFFSET)
        return worth[place] * (REPEATED_WEIGHT_SHARE + (1 - REPEATED_WEIGHT_SHARE) * new)

    def gain(place: int) -> float:
        before = gathered[stratum(pool[place])]
        return math.sqrt(before + value(place)) - math.sqrt(before)

    waiting = [(-gain(place), place) for place in range(len(pool))]
    heapq.heapify(waiting)
    chosen: set[str] = set()
    while len(chosen) < places:
        _, place = heapq.heappop(waiting)
        fresh = (-gain(place), place)
        if waiting and fresh > waiting[0]:
            heapq.heappush(waiting, fresh)
            continue
        gathered[stratum(pool[place])] += value(place)
        covered[features[place]] = True
        chosen.add(pool[place].key)
    return [problem for problem in problems if problem.key in chosen]


def _number_features(problems: Sequence[Problem]) -> tuple[list[Features], int]:
    """Return the numbered word uni- and bigrams that each question
    shares with another question, and their total number.
    """
    grams = [_list_grams(tokenize(problem.question)) for problem in problems]
    counts = Counter(gram for question in grams for gram in question)
    numbers = {gram: number for number, gram in enumerate(gram for gram, count in counts.items() if count > 1)}
    return [
        np.array([numbers[gram] for gram in question if gram in numbers], dtype=np.int64) for question in grams
    ], len(numbers)


def _list_grams(words: Sequence[str]) -> set[str]:
    return {*words, *(f"{word} {following}" for word, following in pairwise(words))}
