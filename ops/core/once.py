"""One rule for what is made already: an output lies at its path, and the key of its inputs lies beside it.

A key is a mapping from the name of an input (`questions`, `settings`, `code`) to its version. It holds everything that
decides the content of the output, and nothing that only decides how it is computed. The key is stored in the digest
file of the output (`ops.core.digests`). An output is made again if it is missing, damaged, or made from another key.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from ops.core.atomic import TEMPORARY, sha256_of
from ops.core.checked_files import DAMAGED_GLOB
from ops.core.code_version import code_version
from ops.core.digests import DIGEST_SUFFIX, check_digest, read_stored_key, write_digest
from ops.core.errors import DataError

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

Key = Mapping[str, str]
"""Name of an input → its version."""


CODE = "code"
"""The name of the code's version in a key (`add_code_version`)."""
INCOMPLETE = "incomplete"
"""The name in a stored key of what an output lacks: it can be read, and the next run makes it again."""


class InputMismatchError(DataError):
    """The stored output was made from other inputs than requested; `differing` are the names of those that differ."""

    def __init__(self, path: Path, differing: tuple[str, ...], stored: Key, wanted: Key, remedy: str) -> None:
        pairs = (f"{name} {stored.get(name, 'not noted')} instead of {wanted[name]}" for name in differing)
        known = f"was made from other inputs: {', '.join(pairs)}"
        said = known if stored else "does not say from which inputs it was made"
        super().__init__(path, "", said, remedy)
        self.differing = differing


def add_code_version(key: Key, *modules: str) -> Key:
    """Return the key with the version of the code of these modules (`code_version`).

    What is stored has the version in its key, so that a change of the code makes it again. The readers of an output do
    not ask for it: until then they read what is there.
    """
    return {**key, CODE: code_version(*modules)}


def make_once(paths: Sequence[Path], key: Key, make: Callable[[], T], *, always: bool = False) -> T | None:
    """Make the outputs at `paths` unless they are made already from the inputs in `key`; return what `make` returned.

    The result is None if nothing had to be made. `make` writes all of `paths`. Unless it writes their key too, this is
    done afterwards, so that outputs that a killed process left are made again. `always` makes them in any case. The
    caller holds the lock of the paths (`processes.alone`) where two processes can make them at once.
    """
    if not always and all(is_made(path, key) for path in paths):
        return None
    log.info("%s is made: %s", paths[0], "that was asked for" if always else explain_remake(paths, key))
    result = make()
    for path in paths:
        if not _has_key(path, key):
            write_digest(path, key=key)
    return result


def false_if_inputs_missing(is_made: Callable[P, bool]) -> Callable[P, bool]:
    """Let a question whether outputs are made be answered by False if an input of them is missing or damaged.

    The step that makes them then says what is missing, together with everything else that it needs.
    """

    @wraps(is_made)
    def answered(*arguments: P.args, **named: P.kwargs) -> bool:
        try:
            return is_made(*arguments, **named)
        except DataError:
            return False

    return answered


def is_made(path: Path, key: Key) -> bool:
    """Return whether the output at `path` is what was written there, from exactly the inputs in `key`."""
    try:
        return read_key(path, "") == key
    except DataError:
        return False


def check_inputs(path: Path, key: Key, remedy: str) -> None:
    """Raise `InputMismatchError` with the differences unless the inputs in `key` are among those of the output at
    `path`.

    A reader names the inputs that it relies on. Raises `DataError` if there is no output, and `DamagedFile` if it is
    not what was written there.
    """
    stored = read_key(path, remedy)
    if differing := tuple(name for name, version in key.items() if stored.get(name) != version):
        raise InputMismatchError(path, differing, stored, key, remedy)


def _has_key(path: Path, key: Key) -> bool:
    try:
        check_inputs(path, key, "")
    except DataError:
        return False
    return True


def read_key(path: Path, remedy: str) -> dict[str, str]:
    """Return the key of the output at `path`; empty if none is stored. Raises the other errors of `check_inputs`."""
    try:
        check_digest(path, remedy)
        return read_stored_key(path)
    except FileNotFoundError:
        raise DataError(path, "", "does not exist", remedy) from None


def data_version(*paths: Path) -> str:
    """Return a hash (16 hex digits) of the names and contents of these files, and of all files below these folders.

    Digests, keys, temporary files and what was set aside do not count. A missing path counts as an empty one.
    """
    listed = [
        [path.name, [[str(file.relative_to(path)), _hash_content(file)] for file in _files_below(path)]]
        for path in paths
    ]
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]


def explain_remake(paths: Iterable[Path], key: Key) -> str:
    """Return why these outputs have to be made: the names of the inputs that changed, or what is wrong with the first
    output that is not as it was written."""
    for path in paths:
        try:
            stored = read_key(path, "")
        except DataError as error:
            return f"it {error.problem}"
        if stored != key:
            names = [name for name in {**stored, **key} if stored.get(name) != key.get(name)]
            return f"changed since then: {', '.join(names)}" if stored else "its inputs were not noted"
    return "it is made already"


def _files_below(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    ignored = {*path.rglob(TEMPORARY), *path.rglob(DAMAGED_GLOB), *path.rglob(f"*{DIGEST_SUFFIX}")}
    yield from sorted(file for file in path.rglob("*") if file.is_file() and file not in ignored)


def _hash_content(file: Path) -> str:
    status = file.stat()
    return _hash_file(str(file), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=65_536)
def _hash_file(file: str, *_: int) -> str:
    """Hash a file once for each state of it; the later arguments are that state."""
    return sha256_of(Path(file))
