"""Decide whether an output has to be computed: it is stored at its path together with the key of its inputs.

A key maps the name of each input (`questions`, `settings`, `code`) to its version. It contains everything that
determines the content of the output, and nothing that only determines how it is computed. The key is stored in the
output's digest file (`ops.core.digests`). An output is computed again if it is missing or damaged, or if its stored key
differs.
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
"""Maps the name of each input to its version."""


CODE = "code"
"""The name of the code's version in a key (`add_code_version`)."""
INCOMPLETE = "incomplete"
"""The name under which a stored key records what an output lacks. The output can be read, and the next run computes it
again."""


class InputMismatchError(DataError):
    """The stored output was computed from other inputs than requested. `differing` contains the names of the inputs
    that differ."""

    def __init__(self, path: Path, differing: tuple[str, ...], stored: Key, wanted: Key, remedy: str) -> None:
        differences = (f"{name} {stored.get(name, 'not noted')} instead of {wanted[name]}" for name in differing)
        mismatch = f"was made from other inputs: {', '.join(differences)}"
        problem = mismatch if stored else "does not say from which inputs it was made"
        super().__init__(path, "", problem, remedy)
        self.differing = differing


def add_code_version(key: Key, *modules: str) -> Key:
    """Return the key with the version of the code of these modules and of what they import (`code_version`).

    Writers store this key, so that a change of the code makes them compute the output again. Readers request the key
    without the code's version, so that they can read the existing output until then.
    """
    return {**key, CODE: code_version(*modules)}


def make_once(paths: Sequence[Path], key: Key, make: Callable[[], T], *, always: bool = False) -> T | None:
    """Compute the outputs at `paths` with `make` unless they exist and were computed from the inputs in `key`.

    Returns the result of `make`, or None if nothing had to be computed. `make` writes all of `paths`. If it does not
    write their key, this function does so afterwards, so that the outputs of a killed process are computed again. With
    `always`, the outputs are computed in any case. The caller holds the locks of the paths (`processes.lock_files`) if
    two processes can compute them at the same time.
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
    """Decorate a predicate "are the outputs made?" so that it returns False if an input of them is missing or damaged.

    The step that computes the outputs then reports the missing input, together with everything else that it needs.
    """

    @wraps(is_made)
    def wrapper(*arguments: P.args, **named: P.kwargs) -> bool:
        try:
            return is_made(*arguments, **named)
        except DataError:
            return False

    return wrapper


def is_made(path: Path, key: Key) -> bool:
    """Return whether the output at `path` is undamaged and was computed from exactly the inputs in `key`."""
    try:
        return read_key(path, "") == key
    except DataError:
        return False


def check_inputs(path: Path, key: Key, remedy: str) -> None:
    """Check that the output at `path` was computed from the inputs in `key`, which may be a part of its stored key.

    Raises `InputMismatchError` with the differences, `DataError` if there is no output, and `DamagedFile` if its
    content has changed. `remedy` is the last sentence of the message.
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
    """Return the key that is stored with the output at `path`; empty if none is stored.

    Raises `DataError` if there is no output, and `DamagedFile` if its content has changed.
    """
    try:
        check_digest(path, remedy)
        return read_stored_key(path)
    except FileNotFoundError:
        raise DataError(path, "", "does not exist", remedy) from None


def data_version(*paths: Path) -> str:
    """Return a hash (16 hex digits) of the names and contents of these files and of all files below these folders.

    Digest files, temporary files and damaged files that were renamed do not count. A missing path counts as an empty
    one.
    """
    contents = [
        [path.name, [[str(file.relative_to(path)), _hash_content(file)] for file in _files_below(path)]]
        for path in paths
    ]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()[:16]


def explain_remake(paths: Iterable[Path], key: Key) -> str:
    """Return why these outputs have to be computed: what is wrong with the first such output, or which inputs have
    changed."""
    for path in paths:
        try:
            stored = read_key(path, "")
        except DataError as error:
            return f"it {error.problem}"
        if stored != key:
            changed = [name for name in {**stored, **key} if stored.get(name) != key.get(name)]
            return f"changed since then: {', '.join(changed)}" if stored else "its inputs were not noted"
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
    """Return a file's SHA-256. The further arguments describe the file's state, so that an unchanged file is read only
    once."""
    return sha256_of(Path(file))
