"""The oracle over single workers: for every question the worker that answers it, known with hindsight.

No system that sends a question to one worker can beat it, so a Conductor above it
has made workers do together what none of them does alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ops.core.rows import ResponseRow
from ops.evaluation.baselines.single_worker import score_rows
from ops.evaluation.runner import ScoreRow


def rows(responses: Iterable[ResponseRow]) -> list[ScoreRow]:
    """For each question the rows of the worker that is right most often; of equals the cheaper.

    With several samples the oracle knows the worker, not the luck of a sample. Where
    nobody is right and a worker could not be reached, that worker might have been:
    its unscorable rows are given.
    """
    questions: dict[str, dict[str, list[ScoreRow]]] = defaultdict(lambda: defaultdict(list))
    for row in score_rows(responses):
        questions[row.problem_key][row.workers[0]].append(row)
    return [row for workers in questions.values() for row in min(workers.values(), key=_preference)]


def _preference(rows: list[ScoreRow]) -> tuple[float, bool, float, str]:
    scored = [row for row in rows if not row.unscorable]
    rate = sum(row.correct for row in scored) / len(scored) if scored else 0.0
    cost = sum(row.cost_usd for row in scored) / len(scored) if scored else 0.0
    return -rate, len(scored) == len(rows), cost, rows[0].workers[0]
