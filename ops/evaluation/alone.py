"""A worker alone: its precached responses to the evaluation questions, read as score rows."""

from __future__ import annotations

from collections.abc import Iterable

from ops.core.rows import ResponseRow
from ops.evaluation.runner import ScoreRow, Usage


def score_rows(responses: Iterable[ResponseRow], *, domain: str = "") -> list[ScoreRow]:
    """Each response as the score of a one-step workflow; the sample index is the repeat.

    A refusal is wrong, an unreachable worker unscorable: the same reading as the
    Conductor's own rows get.
    """
    return [
        ScoreRow(
            benchmark=row.benchmark,
            problem_id=row.problem_id,
            repeat=row.sample,
            domain=domain,
            correct=int(row.score >= 1.0),
            format_ok=True,
            failure="",
            status="answered" if row.status == "ok" else row.status,
            steps=1,
            workers=(row.worker,),
            tokens=row.response.tokens,
            cost_usd=row.response.cost_usd,
            latency_s=row.response.latency_s,
            completion="",
            answer=row.response.text,
            unscorable=row.status == "unreachable",
            usage=(Usage(row.worker, row.response.prompt_tokens, row.response.completion_tokens),),
        )
        for row in responses
    ]


def of_worker(responses: Iterable[ResponseRow], worker: str) -> list[ScoreRow]:
    """The score rows of one worker of that name; empty when it has no responses."""
    return score_rows(row for row in responses if row.worker == worker)
