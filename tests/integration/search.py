"""Find a string in everything below a folder, however it is packed."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import re
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pandas as pd

_BASE64 = re.compile(rb"[A-Za-z0-9+/]{64,}={0,2}")
_SQLITE = b"SQLite format 3\0"
_DEEPEST = 4
"""Maximum nesting of containers that are opened."""


def holders(folder: Path, wanted: bytes) -> set[str]:
    """Return the files below `folder` whose name or content contains `wanted`, as relative paths with `/`."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    return {
        name
        for name, file in files.items()
        if wanted in name.encode() or any(wanted in piece for piece in pieces(file))
    }


def pieces(file: Path) -> Iterator[bytes]:
    """Return a file's bytes and their unpacked contents; for a database also every value, even across its pages."""
    data = file.read_bytes()
    yield from unpacked(data)
    if data.startswith(_SQLITE):
        for value in _values(file):
            yield from unpacked(value)


def unpacked(data: bytes, depth: int = 0) -> Iterator[bytes]:
    """Return `data`, and everything that can be unpacked from it."""
    yield data
    if depth == _DEEPEST:
        return
    for inner in _inside(data):
        yield from unpacked(inner, depth + 1)


def _inside(data: bytes) -> Iterator[bytes]:
    if data.startswith(b"\x1f\x8b"):
        yield gzip.decompress(data)
    elif data.startswith((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")):
        try:
            yield zlib.decompress(data)
        except zlib.error:  # text can also begin with an x
            return
    elif data.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    elif data.startswith(b"PAR1"):
        frame = pd.read_parquet(io.BytesIO(data))
        for column in frame.columns:
            yield "\n".join(map(str, frame[column].tolist())).encode()
    for match in _BASE64.finditer(data):
        try:
            yield base64.b64decode(match[0] + b"=" * (-len(match[0]) % 4))
        except binascii.Error:  # a long word
            continue


def _values(file: Path) -> Iterator[bytes]:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes
        tables = [row[0].decode() for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield from (value for value in row if isinstance(value, bytes))
