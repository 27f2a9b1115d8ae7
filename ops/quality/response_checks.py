"""The rules that precached responses must satisfy: one row per worker, problem and sample; valid scores and costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ops.core.problem import Problem
from ops.core.response_rows import STATUSES, ResponseRow
from ops.core.workspace import Workspace
from ops.quality.suite import QualityReport, Rule, expect_among, expect_between, expect_flag, expect_unique, run_suite

ResponseKey = tuple[str, str, str, int]
"""The identity of a response: worker, benchmark, problem id and sample index."""


def check_responses(
    responses: Sequence[ResponseRow],
    shortlist: Sequence[Problem],
    workers: Iterable[str],
    samples: int,
    *,
    workspace: Workspace | None = None,
) -> QualityReport:
    """Check that responses are complete: every shortlisted problem is answered, unreachable or refused.

    Covers the workers and benchmarks in `responses`; others are checked with their own partitions. With a workspace,
    the page `worker_responses` of Data Docs is written.
    """
    wanted = {problem.key for problem in shortlist}
    rows = [_describe_response(row, wanted) for row in responses]
    rows += [{"row": _format_key(key), "answered": False} for key in _find_missing(responses, shortlist, samples)]
    return run_suite("worker_responses", rows, _response_rules(list(workers), samples), workspace=workspace)


def _format_key(key: ResponseKey) -> str:
    worker, benchmark, problem, sample = key
    return f"{worker}: {benchmark}/{problem} #{sample}"


def _find_missing(responses: Sequence[ResponseRow], shortlist: Sequence[Problem], samples: int) -> list[ResponseKey]:
    cells = sorted({(row.worker, row.benchmark) for row in responses})
    there = {(row.worker, row.benchmark, row.problem_id, row.sample) for row in responses}
    keys = (
        (worker, benchmark, problem.id, sample)
        for worker, benchmark in cells
        for problem in shortlist
        if problem.benchmark == benchmark
        for sample in range(samples)
    )
    return [key for key in keys if key not in there]


def _describe_response(row: ResponseRow, shortlist: set[str]) -> dict[str, Any]:
    return {
        "row": _format_key((row.worker, row.benchmark, row.problem_id, row.sample)),
        "answered": True,
        "worker": row.worker,
        "shortlisted": row.problem_key in shortlist,
        "sample": row.sample,
        "status": row.status,
        "score": row.score,
        "score_fits_status": row.status == "ok" or row.score == 0,
        "prompt_tokens": row.response.prompt_tokens,
        "completion_tokens": row.response.completion_tokens,
        "cost_usd": row.response.cost_usd,
        "latency_s": row.response.latency_s,
    }


def _response_rules(workers: Sequence[str], samples: int) -> list[Rule]:
    return [
        Rule("shortlisted, but neither answered nor said to be unreachable", expect_flag("answered")),
        Rule("answered twice", expect_unique("row")),
        Rule("worker that is not in the pool", expect_among("worker", workers)),
        Rule("problem that is not on the shortlist", expect_flag("shortlisted")),
        Rule(f"sample index outside 0 to {samples - 1}", expect_between("sample", 0, samples - 1)),
        Rule("unknown status", expect_among("status", [status.value for status in STATUSES])),
        Rule("score outside 0 to 1", expect_between("score", 0, 1)),
        Rule("score without an answer", expect_flag("score_fits_status")),
        Rule("prompt tokens below 0", expect_between("prompt_tokens", 0)),
        Rule("completion tokens below 0", expect_between("completion_tokens", 0)),
        Rule("cost below 0 USD", expect_between("cost_usd", 0)),
        Rule("latency below 0 s", expect_between("latency_s", 0)),
    ]
