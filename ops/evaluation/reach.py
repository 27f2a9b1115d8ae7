"""Reach of a Conductor: its share of the answerable questions, and the strategies that it uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ops.benchmarks.registry import is_confidential
from ops.evaluation.rows import OutcomeRow


class Strategy(NamedTuple):
    """The use of one shape of workflow (`ops.workflow.strategy.shape`)."""

    shape: str
    share: float
    """The share of well-formed workflows with this shape, in [0, 1]."""
    where: str
    """The benchmark on which the shape is most frequent."""
    paid: int
    """The number of questions that workflows of this shape answered and no single worker did."""
    example: str
    """A workflow for one of those questions, or else for any question that the shape answered; empty if there is no
    such question on a public benchmark."""


@dataclass(frozen=True)
class Reach:
    """The Conductor's share of the answerable questions, and its strategies; all shares are in [0, 1]."""

    ceiling: float
    """The share of questions that the Conductor, its cold start or a single worker answered at any repeat."""
    reached: float
    """The Conductor's share of the questions within the ceiling."""
    valid: float
    """The share of rows with a well-formed workflow."""
    right_if_valid: float
    """The share of right answers among the rows with a well-formed workflow."""
    strategies: tuple[Strategy, ...] = ()
    """Shapes of workflows, the most frequent first."""

    @classmethod
    def stored(cls, facts: Mapping[str, Any]) -> Reach:
        """Restore a `Reach` from JSON that was made with `dataclasses.asdict`."""
        strategies = tuple(Strategy(*row) for row in facts["strategies"])
        return cls(**{**facts, "strategies": strategies})


def reach(
    conductor: Iterable[OutcomeRow],
    others: Iterable[OutcomeRow],
    alone: Iterable[OutcomeRow],
    benchmarks: Collection[str],
) -> Reach | None:
    """Compute the reach on `benchmarks` from the Conductor's rows; None without scored rows.

    `alone` are the rows of single workers; `others` are rows of further systems that count for the ceiling.
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
