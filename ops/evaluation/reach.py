"""How far a Conductor reaches: of what anybody here can answer, by which strategies, at which price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ops.benchmarks.registry import is_confidential
from ops.evaluation.rows import OutcomeRow


class Strategy(NamedTuple):
    """One shape of workflow (`ops.workflow.strategy.shape`)."""

    shape: str
    share: float
    """Of the well-formed workflows, in [0, 1]."""
    where: str
    """The benchmark where it is most frequent."""
    paid: int
    """Questions that it answered and no single worker did."""
    example: str
    """The workflow of one of those, or of one that it answered; empty where there is none to show."""


@dataclass(frozen=True)
class Reach:
    """Shares are of questions, in [0, 1]; repeats count each."""

    ceiling: float
    """Questions that the Conductor, its cold start or a single worker answered."""
    reached: float
    """Of those, the Conductor's."""
    valid: float
    """Completions that are workflows."""
    right_if_valid: float
    strategies: tuple[Strategy, ...] = ()
    """The most frequent first."""

    @classmethod
    def stored(cls, facts: Mapping[str, Any]) -> Reach:
        """From what `dataclasses.asdict` made of one, by way of JSON."""
        strategies = tuple(Strategy(*row) for row in facts["strategies"])
        return cls(**{**facts, "strategies": strategies})


def reach(
    conductor: Iterable[OutcomeRow],
    others: Iterable[OutcomeRow],
    alone: Iterable[OutcomeRow],
    benchmarks: Collection[str],
) -> Reach | None:
    """What the Conductor's rows on `benchmarks` come to; None without any.

    `alone`: the single workers' rows; `others`: those of systems that count for the ceiling beside them.
    """
    rows = [row for row in conductor if row.benchmark in benchmarks and not row.unscorable]
    if not rows:
        return None
    single = {row.problem_key for row in alone if row.correct}
    right = {row.problem_key for row in rows if row.correct}
    questions = {row.problem_key for row in rows}
    answerable = (single | right | {row.problem_key for row in others if row.correct}) & questions
    valid = [row for row in rows if row.format_ok]
    return Reach(
        ceiling=len(answerable) / len(questions),
        reached=len(right) / len(answerable) if answerable else 0.0,
        valid=len(valid) / len(rows),
        right_if_valid=sum(row.correct for row in valid) / len(valid) if valid else 0.0,
        strategies=tuple(_strategies(valid, single)),
    )


def _strategies(valid: Sequence[OutcomeRow], single: Collection[str]) -> list[Strategy]:
    made = []
    for shape, count in Counter(row.shape for row in valid).most_common():
        rows = [row for row in valid if row.shape == shape]
        paid = [row for row in rows if row.correct and row.problem_key not in single]
        shown = [row for row in (*paid, *rows) if row.correct and not is_confidential(row.benchmark)]
        by_benchmark = Counter(row.benchmark for row in rows)
        made.append(
            Strategy(
                shape=shape,
                share=count / len(valid),
                where=by_benchmark.most_common(1)[0][0],
                paid=len({row.problem_key for row in paid}),
                example=" ".join(shown[0].completion.split()) if shown else "",
            )
        )
    return made
