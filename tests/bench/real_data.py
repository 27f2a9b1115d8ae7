"""Real rows beside the project, which a user's machine does not have."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ops.core.problem import Domain, GraderName, Problem
from ops.core.workspace import Workspace
from ops.synthetic.problems import generate_problems

ROWS = Path("..") / "shared" / "benchmarks"
"""The folder, from the project's."""


class RowsFile(NamedTuple):
    """A file of rows, and what its problems are."""

    name: str
    benchmark: str
    domain: Domain
    grader: GraderName


def json_lines(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def problems_of(files: Iterable[RowsFile], split: str, generated: int, seed: int) -> list[Problem]:
    """Return the problems of the files; without them, as many generated ones of each file's benchmark."""
    folder = Workspace.find().root / ROWS
    if not folder.is_dir():
        return [problem for file in files for problem in generate_problems(file.benchmark, split, generated, seed)]
    return [
        Problem(
            id=row["id"], benchmark=file.benchmark, domain=file.domain, split="test" if split == "test" else "train",
            question=row["question"], answer=row["answer"] or "", grader=file.grader,
            choices=tuple(row["choices"] or ()), subject=row.get("subject") or "",
            level=str(row.get("level") or row.get("difficulty") or ""),
        )
        for file in files
        for row in json_lines(folder / f"{file.name}.jsonl.gz")
    ]  # fmt: skip
