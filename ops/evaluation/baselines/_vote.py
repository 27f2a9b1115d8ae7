"""Majority votes over the workers' stored answers, one answer each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ops.benchmarks.registry import BENCHMARKS
from ops.core.problem import Problem
from ops.core.rows import ResponseRow
from ops.evaluation.rows import OutcomeRow
from ops.grading.answer_clusters import clusters


def ballots(rows: Iterable[ResponseRow]) -> list[list[ResponseRow]]:
    """Group the answers by question and sample, each group in the order of the rows."""
    asked: dict[tuple[str, str, int], list[ResponseRow]] = defaultdict(list)
    for row in rows:
        asked[row.benchmark, row.problem_id, row.sample].append(row)
    return list(asked.values())


def vote(ballot: Sequence[ResponseRow]) -> OutcomeRow:
    """Return the outcome of the most frequent answer; ties go to the answer given first.

    Tokens and USD are those of all answers, the latency is the slowest one's. An unreachable worker makes the row
    unscorable.
    """
    groups = clusters(_blind(ballot[0]), [row.extracted if row.status == "ok" else "" for row in ballot])
    elected = max(groups, key=len)[0] if groups else 0
    every = [OutcomeRow.of_response(row) for row in ballot]
    return replace(
        every[elected],
        steps=len(every),
        workers=tuple(row.worker for row in ballot),
        tokens=sum(row.tokens for row in every),
        cost_usd=sum(row.cost_usd for row in every),
        latency_s=max(row.latency_s for row in every),
        unscorable=any(row.unscorable for row in every),
        usage=tuple(use for row in every for use in row.usage),
    )


def _blind(row: ResponseRow) -> Problem:
    """Return the problem of a stored answer as far as the comparison of answers needs it."""
    known = BENCHMARKS[row.benchmark]
    return Problem(row.problem_id, row.benchmark, known.domain, "test", "", "", known.grader)
