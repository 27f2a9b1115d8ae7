"""SHA-256 digests beside files and in folders: a byte that changed after the writing is found on reading.

The digest of the file `NAME` stands beside it in `NAME.sha256`. Those of a folder's files stand inside it, in
`SHA256SUMS`. Both have the format of the program `sha256sum`, so that `sha256sum --check` reads them, too. A comment
line in front of the digests holds the key of the inputs that the file or folder was made from (`ops.core.once`).
"""

from __future__ import annotations

import errno
import json
import logging
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Literal

from ops.core.atomic import TEMPORARY, name_file_in_errors, replace_atomically, sha256_of, write_text
from ops.core.errors import DataError

log = logging.getLogger(__name__)

DIGEST_SUFFIX = ".sha256"
"""What is added to a file's name for the name of its digest file."""
SUMS_FILE = "SHA256SUMS"
"""The name of the file in a folder that lists the digests of its files."""
_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>[^\n]+)")
_COUNT = "# files: "
"""The first line of `SUMS_FILE`, which `sha256sum` takes for a comment: with the number of files a lost line is found.
"""
_KEY = "# made from: "
"""The beginning of the line with the key of the inputs, as JSON; also a comment for `sha256sum`."""
_DAMAGE = (errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
"""Errors of a read that no change of permissions can repair."""


class DamagedFile(DataError):
    """A file or folder is not what was written there; `file` is its path."""


@contextmanager
def replace_with_digest(file: Path, key: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Yield a temporary file, which replaces `file` at the end of the block, as `replace_atomically` does, and write
    its digest.

    `key` are the inputs that the file is made from, which `read_stored_key` returns. At each moment, and after a kill
    at each moment, the digest file lists the digest of the file that is there: it lists the old and the new one, each
    with its key, until the file is replaced. Raises `OSError`, which names the file.
    """
    with replace_atomically(file) as temporary:
        yield temporary
        new, beside = _format_key_line(key) + f"{sha256_of(temporary)}  {file.name}\n", _digest_file(file)
        for place in (file, beside):
            if place.is_dir():
                set_aside(place, "is a folder in the place of a file", "A new file is written.")
        old = beside.read_text(encoding="utf-8", errors="replace") if file.is_file() and beside.is_file() else ""
        write_text(beside, f"{old}{new}")
    write_text(beside, new)


def write_digest(path: Path, *, skip: Collection[str] = (), key: Mapping[str, str] | None = None) -> None:
    """Write the digest of a file that is there, or the digests of all files of a folder, in one step, and the `key` of
    the inputs that it was made from.

    `skip` are names or patterns ("optimizer.pt", "*.log", "checkpoint-*/*") of files of a folder that get no digest;
    temporary files get none either. For a folder that becomes visible in one step (`atomic.made_whole`) call it before
    that. Raises `OSError`, which names the file.
    """
    if not path.is_dir():
        write_text(_digest_file(path), _format_key_line(key) + f"{sha256_of(path)}  {path.name}\n")
        return
    names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    chosen = [name for name in names if name != SUMS_FILE and not _matches_any(name, (TEMPORARY, *skip))]
    lines = [f"{sha256_of(path / name)}  {name}\n" for name in chosen]
    write_text(path / SUMS_FILE, f"{_COUNT}{len(chosen)}\n{_format_key_line(key)}{''.join(lines)}")


def read_stored_key(path: Path) -> dict[str, str]:
    """Return the key of the inputs that a file or folder was made from; empty if none was written with it.

    Call `check_digest` first: this function only looks for the digest of the file that is there. Raises `OSError`.
    """
    is_folder = path.is_dir()
    lines = (path / SUMS_FILE if is_folder else _digest_file(path)).read_text(encoding="utf-8").splitlines()
    key, found, wanted = dict[str, str](), dict[str, str](), "" if is_folder else sha256_of(path)
    for line in lines:
        if line.startswith(_KEY):
            key = json.loads(line.removeprefix(_KEY))
        elif not line.startswith(_COUNT):
            found = key if line.startswith(wanted) else found
            key = key if is_folder else {}
    return found


def _format_key_line(key: Mapping[str, str] | None) -> str:
    return "" if key is None else f"{_KEY}{json.dumps(dict(key), sort_keys=True)}\n"


def check_digest(
    path: Path, remedy: str, *, missing: Literal["damaged", "accepted"] = "damaged", skip: Collection[str] = ()
) -> None:
    """Check that a file, or each file of a folder that has a digest, is what was written there.

    `remedy` is the last sentence of the errors. `missing` says whether a path that is there without a digest counts as
    damaged or is accepted. `skip`: as in `write_digest`, files that are not read. Files that were added to a folder
    are accepted. Raises `FileNotFoundError` if there is nothing at `path`, `DamagedFile`, which names the first file
    that differs, and `DataError` for a file that this user may not read.
    """
    before, found = None, _find_difference(path, remedy, missing, skip)
    while found is not None and found != before:  # a writer may have replaced the file and its digest meanwhile
        before, found = found, _find_difference(path, remedy, missing, skip)
    if found is not None:
        raise DamagedFile(path, "", found[0], remedy)


def set_aside(path: Path, why: Exception | str, then: str) -> Path:
    """Rename a damaged file or folder, with its digest file, to `NAME.damaged-TIME`; return the new path.

    One warning names the path, says `why`, and says in the sentence `then` what happens now. Raises `OSError`, which
    names the path.
    """
    aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    problem = why.problem if isinstance(why, DataError) else str(why)
    with name_file_in_errors(path):
        path.rename(aside)
        if _digest_file(path).exists():
            _digest_file(path).rename(_digest_file(aside))
    log.warning("%s %s. It was renamed to %s. %s", path, problem, aside.name, then)
    return aside


def _digest_file(file: Path) -> Path:
    return file.with_name(file.name + DIGEST_SUFFIX)


def _matches_any(name: str, patterns: Collection[str]) -> bool:
    return any(PurePosixPath(name).match(pattern) for pattern in patterns)


def _find_difference(path: Path, remedy: str, missing: str, skip: Collection[str]) -> tuple[str, list[str]] | None:
    """Return what is wrong with the path, and the lines of its digest file; None if nothing is wrong.

    Raises the other errors of `check_digest`.
    """
    try:
        path.lstat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(path, "", f"cannot be read ({error.strerror})", remedy) from None
    is_folder = path.is_dir() and not _digest_file(path).is_file()
    listed, folder = (path / SUMS_FILE, path) if is_folder else (_digest_file(path), path.parent)
    try:
        lines = listed.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None if missing == "accepted" else (f"cannot be trusted, because {listed} is missing", [])
    except (UnicodeDecodeError, IsADirectoryError):
        lines = []
    except OSError as error:
        raise DataError(listed, "", f"cannot be read ({error.strerror})", remedy) from None
    wanted = _parse_digests(lines, is_folder)
    if wanted is None or (not is_folder and wanted.keys() != {path.name}):
        return f"cannot be trusted, because {listed} is damaged", lines
    for name, digests in wanted.items():
        if not _matches_any(name, skip) and (problem := _find_problem(folder / name, digests, listed.name, remedy)):
            return f"is damaged: {f'its file {name}' if is_folder else 'it'} {problem}", lines
    return None


def _parse_digests(lines: Sequence[str], is_folder: bool) -> dict[str, set[str]] | None:
    """Return name → accepted digests from the lines of a digest file; None if they are not what was written."""
    keys = [line for line in lines if line.startswith(_KEY)]
    if not all(map(_is_key_line, keys)):
        return None
    lines = [line for line in lines if line not in keys]
    if is_folder:
        if lines[:1] != [f"{_COUNT}{len(lines) - 1}"]:
            return None
        lines = lines[1:]
    wanted = defaultdict[str, set[str]](set)
    for line in lines:
        if (read := _LINE.fullmatch(line)) is None:
            return None
        wanted[read["name"]].add(read["digest"])
    return wanted


def _is_key_line(line: str) -> bool:
    try:
        return isinstance(json.loads(line.removeprefix(_KEY)), dict)
    except ValueError:
        return False


def _find_problem(file: Path, digests: Collection[str], listed: str, remedy: str) -> str | None:
    try:
        if sha256_of(file) in digests:
            return None
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        if error.errno not in _DAMAGE:
            raise DataError(file, "", f"cannot be read ({error.strerror})", remedy) from None
        return f"cannot be read ({error.strerror})"
    return f"has another SHA-256 than {listed} notes"
