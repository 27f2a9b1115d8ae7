"""Diverse choice: an even, seeded draw over strata (family, subject, level)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from ops.benchmarks.order import shuffled
from ops.core.problem import Problem


def stratum(problem: Problem) -> tuple[str, str]:
    """What makes problems alike: the family, or the subject where there is none; and the level."""
    return problem.family or problem.subject, problem.level


def draw(
    problems: Sequence[Problem],
    count: int,
    seed: int,
    key: Callable[[Problem], Hashable] = stratum,
) -> list[Problem]:
    """At most `count` problems, in the order given, shared out evenly over the strata of `key`.

    Each stratum gets an equal number of places as far as it can fill them; what it cannot fill goes to
    the others, and odd places to strata chosen by the seed. Within a stratum the seed chooses. The
    result depends on the problems' names, not on their order.
    """
    ranked = shuffled(list(problems), [problem.key for problem in problems], seed)
    taken: Counter[Hashable] = Counter()
    turns: list[tuple[int, str]] = []
    for problem in ranked:
        turns.append((taken[key(problem)], problem.key))
        taken[key(problem)] += 1
    chosen = {name for _, name in sorted(turns, key=lambda turn: turn[0])[:count]}
    return [problem for problem in problems if problem.key in chosen]
