"""Keys of everything that a stage depends on, by content: settings, code, libraries, sources, files of earlier stages.

A stage whose key equals that of its last output would write the same files again. A key covers more than its stage
reads, so that a stage is rather done again than left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import ops
from ops.config import Snapshot, digest
from ops.core.atomic import TEMPORARY, sha256_of
from ops.core.checked import ASIDE
from ops.core.installation import resources
from ops.core.workspace import Workspace
from ops.grading import isolation
from ops.grading.isolation import libraries, own_libraries
from ops.grading.version import installed


def inputs_key(workspace: Workspace, snapshot: Snapshot, files: Iterable[Path]) -> str:
    """Return a hash of all that a stage of this run can read: `files` are outputs of earlier stages.

    Left out are the commit, because the code itself counts, and the budget, which changes no output.
    """
    recipe = snapshot.recipe
    sources = [
        workspace.root / name
        for source in recipe.benchmarks.values()
        for names in (source.train_file, source.test_file)
        for name in ((names,) if isinstance(names, str) else names or ())
    ]
    return digest(
        [
            snapshot.model_dump(mode="json", exclude={"git_commit": True, "recipe": {"budget"}}),
            str(workspace.root),
            sys.version,
            isolation(),
            [installed(chosen) for chosen in (own_libraries(), *map(libraries, recipe.benchmarks))],
            _code(),
            files_key(workspace, [resources() / "data" / "knowledge", *sources]),
            files_key(workspace, files),
        ]
    )


def files_key(workspace: Workspace, paths: Iterable[Path]) -> str:
    """Return a hash of the names and contents of these files and of all files below these folders."""
    return digest([[_name(workspace, path), [[str(file), _content(file)] for file in _below(path)]] for path in paths])


def _name(workspace: Workspace, path: Path) -> str:
    return str(path.relative_to(workspace.root)) if path.is_relative_to(workspace.root) else str(path)


def _below(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    ignored = {*path.rglob(TEMPORARY), *path.rglob(ASIDE)}
    yield from sorted(file for file in path.rglob("*") if file.is_file() and file not in ignored)


def _content(file: Path) -> str:
    status = file.stat()
    return _hash(str(file), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=65_536)
def _hash(file: str, *_: int) -> str:
    """Hash a file once for each state of it; the later arguments are that state."""
    return sha256_of(Path(file))


@lru_cache(maxsize=1)
def _code() -> str:
    """Return a hash of the source of `ops` and `assets`."""
    folders = (Path(ops.__path__[0]), Path(ops.__path__[0]).parent / "assets")
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return digest([[str(file.relative_to(folders[0].parent)), file.read_bytes().hex()] for file in files])
