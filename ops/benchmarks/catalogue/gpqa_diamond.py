"""GPQA Diamond: 198 graduate-level science questions with four choices. Evaluation only.

Hub id, configuration and columns were read from inspect-evals 0.26.0 (`gpqa/gpqa.py`) and
lm-evaluation-harness; not tried against the live hub. Confidential: nothing that Podium shows, logs or
publishes quotes a question (`privacy`).
"""

from __future__ import annotations

import re
import string

from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import HubDataset, UpstreamSplit
from ops.benchmarks.source_rows import Row, shuffle_by_hash

_RECORD = re.compile(r"rec[a-z]*[A-Z0-9][A-Za-z0-9]*")
"""The form of a record id, which is stricter than that of any id, so that an answer such as "H2O" in the wrong column
does not match."""
ANSWERS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def from_hub(row: Row) -> Row:
    """Convert a row with the columns Question, the four answers, Record ID and Subdomain; shuffle the choices by
    record.

    Raises `RowError` if an answer is missing or the record has no id. The dataset is gated.
    """
    record = row.text("Record ID")
    if row.is_confidential and not _RECORD.fullmatch(record):
        remedy = "Airtable's ids begin with rec; check that each column is under its own heading"
        raise row.make_error("Record ID", "is not a record id", remedy)
    row = row.with_values(id=record)  # from here on an error can name it
    order = shuffle_by_hash(list(ANSWERS), [f"{record}/{column}" for column in ANSWERS], seed=0)
    return row.with_values(
        question=row.values.get("Question"),
        choices=[row.text(column) for column in order],
        answer=string.ascii_uppercase[order.index(ANSWERS[0])],
        subject=row.values.get("Subdomain"),
        source="Idavidrein/gpqa",
    )


BENCHMARK = Benchmark(
    name="gpqa_diamond",
    position=60,
    domain="mmlu",
    grader="choice",
    task="the question and its four choices as A) to D), in an order fixed for each question",
    licence="CC BY 4.0; its authors ask that no question be shown in plain text online",
    citation="Rein et al. 2023, arXiv:2311.12022",
    cautions=("Never print or republish its questions: text that quotes them contaminates future models.",),
    hub=HubDataset(
        "Idavidrein/gpqa",
        {"test": UpstreamSplit("gpqa_diamond", "train", rows=198)},
        columns=("Record ID", "Question", "Subdomain", *ANSWERS),
        documented_by="inspect-evals 0.26.0 (gpqa), lm-evaluation-harness (gpqa)",
        is_confidential=True,
        is_gated=True,
    ),
    from_hub=from_hub,
    is_confidential=True,
)
