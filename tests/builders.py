"""Problems, rows, workers and policies of which a test states only what matters to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ops.conductor.policy import PolicyCard
from ops.config import Pool, Prompting, ScratchPolicy, Worker
from ops.core.messages import Message, Sample
from ops.core.problem import CodeTest, Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.core.usage import Usage
from ops.results.outcome_rows import OutcomeRow
from ops.workflow.grammar import Workflow

SCRATCH_CONTEXT, SCRATCH_COMPLETION = 96, 16
"""Tokens of a scratch policy's context and of its completions."""


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


def make_outcome(benchmark: str = "mmlu", problem: object = 0, **columns: Any) -> OutcomeRow:
    """A right answer of the worker `a` in one step, but for `columns`."""
    values = {
        "benchmark": benchmark, "problem_id": str(problem), "repeat": 0, "domain": benchmark, "correct": 1,
        "format_ok": True, "failure": "", "status": "answered", "steps": 1, "workers": ("a",), "tokens": 1,
        "cost_usd": 0.01, "latency_s": 1.0, "completion": "", "answer": "", "unscorable": False,
    }  # fmt: skip
    return OutcomeRow(**(values | columns))


def make_code_problem(*tests: CodeTest, **fields: Any) -> Problem:
    """A problem of `livecodebench` with these tests and no reference program, but for `fields`."""
    values = {"benchmark": "livecodebench", "domain": "code", "split": "test", "answer": "", "grader": "code"}
    return make_problem(**values | {"tests": tests} | fields)


def make_unit_test(*lines: str, hidden: bool = False) -> CodeTest:
    """A `unittest` file with one test, `T.test_it`, of these lines."""
    head = "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n"
    return CodeTest("unittest", head + "".join(f"        {line}\n" for line in lines), hidden=hidden)


def fenced(program: str) -> str:
    """A response whose program this is."""
    return f"```python\n{program}\n```"


class Answering:
    """A client in this process: a worker says `says`, or what it gives for the worker and its messages."""

    def __init__(self, says: str | Callable[[Worker, Sequence[Message]], str]) -> None:
        self.says = says
        self.asked: list[tuple[str, list[Message], Sample]] = []

    async def complete(
        self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0, **_: object
    ) -> Response:
        self.asked.append((worker.name, list(messages), Sample.of(sample)))
        text = self.says if isinstance(self.says, str) else self.says(worker, messages)
        return Response(text, Usage(10, 5), 0.001, 0.5, "stop")


def scratch_policy(folder: Path, *prompts: Sequence[Message], **settings: int) -> PolicyCard:
    """Write a policy of random weights, whose tokenizer was made from these prompts and one workflow."""
    from ops.training.cold_start.supervised import build_scratch_model

    completion = [{"role": "assistant", "content": Workflow.single(0).render()}]
    chats = prompts or ([{"role": "user", "content": "What is 1 + 1?\nModels: 0"}],)
    examples: Any = [{"prompt": chat, "completion": completion} for chat in chats]
    sizes = {"vocabulary": 300, "hidden": 16, "layers": 1, "heads": 2, "max_tokens": SCRATCH_CONTEXT} | settings
    model, tokenizer = build_scratch_model(ScratchPolicy(**sizes), examples, 1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    pool = Pool(name="p", workers=(Worker(name="a", model="local/a"),))
    card = PolicyCard(
        recipe="test", pool=pool, offered=("a",), prompting=Prompting(), max_completion_tokens=SCRATCH_COMPLETION
    )
    card.write(folder)
    return card
