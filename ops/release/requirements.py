"""Find the libraries that a model version needs to answer, from the imports of the code that is stored with it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from ops.core.cpython import parse
from ops.core.errors import PodiumError
from ops.core.installation import pip_install_command

OPTIONAL_LIBRARIES = {
    "vllm": "PODIUM_WRITER=vllm",
    "redis": "PODIUM_CACHE_URL, PODIUM_LIMITS_URL",
    "psycopg": "PODIUM_LEDGER_URL, PODIUM_CACHE_URL",
    "datasets": "loading of benchmarks",
    "pyarrow": "loading of benchmarks",
}
"""Libraries that the code imports for the purpose named here, and that neither loading a version nor answering needs.
"""
REQUIREMENTS_FILE = "requirements.txt"
"""The name of the list of libraries among a version's files."""
_PREFERRED_DISTRIBUTIONS = ("mlflow",)
"""The distribution to install where several provide one package."""


def list_requirements(agent: Path, ops: Path) -> list[str]:
    """Return `NAME==VERSION` for each library that the agent needs, directly or through the modules of `ops` that it
    imports.

    Raises `PodiumError` for a library that is not installed here, because such a version could not answer anywhere.
    """
    known = _distributions()
    found = {}
    for name in sorted(find_imported_packages(agent, ops) - OPTIONAL_LIBRARIES.keys()):
        candidates = known.get(name, [])
        chosen = next((each for each in candidates if each in _PREFERRED_DISTRIBUTIONS), *candidates[:1] or [name])
        try:
            found[chosen.lower()] = version(chosen).partition("+")[0]
        except PackageNotFoundError:
            remedy = f"Run {pip_install_command(chosen)}"
            raise PodiumError(f"{name} is not installed, and the serving agent imports it. {remedy}") from None
    return [f"{name}=={number}" for name, number in sorted(found.items())]


def check_requirements_installed(file: Path) -> None:
    """Raise `PodiumError` unless each library in the file is installed, in whichever version."""
    missing = []
    for line in file.read_text(encoding="utf-8").splitlines():
        name = line.partition("==")[0].strip()
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        raise PodiumError(
            f"{', '.join(missing)}: not installed, and this model needs it. "
            f"Run {sys.executable} -m pip install -r {file}"
        )


def find_imported_packages(agent: Path, ops: Path) -> set[str]:
    """Return the top-level names of the third-party packages that the agent imports, directly or through modules of
    `ops`.

    Imports inside functions count; imports for type checkers do not. A string that names a module of `ops` counts as an
    import of it, and a string that names a package as an import of all its modules, because registries load modules by
    name.
    """
    packages: set[str] = set()
    seen: set[Path] = set()
    waiting = [agent]
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for module, whole in _parse_imports(file.read_text(encoding="utf-8")):
            if module.partition(".")[0] == "ops":
                waiting += _list_module_files(module, ops, whole=whole)
            elif not whole and (top := module.partition(".")[0]) not in sys.stdlib_module_names:
                packages.add(top)
    return packages


_distributions = cache(packages_distributions)
"""Reads the metadata of every installed library, once in a process."""


@cache
def _parse_imports(source: str) -> tuple[tuple[str, bool], ...]:
    return tuple(_list_imported_names(parse(source)))


def _list_imported_names(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Return the modules that a tree imports; with True also its strings, which may name modules."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if isinstance(node, ast.Import):
        yield from ((alias.name, False) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module, False
        yield from ((f"{node.module}.{alias.name}", False) for alias in node.names if node.module.startswith("ops"))
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        if getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            yield str(node.args[0].value), False
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("ops."):
        yield node.value, True
    for child in ast.iter_child_nodes(node):
        yield from _list_imported_names(child)


def _list_module_files(module: str, ops: Path, *, whole: bool) -> Iterator[Path]:
    """Return the files of `ops` that an import of the module executes; with `whole` also all modules of a package."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        place = ops.parent.joinpath(*parts[:length])
        if (package := place / "__init__.py").is_file():
            yield package
        elif (file := place.with_suffix(".py")).is_file():
            yield file
    if whole and place.is_dir():
        yield from place.glob("*.py")
