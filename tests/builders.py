"""Problems, rows of responses and workers of which a test states only what matters to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ops.config import Worker
from ops.core.problem import CodeTest, Problem
from ops.core.response import Message, Response, Sample
from ops.core.rows import ResponseRow


def make_problem(**fields: Any) -> Problem:
    """A training problem of `rlpr` whose answer is 4, but for `fields`."""
    values = {
        "id": "rlpr-000", "benchmark": "rlpr", "domain": "rlpr", "split": "train", "question": "What is 2+2?",
        "answer": "4", "grader": "text",
    }  # fmt: skip
    return Problem(**(values | fields))


def make_response(**columns: Any) -> ResponseRow:
    """The right answer of the worker `w` to that problem, but for `columns`."""
    values = {
        "worker": "w", "benchmark": "rlpr", "problem_id": "rlpr-000", "sample": 0, "text": "4", "score": 1.0,
        "extracted": "4", "prompt_tokens": 10, "completion_tokens": 20, "cost_usd": 0.5, "latency_s": 1.0,
        "status": "ok", "finish_reason": "", "grading_usd": 0.0,
    }  # fmt: skip
    return ResponseRow.from_columns(values | columns)


def make_code_problem(*tests: CodeTest, **fields: Any) -> Problem:
    """A problem of `livecodebench` with these tests and no reference program, but for `fields`."""
    values = {"benchmark": "livecodebench", "domain": "code", "split": "test", "answer": "", "grader": "code"}
    return make_problem(**values | {"tests": tests} | fields)


def fenced(program: str) -> str:
    """A response whose program this is."""
    return f"```python\n{program}\n```"


class Answering:
    """A client in this process: a worker says `says`, or what it gives for the worker and its messages."""

    def __init__(self, says: str | Callable[[Worker, Sequence[Message]], str]) -> None:
        self.says = says
        self.asked: list[tuple[str, list[Message], Sample]] = []

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0) -> Response:
        self.asked.append((worker.name, list(messages), Sample.of(sample)))
        text = self.says if isinstance(self.says, str) else self.says(worker, messages)
        return Response(text, 10, 5, 0.001, 0.5, "stop")
