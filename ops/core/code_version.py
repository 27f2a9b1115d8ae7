"""The version of code: a hash of the syntax of modules of `ops` and of everything that they import from it.

Comments, docstrings and layout are in no version, so that a rewritten docstring makes nothing again. Modules are read
when a version is asked for, and once in a process: the modules of one stage take a few tenths of a second.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
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
"""Packages that decide where, when and at what price a stage works, or whose part of a result is in its key in another
way: settings by their values, responses by the workers' identity, verdicts by the version of the grader, and what was
trained by the key of the policy."""
_RECORD_MODULES = ("ops.core.problem", "ops.core.reply_text", "ops.core.response")
"""Modules of `ops.core` that are part of every version: the records that stages read and write."""
_MODULE = re.compile(r"ops(\.\w+)+")
_SCRIPT = re.compile(r"\w+\.py")


@lru_cache
def code_version(*roots: str, without: tuple[str, ...] = UNVERSIONED_PACKAGES) -> str:
    """Return the version of these modules and of those that they import, as 16 hex digits.

    `without` are packages whose modules do not count, unless they are themselves among the `roots`.
    """
    return syntax_version(find_used_modules((*roots, *_RECORD_MODULES), without=without))


def syntax_version(modules: Iterable[str]) -> str:
    """Return a hash of the syntax of these modules alone, as 16 hex digits."""
    return hash_parts([[name, read_module(name).syntax] for name in modules])


def find_used_modules(
    roots: Iterable[str], *, without: Collection[str] = (), named_in: Collection[str] = ()
) -> list[str]:
    """Return the names of these modules and of all modules of `ops` that they refer to, directly or not; sorted.

    A reference is an import anywhere in a module, also for annotations only. In a module of the packages `named_in` a
    string is one, too, if it is a module's dotted name, the beginning of the names of a package's modules, or the name
    of a script beside the module. `without` are packages that are not followed. The entry of a registry is imported by
    its name, so that a caller gives the entries that it uses among the roots.
    """
    found, waiting = set[str](), set(roots)
    while waiting:
        name = waiting.pop()
        found.add(name)
        referred = set(_referenced_modules(name, named_in)) - found
        waiting |= {other for other in referred if not _is_in_packages(other, without)}
    return sorted(found)


class Module(NamedTuple):
    """What of a module counts: a hash of its syntax, the names that it imports, and its strings."""

    syntax: str
    imported: frozenset[str]
    strings: frozenset[str]


def read_module(name: str) -> Module:
    """Read the module of that dotted name."""
    file = module_file(name)
    status = file.stat()
    return _parse_module(name, file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4096)
def _parse_module(name: str, file: Path, *_: int) -> Module:
    """Read a module once for each state of its file, which the last arguments are."""
    tree = parse(file.read_text(encoding="utf-8"))
    _remove_bare_strings(tree)
    nodes = list(ast.walk(tree))
    strings = frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return Module(hash_parts(ast.dump(tree)), frozenset(_imported_names(nodes, name)), strings)


def module_file(name: str) -> Path:
    """Return the file of a module of `ops`, which need not exist."""
    folder = _module_folder(name)
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def hash_parts(parts: Any) -> str:
    """Return 16 hex digits over parts that JSON can hold."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def python_version() -> tuple[int, int]:
    """Return the version of Python that decides what code means."""
    return sys.version_info[:2]


def _is_in_packages(module: str, packages: Collection[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _referenced_modules(module: str, named_in: Collection[str]) -> Iterator[str]:
    """Give the modules of `ops` that a module refers to."""
    read, package = read_module(module), module.rpartition(".")[0]
    yield from (found for name in read.imported if (found := _defining_module(name)) is not None)
    for text in read.strings if package in named_in else ():
        name, whole = text.rstrip("."), not text.endswith(".")
        if _SCRIPT.fullmatch(name) and module_file(f"{package}.{name[:-3]}").is_file():
            yield f"{package}.{name[:-3]}"
        elif _MODULE.fullmatch(name) and whole and module_file(name).is_file():
            yield name
        elif _MODULE.fullmatch(name) and not whole and _module_folder(name).is_dir():
            yield from (f"{name}.{file.stem}" for file in _module_folder(name).glob("*.py") if file.stem != "__init__")


def _imported_names(nodes: Iterable[ast.AST], module: str) -> Iterator[str]:
    """Give the dotted names that are imported anywhere in a module, types for annotations included."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _defining_module(name: str) -> str | None:
    """Return the module of `ops` that a dotted name is, or is defined in; None for names of other packages."""
    if name.partition(".")[0] != "ops":
        return None
    while not module_file(name).is_file():
        name = name.rpartition(".")[0]
    return name


def _module_folder(name: str) -> Path:
    return PACKAGE_FOLDER.joinpath(*name.split(".")[1:])


def _remove_bare_strings(tree: ast.AST) -> None:
    """Remove docstrings, and all other statements that are only a string."""
    for node in ast.walk(tree):
        for part in ("body", "orelse", "finalbody"):
            statements = getattr(node, part, None)
            if isinstance(statements, list):
                setattr(node, part, [each for each in statements if not _is_bare_string(each)])


def _is_bare_string(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
