"""Problems, one row of each benchmark as its dataset on the hub has it, files of rows, and recipes."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import pickle
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import UpstreamSplit
from ops.benchmarks.registry import BENCHMARKS
from ops.config import BenchmarkSource, Recipe, Setup
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.stages.raw_problems import RawProblems, materialize_raw
from tests.builders import make_problem
from tests.loading import sound_problems


def make(name: str, question: str = "What is 1 + 1?", **fields: Any) -> Problem:
    """A training problem of math500 whose answer is 2, but for `fields`."""
    math = {"benchmark": "math500", "domain": "math", "answer": "2", "grader": "math"}
    return make_problem(id=name, question=question, **math | fields)


def packed(data: bytes) -> str:
    """The form in which LiveCodeBench publishes a pickle of hidden tests."""
    return base64.b64encode(zlib.compress(data)).decode()


def pickled(tests: object) -> str:
    """Hidden tests as LiveCodeBench publishes them."""
    return packed(pickle.dumps(json.dumps(tests)))


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
        "private_test_cases": pickled([{"input": "3", "output": "4", "testtype": "stdin"}]),
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


def lines(rows: Iterable[object], end: str = "\n") -> bytes:
    """Return JSON lines; a text is used unchanged as a line."""
    return "".join((row if isinstance(row, str) else json.dumps(row)) + end for row in rows).encode()


def parquet(rows: Iterable[Mapping[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), sink)
    return bytes(sink.getvalue())


def table(rows: Iterable[Iterable[Any]], delimiter: str = ",") -> bytes:
    """Return CSV, in which lists and objects are JSON text."""
    text = io.StringIO(newline="")
    cells = ([cell if isinstance(cell, str | int) else json.dumps(cell) for cell in row] for row in rows)
    csv.writer(text, delimiter=delimiter).writerows(cells)
    return text.getvalue().encode()


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows in the format of the file's suffix. Return the file's name."""
    if file.suffix == ".parquet":
        data = parquet(rows)
    else:
        data = table([rows[0], *(row.values() for row in rows)]) if ".csv" in file.name else lines(rows)
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file.name


def read_files(workspace: Workspace, benchmark: str, split: Split, *names: str, **fields: Any) -> list[Problem]:
    """The split's problems from these files."""
    source = BenchmarkSource(source="file", **{f"{split}_file": names}, **fields)
    return sound_problems(BENCHMARKS[benchmark], split, source, workspace, 0)


def at(entry: Benchmark, place: Path, **parts: UpstreamSplit) -> Benchmark:
    """Return the benchmark with its dataset at `place`, and other cuts if the real ones need too many rows."""
    return replace(entry, hub=replace(entry.hub, id=str(place), splits=parts or entry.hub.splits))


def materialize_all(setup: Setup) -> dict[str, RawProblems]:
    """Materialize the raw problems of every benchmark of the recipe."""
    return {name: materialize_raw(setup, name) for name in setup.recipe.benchmarks}


def recipe_of(benchmarks: Mapping[str, BenchmarkSource | dict[str, Any]]) -> Recipe:
    values = {"name": "small", "pool": "none", "benchmarks": benchmarks, "policy": {"kind": "scratch"}}
    return Recipe.model_validate(values | {"cold_start": {}})


def make_recipe(**sources: BenchmarkSource) -> Recipe:
    """A recipe with a few embedded problems of each training benchmark, except `sources`."""
    names = ("math500", "mmlu", "rlpr", "livecodebench")
    return recipe_of(dict.fromkeys(names, BenchmarkSource(train=5, test=5)) | sources)
