"""Results in files that are checked when they are read: JSON and Parquet with a digest beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ops.core.digests import DamagedFile, check_digest, replace_with_digest, set_aside
from ops.core.errors import DataError, first_line

DAMAGED_GLOB = "*.damaged-*"
"""Glob of what was set aside (`digests.set_aside`, `SqliteFile.set_aside`); DVC ignores it (.dvcignore)."""
WILL_BE_REMADE = "It is made again from what is stored."
"""What happens after a damaged result was set aside, where a step that makes it has found it."""


def write_json(file: Path, value: object, key: Mapping[str, str] | None = None) -> None:
    """Replace `file` by the value as JSON, and write its digest and the `key` of its inputs. Raises `OSError`, which
    names the file."""
    with replace_with_digest(file, key) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_json(file: Path, remedy: str) -> Any:
    """Return the value that `write_json` wrote.

    Raises `DataError`, whose last sentence is `remedy`, if there is no file, and `DamagedFile` for a changed one.
    """
    try:
        return json.loads(read_bytes(file, remedy))
    except ValueError as error:
        raise DamagedFile(file, "", f"is not JSON ({first_line(error)})", remedy) from None


def read_bytes(file: Path, remedy: str) -> bytes:
    """Return the content of a file with a digest. Raises the errors of `read_json`."""
    _check_file(file, remedy)
    return file.read_bytes()


@contextmanager
def open_table(file: Path, remedy: str, *, missing: Literal["damaged", "accepted"] = "damaged") -> Iterator[Any]:
    """Give a Parquet file, of which the digest is right, as PyArrow's `ParquetFile`; `missing` as in `check_digest`.

    Raises `DataError`, whose last sentence is `remedy`, if there is no file, and `DamagedFile` for a changed one and
    for every error of reading it inside the block.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_file(file, remedy, missing)
    try:
        with pq.ParquetFile(file) as table:
            yield table
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        what = f"is not a readable Parquet file ({type(error).__name__}: {first_line(error)})"
        raise DamagedFile(file, "", what, remedy) from None


def set_aside_if_damaged(file: Path, then: str = WILL_BE_REMADE) -> None:
    """Rename the file if it is not what was written, with one warning, whose last sentence is `then`.

    The step that makes the file calls it before it begins. Raises `DataError` for a file that this user may not read.
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
