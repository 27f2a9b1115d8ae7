"""Read and write results as JSON or Parquet files whose SHA-256 digest is checked on every read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ops.core.digests import DamagedFile, check_digest, replace_with_digest, set_aside
from ops.core.errors import DataError, first_line

DAMAGED_GLOB = "*.damaged-*"
"""Glob pattern of the names of damaged files that were renamed (`digests.set_aside`, `SqliteFile.set_aside`); DVC
ignores them."""
WILL_BE_REMADE = "It is made again from what is stored."
"""The last sentence of the warning about a damaged result that the current step computes again."""


def write_json(file: Path, value: object, key: Mapping[str, str] | None = None) -> None:
    """Write a value as JSON into `file`, with its digest and the `key` of the inputs that it was computed from.

    Raises `OSError`, whose file name is `file`.
    """
    with replace_with_digest(file, key) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_json(file: Path, remedy: str) -> Any:
    """Return the value that `write_json` wrote into `file`.

    Raises `DataError` if the file does not exist, and `DamagedFile` if its content has changed. `remedy` is the last
    sentence of the message.
    """
    try:
        return json.loads(read_bytes(file, remedy))
    except ValueError as error:
        raise DamagedFile(file, "", f"is not JSON ({first_line(error)})", remedy) from None


def read_bytes(file: Path, remedy: str) -> bytes:
    """Return the content of a file that has a digest. Raises the same errors as `read_json`."""
    _check_file(file, remedy)
    return file.read_bytes()


@contextmanager
def open_table(file: Path, remedy: str, *, missing: Literal["damaged", "accepted"] = "damaged") -> Iterator[Any]:
    """Check the digest of a Parquet file and yield it as PyArrow's `ParquetFile`.

    `missing` says whether a file without a digest is "damaged" or "accepted". Raises `DataError` if the file does not
    exist. Raises `DamagedFile` if its content has changed, and for every error of reading it inside the block. `remedy`
    is the last sentence of the message.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_file(file, remedy, missing)
    try:
        with pq.ParquetFile(file) as table:
            yield table
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        problem = f"is not a readable Parquet file ({type(error).__name__}: {first_line(error)})"
        raise DamagedFile(file, "", problem, remedy) from None


def set_aside_if_damaged(file: Path, then: str = WILL_BE_REMADE) -> None:
    """Rename the file if its content does not match its digest, and log a warning whose last sentence is `then`.

    The step that computes the file calls this function before it begins. A missing file is no error. Raises `DataError`
    if this user may not read the file.
    """
    try:
        check_digest(file, then)
    except FileNotFoundError:
        return
    except DamagedFile as error:
        set_aside(file, error, then)


def _check_file(file: Path, remedy: str, missing: Literal["damaged", "accepted"] = "damaged") -> None:
    try:
        check_digest(file, remedy, missing=missing)
    except FileNotFoundError:
        raise DataError(file, "", "does not exist", remedy) from None
