"""Store SHA-256 digests with files and folders, so that a change after writing is found on reading.

The digest of the file `NAME` is stored beside it in `NAME.sha256`. The digests of a folder's files are stored inside it
in `SHA256SUMS`. Both files have the format of the program `sha256sum`, and `sha256sum --check` can read them. A comment
line before the digests holds the key of the inputs that the file or folder was computed from (`ops.core.once`).
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
"""The suffix that is appended to a file's name to form the name of its digest file."""
SUMS_FILE = "SHA256SUMS"
"""The name of the file in a folder that lists the digests of the folder's files."""
_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<name>[^\n]+)")
_COUNT = "# files: "
"""Beginning of the first line of `SUMS_FILE`, which states the number of files, so that a lost line is noticed.
`sha256sum` reads it as a comment."""
_KEY = "# made from: "
"""Beginning of the line with the key of the inputs as JSON. `sha256sum` reads it as a comment."""
_DAMAGE = (errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
"""Error numbers of a read that a change of permissions cannot repair."""


class DamagedFile(DataError):
    """The content of a file or folder differs from what was written. `file` is its path."""


@contextmanager
def replace_with_digest(file: Path, key: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Yield a temporary path that replaces `file` at the end of the block (`replace_atomically`), and write its digest.

    `key` is the key of the inputs that the file was computed from; `read_stored_key` returns it. The digest file is
    written first and holds the old and the new digest, each with its key, until `file` has been replaced. A kill at any
    moment therefore leaves a file whose digest is listed. Raises `OSError`, whose file name is `file`.
    """
    with replace_atomically(file) as temporary:
        yield temporary
        new_lines, digest_file = _format_key_line(key) + f"{sha256_of(temporary)}  {file.name}\n", _digest_file(file)
        for place in (file, digest_file):
            if place.is_dir():
                set_aside(place, "is a folder in the place of a file", "A new file is written.")
        old_lines = (
            digest_file.read_text(encoding="utf-8", errors="replace")
            if file.is_file() and digest_file.is_file()
            else ""
        )
        write_text(digest_file, f"{old_lines}{new_lines}")
    write_text(digest_file, new_lines)


def write_digest(path: Path, *, skip: Collection[str] = (), key: Mapping[str, str] | None = None) -> None:
    """Write the digest of an existing file, or of all files of an existing folder, with the `key` of the inputs.

    `skip` contains names and patterns ("optimizer.pt", "*.log", "checkpoint-*/*") of files of a folder that get no
    digest; temporary files get none either. For a folder that is created in one step
    (`atomic.create_folder_atomically`), call this function before the folder gets its final name. Raises `OSError`,
    whose file name is that of the digest file.
    """
    if not path.is_dir():
        write_text(_digest_file(path), _format_key_line(key) + f"{sha256_of(path)}  {path.name}\n")
        return
    names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    chosen = [name for name in names if name != SUMS_FILE and not _matches_any(name, (TEMPORARY, *skip))]
    lines = [f"{sha256_of(path / name)}  {name}\n" for name in chosen]
    write_text(path / SUMS_FILE, f"{_COUNT}{len(chosen)}\n{_format_key_line(key)}{''.join(lines)}")


def read_stored_key(path: Path) -> dict[str, str]:
    """Return the key of the inputs that a file or folder was computed from; empty if none was stored.

    Call `check_digest` first, because this function does not report damage. Raises `OSError` if the file or its digest
    file cannot be read.
    """
    is_folder = path.is_dir()
    lines = (path / SUMS_FILE if is_folder else _digest_file(path)).read_text(encoding="utf-8").splitlines()
    key, stored_key, current_digest = dict[str, str](), dict[str, str](), "" if is_folder else sha256_of(path)
    for line in lines:
        if line.startswith(_KEY):
            key = json.loads(line.removeprefix(_KEY))
        elif not line.startswith(_COUNT):
            stored_key = key if line.startswith(current_digest) else stored_key
            key = key if is_folder else {}
    return stored_key


def _format_key_line(key: Mapping[str, str] | None) -> str:
    return "" if key is None else f"{_KEY}{json.dumps(dict(key), sort_keys=True)}\n"


def check_digest(
    path: Path, remedy: str, *, missing: Literal["damaged", "accepted"] = "damaged", skip: Collection[str] = ()
) -> None:
    """Check that the content of a file, or of each file of a folder that has a digest, is what was written.

    `missing` says whether a path without a digest counts as "damaged" or is "accepted". `skip` contains names and
    patterns of files that are not read, as in `write_digest`. Files that were added to a folder later are accepted.

    Raises `FileNotFoundError` if nothing exists at `path`, `DamagedFile` with the name of the first file that differs,
    and `DataError` for a file that this user may not read. `remedy` is the last sentence of the message.
    """
    before, found = None, _find_difference(path, remedy, missing, skip)
    while found is not None and found != before:  # a writer may have replaced the file and its digest meanwhile
        before, found = found, _find_difference(path, remedy, missing, skip)
    if found is not None:
        raise DamagedFile(path, "", found[0], remedy)


def set_aside(path: Path, why: Exception | str, then: str) -> Path:
    """Rename a damaged file or folder, and its digest file, to `NAME.damaged-TIME`. Return the new path.

    Logs one warning with the path, the reason `why`, and the sentence `then`, which says what happens next. Raises
    `OSError`, whose file name is `path`.
    """
    aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    problem = why.problem if isinstance(why, DataError) else str(why)
    with name_file_in_errors(path):
        path.rename(aside)
        if _digest_file(path).exists():
            _digest_file(path).rename(_digest_file(aside))
    log.warning("%s %s. It was renamed to %s. %s", path, problem, aside.name, then)
    return aside


def is_lost(file: Path) -> bool:
    """Return whether a file is missing although its digest file says that it was written."""
    return not file.exists() and _digest_file(file).is_file()


def _digest_file(file: Path) -> Path:
    return file.with_name(file.name + DIGEST_SUFFIX)


def _matches_any(name: str, patterns: Collection[str]) -> bool:
    return any(PurePosixPath(name).match(pattern) for pattern in patterns)


def _find_difference(path: Path, remedy: str, missing: str, skip: Collection[str]) -> tuple[str, list[str]] | None:
    """Return the description of what differs and the lines of the digest file; None if nothing differs.

    Raises the same errors as `check_digest`, except for `DamagedFile`.
    """
    try:
        path.lstat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(path, "", f"cannot be read ({error.strerror})", remedy) from None
    is_folder = path.is_dir() and not _digest_file(path).is_file()
    digest_file, folder = (path / SUMS_FILE, path) if is_folder else (_digest_file(path), path.parent)
    try:
        lines = digest_file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None if missing == "accepted" else (f"cannot be trusted, because {digest_file} is missing", [])
    except (UnicodeDecodeError, IsADirectoryError):
        lines = []
    except OSError as error:
        raise DataError(digest_file, "", f"cannot be read ({error.strerror})", remedy) from None
    accepted = _parse_digests(lines, is_folder)
    if accepted is None or (not is_folder and accepted.keys() != {path.name}):
        return f"cannot be trusted, because {digest_file} is damaged", lines
    for name, digests in accepted.items():
        if not _matches_any(name, skip) and (
            problem := _find_problem(folder / name, digests, digest_file.name, remedy)
        ):
            return f"is damaged: {f'its file {name}' if is_folder else 'it'} {problem}", lines
    return None


def _parse_digests(lines: Sequence[str], is_folder: bool) -> dict[str, set[str]] | None:
    """Return the accepted digests for each file name of a digest file; None if the digest file itself is damaged."""
    keys = [line for line in lines if line.startswith(_KEY)]
    if not all(map(_is_key_line, keys)):
        return None
    lines = [line for line in lines if line not in keys]
    if is_folder:
        if lines[:1] != [f"{_COUNT}{len(lines) - 1}"]:
            return None
        lines = lines[1:]
    digests = defaultdict[str, set[str]](set)
    for line in lines:
        if (matched := _LINE.fullmatch(line)) is None:
            return None
        digests[matched["name"]].add(matched["digest"])
    return digests


def _is_key_line(line: str) -> bool:
    try:
        return isinstance(json.loads(line.removeprefix(_KEY)), dict)
    except ValueError:
        return False


def _find_problem(file: Path, digests: Collection[str], digest_file_name: str, remedy: str) -> str | None:
    """Return what is wrong with a file whose accepted `digests` are known; None if its content has one of them."""
    try:
        if sha256_of(file) in digests:
            return None
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        if error.errno not in _DAMAGE:
            raise DataError(file, "", f"cannot be read ({error.strerror})", remedy) from None
        return f"cannot be read ({error.strerror})"
    return f"has another SHA-256 than {digest_file_name} notes"
