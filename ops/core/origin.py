"""Tables that say what they were made from, so that nobody takes them for another's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ops.core.errors import DataError

Origin = Mapping[str, str]
"""What a table depends on, by name ("policy", "pool", "questions" …): keys and digests."""
_NAME = b"podium/origin"


class OtherOriginError(DataError):
    """A table lies there, and it is of something else than was asked for."""


def with_origin(table: Any, origin: Origin | None) -> Any:
    """The Arrow table with `origin` in its schema's metadata; None: as it is."""
    if origin is None:
        return table
    text = json.dumps(dict(origin), sort_keys=True).encode()
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _NAME: text})


def check_origin(file: Path, wanted: Origin, remedy: str) -> None:
    """Raise `OtherOriginError`, naming what differs, unless the table in `file` was made from `wanted`.

    `DataError` when there is no file, or none that can be read.
    """
    stored = _origin(file, remedy)
    if differing := [name for name, value in wanted.items() if stored.get(name) != value]:
        pairs = (f"{name} {stored.get(name, 'not noted')} instead of {wanted[name]}" for name in differing)
        raise OtherOriginError(file, "(file)", f"is of another origin: {', '.join(pairs)}", remedy)


def _origin(file: Path, remedy: str) -> dict[str, str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(file).metadata or {}
    except FileNotFoundError:
        raise DataError(file, "(file)", "does not exist", remedy) from None
    except pa.ArrowInvalid as error:
        raise DataError(file, "(file)", f"is not parquet ({error})", remedy) from None
    origin: dict[str, str] = json.loads(metadata.get(_NAME, b"{}"))
    return origin
