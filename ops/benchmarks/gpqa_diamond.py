"""GPQA Diamond: 198 graduate-level science questions with four choices. Evaluation only."""

from __future__ import annotations

import string

from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import Hub, Part
from ops.benchmarks.order import shuffled
from ops.benchmarks.rows import Row

ANSWERS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def from_hub(row: Row) -> Row:
    """Columns Question, the four answers, Record ID, Subdomain; the choices are shuffled by record.

    Raises `DataError` where an answer is missing. The dataset is gated. Not tried against the live hub.
    """
    record = row.text("Record ID")
    order = shuffled(list(ANSWERS), [f"{record}/{column}" for column in ANSWERS], seed=0)
    return row.having(
        id=record,
        question=row.values.get("Question"),
        choices=[row.text(column) for column in order],
        answer=string.ascii_uppercase[order.index(ANSWERS[0])],
        subject=row.values.get("Subdomain"),
        source="Idavidrein/gpqa",
    )


BENCHMARK = Benchmark(
    name="gpqa_diamond",
    domain="mmlu",
    grader="choice",
    licence="CC BY 4.0; its authors ask that no question be shown in plain text online",
    citation="Rein et al. 2023, arXiv:2311.12022",
    cautions=("Do not publish its questions: traces and reports that quote them contaminate future models.",),
    hub=Hub("Idavidrein/gpqa", {"test": Part("gpqa_diamond", "train")}),
    from_hub=from_hub,
)
