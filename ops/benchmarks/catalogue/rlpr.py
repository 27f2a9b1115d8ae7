"""RLPR: general reasoning questions with short answers; 46,620 to train on and 15,540 held out of 77,700.

Hub id and columns were read from public code that iterates over the dataset (columns prompt, ability,
reward_model, extra_info); not tried against the live hub.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ops.benchmarks.base import Benchmark, UpstreamItem
from ops.benchmarks.hub import HubDataset, UpstreamSplit
from ops.benchmarks.source_rows import Row


def from_hub(row: Row) -> Row:
    """Convert a row with the columns prompt (messages), reward_model.ground_truth and ability.

    The question is the last user message. Raises `RowError` if a column has another shape.
    """
    messages, verdict = row.parse_structure("prompt"), row.parse_structure("reward_model")
    turns = messages if isinstance(messages, list) else []
    questions = [turn.get("content") for turn in turns if isinstance(turn, Mapping) and turn.get("role") == "user"]
    if not questions or not isinstance(verdict, Mapping):
        column = "prompt" if not questions else "reward_model"
        raise row.make_error(column, "has a structure that Podium does not read", "Pin a revision, or use source: file")
    return row.with_values(
        id=f"rlpr-{row.source_name}-{row.number}",
        question=questions[-1],
        answer=verdict.get("ground_truth"),
        subject=row.values.get("ability"),
        source="openbmb/RLPR-Train-Dataset",
    )


BENCHMARK = Benchmark(
    name="rlpr",
    position=30,
    domain="rlpr",
    grader="text",
    task="the last user message, without the system message that states an answer format",
    licence="see the dataset's card",
    citation="Yu et al. 2025, arXiv:2506.18254",
    cautions=(
        "Short answers are compared as text and numbers: a right answer in other words can score 0.",
        "Rows have no ids: an id is the row's number at the pinned revision, and another revision may renumber them.",
        "Derived from WebInstruct, which repeats itself: duplicates of held-out questions are removed in curation.",
    ),
    hub=HubDataset(
        "openbmb/RLPR-Train-Dataset",
        {
            "test": UpstreamSplit(None, "train", 0, 15_540, rows=15_540),
            "train": UpstreamSplit(None, "train", 15_540, 46_620, rows=46_620),
        },
        columns=("prompt", "reward_model", "ability"),
        documented_by="public code that iterates over it (a Trinity reimplementation's `sources/rlpr.py`)",
    ),
    from_hub=from_hub,
    # Both of our splits are cut from one upstream split, whose row numbers are the ids.
    upstream=UpstreamItem("RLPR", re.compile(r"((?:rlpr|webinstruct)-\d+)$")),
)
