"""Compute a version of code: a hash of the syntax trees of modules of `ops` and of all modules of `ops` that they
import.

Comments, docstrings and layout do not change the version, so rewriting a docstring does not make a stage run again.
Each module is parsed at most once in a process; the modules of one stage take a few tenths of a second.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import ops
from ops.core.cpython import parse

PACKAGE_FOLDER = Path(ops.__path__[0])
"""The folder of the package `ops`."""
UNVERSIONED_PACKAGES = (
    "ops.alerts", "ops.config", "ops.grading", "ops.local_models", "ops.planning", "ops.providers",
    "ops.release", "ops.spending", "ops.store", "ops.training", "ops.versioning", "ops.workers", "ops.core",
)  # fmt: skip
"""Packages that do not count in a version by default.

Some decide only where, when and at what price a stage works. The others enter the key of a result in another way:
settings by their values, responses by the workers' identity, verdicts by the version of the grader, and trained
policies by their own key.
"""
_RECORD_MODULES = ("ops.core.problem", "ops.core.reply_text", "ops.core.response")
"""Modules of `ops.core` that count in every version, because they define the records that stages read and write."""


@lru_cache
def code_version(*roots: str, without: tuple[str, ...] = UNVERSIONED_PACKAGES) -> str:
    """Return the version of the modules `roots`, with everything that they import, as 16 hex digits.

    Modules of the packages `without` do not count, unless they are themselves among the `roots`.
    """
    return syntax_version(find_used_modules((*roots, *_RECORD_MODULES), without=without))


def syntax_version(modules: Iterable[str]) -> str:
    """Return a hash of the syntax of exactly these modules, without what they import, as 16 hex digits."""
    return hash_parts([[name, read_module(name).syntax] for name in modules])


def find_used_modules(roots: Iterable[str], *, without: Collection[str] = ()) -> list[str]:
    """Return the sorted dotted names of `roots` and of all modules of `ops` that they import, directly or indirectly.

    Every import counts, also one inside of a function and one that is only needed for annotations. Imports from the
    packages `without` are not followed. The entries of a registry are imported by their names at run time, so the
    caller adds those that it uses to `roots`.
    """
    seen, waiting = set[str](), set(roots)
    while waiting:
        name = waiting.pop()
        seen.add(name)
        imported = {_defining_module(other) for other in read_module(name).imported} - seen
        waiting |= {other for other in imported if other and not _is_in_packages(other, without)}
    return sorted(seen)


class Module(NamedTuple):
    """What is known about a module's source: a hash of its syntax, and the dotted names that it imports."""

    syntax: str
    imported: frozenset[str]


def read_module(name: str) -> Module:
    """Parse the module with this dotted name."""
    file = module_file(name)
    status = file.stat()
    return _parse_module(name, file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4096)
def _parse_module(name: str, file: Path, *_: int) -> Module:
    """Parse a module. The last two arguments are the time of its last change and its size, so that a changed file is
    parsed again."""
    tree = parse(file.read_text(encoding="utf-8"))
    _remove_bare_strings(tree)
    return Module(hash_parts(ast.dump(tree)), frozenset(_imported_names(ast.walk(tree), name)))


def module_file(name: str) -> Path:
    """Return the path of a module of `ops`. The file need not exist."""
    folder = PACKAGE_FOLDER.joinpath(*name.split(".")[1:])
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def hash_parts(parts: Any) -> str:
    """Return the first 16 hex digits of the SHA-256 of a value that JSON can represent."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def python_version() -> tuple[int, int]:
    """Return the major and minor version of Python, which decide how source code is parsed."""
    return sys.version_info[:2]


def _is_in_packages(module: str, packages: Collection[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _imported_names(nodes: Iterable[ast.AST], module: str) -> Iterator[str]:
    """Yield the dotted names that are imported anywhere in a module, also those that only annotations use."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _defining_module(name: str) -> str | None:
    """Return the module of `ops` that a dotted name is or is defined in; None for a name of another package."""
    if name.partition(".")[0] != "ops":
        return None
    while not module_file(name).is_file():
        name = name.rpartition(".")[0]
    return name


def _remove_bare_strings(tree: ast.AST) -> None:
    """Remove docstrings and all other statements that consist of a string from a syntax tree."""
    for node in ast.walk(tree):
        for part in ("body", "orelse", "finalbody"):
            statements = getattr(node, part, None)
            if isinstance(statements, list):
                setattr(node, part, [statement for statement in statements if not _is_bare_string(statement)])


def _is_bare_string(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
