"""The version of a grader: a hash of everything that decides its verdicts, which is part of the key of every row.

The version covers the syntax of the grader's module and of all modules of `ops` that it refers to, the libraries that
these import, and for programs also Python and the libraries that a program can import. Comments, docstrings and layout
decide nothing and are in no version. What a recipe says about a benchmark's own grader (a function's source, a judge's
rubric and model) is in the problem's `grading`.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import ops
from ops.core.cpython import parse
from ops.grading.grader import GRADERS
from ops.grading.isolation import Libraries

CALLERS = ("ops.grading", "ops.grading.answer_clusters", "ops.workflow.judging")
"""Modules that call any grader. They are in every version themselves; the stores and clients that they import only
decide how often and where a grader runs."""
SOURCE = Path(ops.__path__[0])
"""The folder of the package `ops`."""
NOT_DECIDING = frozenset({"psutil"})
"""Libraries of which no verdict depends: processes and memory."""

_PACKAGES = ("ops.grading", "ops.grading.graders", "ops.grading.harness")
"""Packages in which a string with a module's name is a reference: their modules also run in other processes."""
_MODULE = re.compile(r"ops(\.\w+)+")
_SCRIPT = re.compile(r"\w+\.py")
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^\]]*)\])?[^;]*(?:;(?P<marker>.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w.-]+)['"]""")


def grader_version(grader: str, programs: Libraries | None = None) -> str:
    """Return the version of the grader of that name, as 16 hex digits.

    `programs` are the libraries that a program can import. They count for graders that run programs, and are ignored
    for others. Takes a few tenths of a second for the first call in a process, and then nothing.
    """
    if programs is None or not GRADERS[grader].runs:
        return code_version(grader)
    return _digest([code_version(grader), sys.version, installed(programs)])


@lru_cache
def code_version(grader: str) -> str:
    """Return a hash of a grader's code and of the versions of its libraries."""
    modules = modules_of(grader)
    code = [[name, _read(name).syntax] for name in modules]
    return _digest([code, sys.version_info[:2], _versions(libraries_of(modules))])


@lru_cache
def modules_of(grader: str) -> tuple[str, ...]:
    """Return the names of the modules whose code is in a grader's version, sorted.

    These are the grader's module, `CALLERS`, and every module that the grader's module refers to, directly or by
    another one: by an import anywhere in it, or in a module of `ops.grading` also by a string that is a module's dotted
    name, the beginning of the names of a package's modules, or the name of a script beside it.
    """
    found, waiting = set[str](), {f"ops.grading.graders.{grader}"}
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= set(_referred(name)) - found
    return tuple(sorted(found | set(CALLERS)))


def libraries_of(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the packages outside of `ops` and of the standard library that these modules import, except `CALLERS`;
    sorted."""
    own = [module for module in modules if module not in CALLERS]
    tops = {name.partition(".")[0] for module in own for name in _read(module).imported}
    return tuple(sorted(tops - {"ops"} - NOT_DECIDING - sys.stdlib_module_names))


@lru_cache(maxsize=8)
def installed(chosen: Libraries) -> str:
    """Return a hash of the names and versions of the libraries that a program can import."""
    folders = [Path(folder) for folder in chosen.folders]
    names = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return _digest(sorted(names - {"__pycache__"}))


# ── references ───────────────────────────────────────────────────────────────


class _Module(NamedTuple):
    """What of a module counts: a hash of its syntax, the names that it imports, and its strings."""

    syntax: str
    imported: frozenset[str]
    strings: frozenset[str]


def _read(name: str) -> _Module:
    file = _file(name)
    status = file.stat()
    return _read_once(name, file, status.st_mtime_ns, status.st_size)


@lru_cache
def _read_once(name: str, file: Path, *_: int) -> _Module:
    """Read a module once for each state of its file, which the last arguments are."""
    tree = parse(file.read_text(encoding="utf-8"))
    _remove_bare_strings(tree)
    nodes = list(ast.walk(tree))
    strings = frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return _Module(_digest(ast.dump(tree)), frozenset(_imported(nodes, name)), strings)


def _referred(module: str) -> Iterator[str]:
    """Give the modules of `ops` that a module refers to."""
    read, package = _read(module), module.rpartition(".")[0]
    yield from (found for name in read.imported if (found := _module(name)) is not None)
    for text in read.strings if package in _PACKAGES else ():
        name, whole = text.rstrip("."), not text.endswith(".")
        if _SCRIPT.fullmatch(name) and _file(f"{package}.{name[:-3]}").is_file():
            yield f"{package}.{name[:-3]}"
        elif _MODULE.fullmatch(name) and whole and _file(name).is_file():
            yield name
        elif _MODULE.fullmatch(name) and not whole and _folder(name).is_dir():
            yield from (f"{name}.{file.stem}" for file in _folder(name).glob("*.py") if file.stem != "__init__")


def _imported(nodes: Iterable[ast.AST], module: str) -> Iterator[str]:
    """Give the dotted names that are imported anywhere in a module, types for annotations included."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            source = ".".join(filter(None, (base, node.module)))
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _module(name: str) -> str | None:
    """Return the module of `ops` that a dotted name is, or is defined in; None for names of other packages."""
    if name.partition(".")[0] != "ops":
        return None
    while not _file(name).is_file():
        name = name.rpartition(".")[0]
    return name


def _folder(name: str) -> Path:
    return SOURCE.joinpath(*name.split(".")[1:])


def _file(name: str) -> Path:
    folder = _folder(name)
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def _remove_bare_strings(tree: ast.AST) -> None:
    """Remove docstrings, and all other statements that are only a string."""
    for node in ast.walk(tree):
        for part in ("body", "orelse", "finalbody"):
            statements = getattr(node, part, None)
            if isinstance(statements, list):
                setattr(node, part, [each for each in statements if not _is_text(each)])


def _is_text(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


# ── libraries ────────────────────────────────────────────────────────────────


def _versions(packages: Iterable[str]) -> dict[str, str]:
    """Return distribution → version for these packages and everything that they require; of one that is not installed,
    an empty version."""
    from importlib import metadata  # imported here, because few commands need a version

    found, waiting = dict[str, str](), [(name, frozenset[str]()) for name in packages]
    while waiting:
        name, extras = waiting.pop()
        key = _normal(name)
        try:
            version, required = metadata.version(name), metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            found[key] = ""
            continue
        if key in found and not extras:
            continue
        found[key] = version
        for line in required:
            if (one := _REQUIREMENT.match(line)) is None:
                continue
            needed = _EXTRA.search(one["marker"] or "")
            if needed is None or _normal(needed[1]) in extras:
                asked = frozenset(_normal(extra.strip()) for extra in (one["extras"] or "").split(",") if extra.strip())
                waiting.append((one["name"], asked))
    return dict(sorted(found.items()))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
