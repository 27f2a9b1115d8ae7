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
            benchmark=one.benchmark,
            problem_id=one.problem_id,
            repeat=one.sample,
            domain=domain,
            correct=int(one.score >= 1.0),
            format_ok=True,
            failure="",
            status="answered" if one.status == "ok" else one.status,
            steps=1,
            workers=(one.worker,),
            tokens=one.response.tokens,
            cost_usd=one.response.cost_usd,
            latency_s=one.response.latency_s,
            completion="",
            answer=one.response.text,
            unscorable=one.status == "unreachable",
            usage=(Usage(one.worker, one.response.prompt_tokens, one.response.completion_tokens),),
        )
        for one in responses
    ]


def of_worker(responses: Iterable[ResponseRow], worker: str) -> list[ScoreRow]:
    """The score rows of one worker of that name; empty when it has no responses."""
    return score_rows(one for one in responses if one.worker == worker)
