"""RLPR: general reasoning questions with short answers; 46,620 to train on and 15,540 held out of 77,700."""

from __future__ import annotations

from collections.abc import Mapping

from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import Hub, Part
from ops.benchmarks.rows import Row


def from_hub(row: Row) -> Row:
    """Columns prompt (messages), reward_model.ground_truth, ability; the question is the last user message.

    Raises `DataError` where a column has another shape. Not tried against the live hub.
    """
    messages, verdict = row.values.get("prompt"), row.values.get("reward_model")
    asked = [m.get("content") for m in messages or () if isinstance(m, Mapping) and m.get("role") == "user"]
    if not asked or not isinstance(verdict, Mapping):
        column = "prompt" if not asked else "reward_model"
        raise row.error(column, "has not the shape that this version reads", "Pin a revision, or use source: file")
    return row.having(
        id=f"rlpr-{row.line}",
        question=asked[-1],
        answer=verdict.get("ground_truth"),
        subject=row.values.get("ability"),
        source="openbmb/RLPR-Train-Dataset",
    )


BENCHMARK = Benchmark(
    name="rlpr",
    domain="rlpr",
    grader="text",
    licence="see the dataset's card",
    citation="Yu et al. 2025, arXiv:2506.18254",
    cautions=("Short answers are compared as text and numbers: a right answer in other words can score 0.",),
    hub=Hub(
        "openbmb/RLPR-Train-Dataset",
        {"test": Part(None, "train", 0, 15_540), "train": Part(None, "train", 15_540, 46_620)},
    ),
    from_hub=from_hub,
)
