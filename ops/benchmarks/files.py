"""Read benchmark files as rows: JSON lines, CSV and Parquet, distinguished by the suffix of the file's name.

Rows are read one at a time, so that a malformed row does not stop the others.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TextIO

from ops.benchmarks.source_rows import Row, RowError
from ops.core.errors import DataError

RowOrError = Row | RowError
"""A row, or the error of a line that is no row."""
MAX_CELL_CHARS = 256 * 1024 * 1024
"""Maximum characters of a CSV cell; hidden tests of a program can have many megabytes."""
_UNDECODED = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as `surrogateescape` represents them."""


def scan_rows(file: Path) -> Iterator[RowOrError]:
    """Yield the rows of a file, with an error in place of each malformed line; blank lines are skipped.

    Raises `DataError` for a file that is unusable as a whole: missing, of an unknown type, truncated, not a table, or
    without rows.
    """
    if not file.is_file():
        raise DataError(file, "", "does not exist", "Correct the path in the recipe or put the file there")
    kinds: dict[str, Callable[[Path], Iterator[RowOrError]]] = {
        ".jsonl": _scan_jsonl,
        ".jsonl.gz": _scan_jsonl,
        ".csv": _scan_csv,
        ".csv.gz": _scan_csv,
        ".parquet": _scan_parquet,
    }
    reader = next((kinds[suffix] for suffix in kinds if file.name.endswith(suffix)), None)
    if reader is None:
        remedy = f"Convert it to {', '.join(kinds)}"
        raise DataError(file, "", f"has a type that is not supported ({file.suffix or 'no suffix'})", remedy)
    rows = reader(file)
    first = next(rows, None)
    if first is None:
        raise DataError(file, "", "has no rows", "Download or generate the file again")
    for number, row in enumerate(chain((first,), rows), start=1):
        yield row if isinstance(row, RowError) else replace(row, number=number)


def read_rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a file. Raises `DataError` at the first malformed row."""
    for row in scan_rows(file):
        if isinstance(row, RowError):
            raise row
        yield row


def _scan_jsonl(file: Path) -> Iterator[RowOrError]:
    for line, text in _read_lines(file):
        if text.strip():
            yield _parse_json_row(Row(str(file), line, {}, source_name=_source_name(file), raw=text.rstrip("\r\n")))


def _parse_json_row(row: Row) -> RowOrError:
    if _UNDECODED.search(row.raw):
        return row.make_error("", "is not UTF-8", "Save the file as UTF-8")
    try:
        values = json.loads(row.raw)
    except (ValueError, RecursionError) as error:
        return row.make_error("", f"is not JSON ({getattr(error, 'msg', None) or error})", "Correct or remove the line")
    if not isinstance(values, dict):
        return row.make_error("", f"is a {type(values).__name__}, not an object", "Write one JSON object")
    return Row(row.place, row.line, values, source_name=row.source_name)


def _scan_csv(file: Path) -> Iterator[RowOrError]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL_CHARS))
    texts = (text for _, text in _read_lines(file))
    reader = csv.reader(texts, strict=True)
    head = _read_header(file, reader)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = Row(str(file), reader.line_num, {}, source_name=_source_name(file))
            if "unexpected end" in str(error):
                raise DataError(
                    file, "last line", "ends inside a quoted cell", "Fetch the file again: it is incomplete"
                ) from None
            yield row.make_error("", f"is not CSV ({error})", "Correct the quotes or remove the line")
            continue
        if cells:
            yield _make_csv_row(Row(str(file), reader.line_num, {}, source_name=_source_name(file)), head, cells)


def _read_header(file: Path, reader: Iterator[list[str]]) -> list[str]:
    try:
        head = next(reader, [])
    except csv.Error as error:
        raise DataError(file, "line 1", f"is not a header ({error})", "Check that it is a CSV file") from None
    head = [name.strip() for name in head]
    if len(set(head)) != len(head):
        raise DataError(file, "line 1", "names a column twice", "Give each column its own name")
    return head


def _make_csv_row(row: Row, head: list[str], cells: list[str]) -> RowOrError:
    if len(cells) != len(head):
        return row.make_error("", f"has {len(cells)} cells, the header {len(head)}", "Quote cells that hold commas")
    if any(map(_UNDECODED.search, cells)):
        return row.make_error("", "is not UTF-8", "Save the file as UTF-8")
    return row.with_values(**dict(zip(head, cells, strict=True)))


def _scan_parquet(file: Path) -> Iterator[RowOrError]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=1000):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(str(file), number, values, source_name=_source_name(file), unit="row")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # Arrow's messages can quote the file, so only their first words are shown.
        reason = str(error).partition(".")[0].partition(":")[0][:120]
        remedy = "Download the file again: it is incomplete or not a Parquet file"
        raise DataError(file, f"after row {number}", f"cannot be read ({reason})", remedy) from None


def _read_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Give numbered lines, ended by LF, CRLF or CR; bytes that are not UTF-8 become surrogates U+DC80…DCFF."""
    line = 0
    try:
        with _open_text(file) as lines:
            for line, text in enumerate(lines, start=1):
                yield line, text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        remedy = "Download the file again: it is incomplete or not a gzip file"
        raise DataError(file, f"after line {line}", f"cannot be unpacked ({error})", remedy) from None


def _open_text(file: Path) -> TextIO:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return file.open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def _source_name(file: Path) -> str:
    return file.name.partition(".")[0]
