"""Quarantine rows that are malformed or have failing gold answers: list them in a readable file with the reasons.

Too many malformed rows are refused here; a limited share of failing gold answers is permitted by
`ops.stages.raw_problems`.

The files lie in `.podium/quarantine`, outside DVC: they follow from the sources, no stage reads them, and they contain
other people's rows, which should not be copied with the data's versions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.benchmarks.source_rows import RowError, is_identifier
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.problem import Split
from ops.core.workspace import Workspace

if TYPE_CHECKING:
    from ops.benchmarks.base import Benchmark, LoadedSplit

MAX_SHOWN_REASONS = 3
"""The number of malformed rows in an error message; the file lists all of them."""
FAILING_GOLD = "failing gold"
"""The kind of a quarantined row that is not malformed, but whose gold answer its grader rejects."""
MAX_SHOWN_CHARACTERS = 500
"""The maximum length of a quoted value: enough to find the row without a copy of a 10 MB line."""


def quarantine_file(workspace: Workspace, benchmark: str, split: Split) -> Path:
    """Return the file that lists the quarantined rows of a split: `.podium/quarantine/BENCHMARK-SPLIT.jsonl`."""
    return workspace.state / "quarantine" / f"{benchmark}-{split}.jsonl"


def quarantine_rows(workspace: Workspace, entry: Benchmark, split: Split, loaded: LoadedSplit) -> Path | None:
    """Write the rows that were left out of a split, one JSON object per line; return the file.

    Without such rows no file is written, an earlier one is removed, and None is returned.
    """
    file = quarantine_file(workspace, entry.name, split)
    entries = [_make_entry(error, entry.is_confidential) for error in loaded.rejected]
    entries += [_make_entry(error, entry.is_confidential) | {"kind": FAILING_GOLD} for error in loaded.failing_gold]
    if not entries:
        file.unlink(missing_ok=True)
        return None
    write_text(file, "".join(f"{json.dumps(each, ensure_ascii=True)}\n" for each in entries))
    return file


def count_failing_gold(workspace: Workspace, benchmark: str, split: Split) -> int:
    """Return the number of quarantined rows of a split whose grader rejects their gold answer."""
    file = quarantine_file(workspace, benchmark, split)
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else ()
    return sum(json.loads(line).get("kind") == FAILING_GOLD for line in lines)


def check_malformed_share(
    entry: Benchmark, split: Split, loaded: LoadedSplit, max_share: float, listed_in: Path | None = None
) -> None:
    """Raise `DataError` if more than `max_share` of the rows are malformed, with the share, the first reasons and the
    file."""
    bad = len(loaded.rejected)
    if bad <= max_share * loaded.rows:
        return
    first = loaded.rejected[0]
    where = f"{bad:,} of {loaded.rows:,} rows"
    if bad == loaded.rows and all(
        error.is_column_missing and error.column == first.column for error in loaded.rejected
    ):
        problem = f"no row has a column {first.column!r}; found {_describe_columns(entry, loaded)}"
        remedy = (
            "Name the columns in the file's first line, with Podium's names or the hub's "
            f"({', '.join(entry.hub.columns)})"
        )
        raise DataError(first.file, where, problem, remedy)
    reasons = "; ".join(f"{error.where} {error.problem}" for error in loaded.rejected[:MAX_SHOWN_REASONS])
    more = f"; and {bad - MAX_SHOWN_REASONS:,} more" if bad > MAX_SHOWN_REASONS else ""
    problem = f"are malformed ({bad / loaded.rows:.2%}, allowed are {max_share:.2%}): {reasons}{more}"
    listed = f"All are listed in {listed_in}. " if listed_in else ""
    remedy = f"{first.remedy}. {listed}Or raise benchmarks.{entry.name}.max_malformed_share"
    raise DataError(first.file, where, problem, remedy)


def _describe_columns(entry: Benchmark, loaded: LoadedSplit) -> str:
    columns = sorted({str(name) for error in loaded.rejected for name in error.row.values})
    if entry.is_confidential:
        # The column names of a file without a header are its first question and answers.
        return f"{len(columns)} columns, which are not shown"
    return ", ".join(columns) or "none"


def _make_entry(error: RowError, confidential: bool) -> dict[str, Any]:
    row = error.row
    entry = {
        "reason": error.problem,
        "file": error.file,
        row.unit: row.line,
        "column": error.column,
        "remedy": error.remedy,
    }
    if confidential:
        name = row.values.get("id")
        return entry | {"id": name if is_identifier(name) and error.column != "id" else None}
    values = {str(name): _shorten_value(value) for name, value in row.values.items()}
    return entry | ({"row": values} if values else {"text": _shorten_value(row.raw)})


def _shorten_value(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return value if isinstance(value, str | int | float | bool | None) else text
    return f"{text[:MAX_SHOWN_CHARACTERS]}… ({len(text):,} characters)"
