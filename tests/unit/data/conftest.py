"""Fixtures of the data tests: problems, benchmark files on disk, a workspace in a temporary folder."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ops.core.problem import Problem
from ops.core.workspace import Workspace

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def make() -> Callable[..., Problem]:
    """`make(name, question, **fields)`: a training problem of math500 by default."""

    def made(name: str, question: str = "What is 1 + 1?", **fields: Any) -> Problem:
        values = {
            "benchmark": "math500",
            "domain": "math",
            "split": "train",
            "answer": "2",
            "grader": "math",
            **fields,
        }
        return Problem(id=name, question=question, **values)

    return made


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """`write_rows(name, rows)`: a JSON-lines file, gzipped if the name ends accordingly."""

    def written(name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        file = tmp_path / name
        file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return file

    return written


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real benchmark rows beside the project, which users' machines do not have."""
    folder = ROOT.parent / "shared" / "benchmarks"
    if not folder.is_dir():
        pytest.skip(f"no real benchmark rows at {folder}")
    return folder
