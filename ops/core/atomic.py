"""Files that are replaced whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_text(file: Path, text: str) -> None:
    """Replace `file` by `text` in one step: a crash leaves the old file or the new one, never a part.

    Raises `OSError`, which names `file`.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with written(file):
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".tmp")
    try:
        with written(file), os.fdopen(handle, "w", encoding="utf-8", newline="\n") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(file)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def written(file: Path) -> Iterator[None]:
    """What fails meanwhile was meant for `file`: the error of a write or a close does not say so itself."""
    try:
        yield
    except OSError as error:
        error.filename = str(file)
        raise
