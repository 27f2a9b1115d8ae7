"""The output of `make real-rows`: errors over questions, and speeds only for called workers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ops.config import Worker
from ops.core.response import Response
from ops.core.rows import ResponseRow
from tests.bench.real_rows import Answers, Rows, questions, table

WORKER = Worker(name="w", model="hosted_vllm/m", max_tokens=50)


def row(problem: str, sample: int, score: float, *, tokens: int = 10, cached: bool = False) -> ResponseRow:
    finish = "length" if tokens == WORKER.max_tokens else "stop"
    response = Response("Answer: A", 20, tokens, 0.0, 1.0, finish, cached=cached)
    return ResponseRow("w", "mmlu", problem, sample, "ok", response, score, "A" if score else "")


def cells(answers: Answers) -> dict[str, str]:
    head, _, line = table({"a set": answers}, WORKER).splitlines()
    names, values = ([cell.strip() for cell in text.strip("|").split("|")] for text in (head, line))
    return dict(zip(names, values, strict=True))


def test_repeated_answers_to_a_question_count_as_one() -> None:
    always, never = [row("p", n, 1.0, tokens=50) for n in range(3)], [row("q", n, 0.0) for n in range(3)]
    shown = cells(Answers([*always, *never], seconds=2.0))
    assert (shown["questions"], shown["answers"]) == ("2", "6")
    assert shown["right, %"] == "50.0 ± 50.0", "six answers, but two questions"
    assert shown["cut at 50 tokens, %"] == "50.0 ± 50.0"
    assert shown["no answer found, %"] == "50.0 ± 50.0"
    assert (shown["tokens an answer"], shown["tokens/s"]) == ("30", "90")


def test_unreachable_answers_are_counted_and_not_wrong() -> None:
    lost = ResponseRow("w", "mmlu", "p", 1, "unreachable")
    shown = cells(Answers([row("p", 0, 1.0), lost, row("q", 0, 1.0)], seconds=1.0))
    assert (shown["right, %"], shown["unscorable"]) == ("100.0 ± 0.0", "1")


def test_the_cache_has_no_speed() -> None:
    asked, known = row("p", 0, 1.0, tokens=40), row("q", 0, 1.0, tokens=30, cached=True)
    assert cells(Answers([asked, known], seconds=2.0))["tokens/s"] == "20"
    assert cells(Answers([known], seconds=2.0))["tokens/s"] == "–"


@pytest.mark.parametrize("count", [2, 9])
def test_a_row_whose_gold_answer_fails_is_not_asked(tmp_path: Path, count: int) -> None:
    rows = [
        {"id": f"n{n}", "question": f"What is {n} and {n}?", "choices": None, "answer": str(2 * n), "grader": "text"}
        for n in range(1, 5)
    ] + [{"id": "bad", "question": "What is nothing?", "choices": None, "answer": "...", "grader": "text"}]
    with gzip.open(tmp_path / "few.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in rows)
    drawn = questions(tmp_path, Rows("rlpr", "few"), count)
    assert len(drawn) == min(count, 4)
    assert "bad" not in {problem.id for problem in drawn}
    assert drawn == questions(tmp_path, Rows("rlpr", "few"), count)
