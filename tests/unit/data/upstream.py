"""One row of each benchmark in the columns and types of its dataset on the hub, files of rows, and recipes."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ops.config import BenchmarkSource, Recipe


def packed(tests: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


HUB_ROWS: dict[str, dict[str, Any]] = {
    "math500": {"problem": "Q", "answer": "2", "subject": "Algebra", "level": 2, "unique_id": "test/1.json"},
    "mmlu": {"question": "Q", "choices": ["a", "b", "c", "d"], "answer": 2, "subject": "anatomy"},
    "rlpr": {
        "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "Q"}],
        "reward_model": {"ground_truth": "42 m", "style": "rule"},
        "ability": "physics",
    },
    "livecodebench": {
        "question_id": "1873_A", "question_content": "Q", "starter_code": "", "metadata": "{}",
        "public_test_cases": json.dumps([{"input": "1", "output": "2", "testtype": "stdin"}]),
        "private_test_cases": packed([{"input": "3", "output": "4", "testtype": "stdin"}]),
    },
    "aime25": {"problem": "Q", "answer": 70, "id": "0"},
    "gpqa_diamond": {
        "Record ID": "rec1", "Question": "Q", "Subdomain": "Genetics", "Correct Answer": "right\n",
        "Incorrect Answer 1": "w1", "Incorrect Answer 2": "w2", "Incorrect Answer 3": "w3",
    },
    "bigcodebench": {
        "task_id": "BigCodeBench/13", "complete_prompt": "def task_func():\n    \"\"\"Doc.\"\"\"\n",
        "code_prompt": "def task_func():\n", "canonical_solution": "    return 1", "test": "class T: ...",
    },
}  # fmt: skip


def make_recipe(**sources: BenchmarkSource) -> Recipe:
    """Return a recipe with a few embedded problems of each training benchmark, except `sources`."""
    names = ("math500", "mmlu", "rlpr", "livecodebench")
    benchmarks = dict.fromkeys(names, BenchmarkSource(train=5, test=5)) | sources
    values = {"name": "small", "pool": "none", "benchmarks": benchmarks, "policy": {"kind": "scratch"}}
    return Recipe.model_validate(values | {"cold_start": {}})


def lines(rows: Iterable[object], end: str = "\n") -> bytes:
    """Return JSON lines; a text is used unchanged as a line."""
    return "".join((row if isinstance(row, str) else json.dumps(row)) + end for row in rows).encode()


def parquet(rows: Iterable[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())
