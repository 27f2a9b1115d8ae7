"""The version of a grader: a hash of everything that decides its verdicts, which is part of the key of every row.

The version covers the syntax of the grader's module and of all modules of `ops` that it imports, the libraries that
these import, and for programs also Python and the libraries that a program can import. Comments, docstrings and layout
decide nothing and are in no version. What a recipe says about a benchmark's own grader (a function's source, a judge's
rubric and model) is in the problem's `grading`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from ops.core.code_version import find_used_modules, hash_parts, python_version, read_module, syntax_version
from ops.grading.grader import GRADERS
from ops.grading.isolation import Libraries

CALLING_MODULES = ("ops.grading", "ops.grading.answer_clusters", "ops.workflow.judging")
"""The modules that call any grader. They are in every version themselves; the stores and clients that they import only
decide how often and where a grader runs."""
IGNORED_LIBRARIES = frozenset({"psutil"})
"""Libraries on which no verdict depends: they concern processes and memory."""
_REQUIREMENT = re.compile(r"([\w.-]+)(?!.*;.*\bextra\b)")
"""The name in a line of a distribution's requirements, unless it is needed for an extra only."""


def grader_version(grader: str, programs: Libraries | None = None) -> str:
    """Return the version of the grader of that name, as 16 hex digits.

    `programs` are the libraries that a program can import. They count for graders that run programs, and are ignored
    for others. The first call in a process takes a few tenths of a second; later ones take no time.
    """
    if programs is None or not GRADERS[grader].runs_programs:
        return hash_code_and_libraries(grader)
    return hash_parts([hash_code_and_libraries(grader), sys.version, hash_installed_libraries(programs)])


@lru_cache
def hash_code_and_libraries(grader: str) -> str:
    """Return a hash of a grader's code and of the versions of its libraries."""
    modules = list_grader_modules(grader)
    return hash_parts(
        [syntax_version(modules), python_version(), _list_distribution_versions(list_imported_packages(modules))]
    )


@lru_cache
def list_grader_modules(grader: str) -> tuple[str, ...]:
    """Return the names of the modules whose code is in a grader's version, sorted.

    These are the grader's module, `CALLING_MODULES`, and every module that the grader's module imports, directly or
    through another one. Settings count by their values (`Problem.grading`), and not by the code that defines them.
    """
    found = find_used_modules([f"ops.grading.graders.{grader}"], without=("ops.config",))
    return tuple(sorted({*found, *CALLING_MODULES}))


def list_imported_packages(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the packages outside of `ops` and of the standard library that these modules import, sorted.

    The imports of `CALLING_MODULES` are left out.
    """
    own = [module for module in modules if module not in CALLING_MODULES]
    tops = {name.partition(".")[0] for module in own for name in read_module(module).imported}
    return tuple(sorted(tops - {"ops"} - IGNORED_LIBRARIES - sys.stdlib_module_names))


@lru_cache(maxsize=8)
def hash_installed_libraries(libraries: Libraries) -> str:
    """Return a hash of the names and versions of the libraries that a program can import."""
    folders = [Path(folder) for folder in libraries.folders]
    names = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return hash_parts(sorted(names - {"__pycache__"}))


def _list_distribution_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return distribution → version for these packages and everything that they require; "" for one that is not
    installed."""
    from importlib import metadata  # imported here, because few commands need a version

    found, waiting = dict[str, str](), set(packages)
    while waiting:
        name = waiting.pop()
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
            continue
        required = {match[1] for line in metadata.requires(name) or () if (match := _REQUIREMENT.match(line))}
        waiting |= required - found.keys()
    return dict(sorted(found.items()))
