"""Commands that install what is missing, as they work where this code lies: in a checkout, or from a wheel."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from ops.core.resources import resources

DISTRIBUTION = "podium-conductor"
"""The name under which pip has this code."""
_CONSTRAINTS = "constraints.txt"


def pip_install(*requirements: str) -> str:
    """The command, in backquotes, that installs `requirements` beside this code in its tested versions."""
    constraints = resources() / _CONSTRAINTS
    tested = ["-c", _from_here(constraints)] if constraints.is_file() else []
    return f"`{shlex.join([_from_here(Path(sys.executable)), '-m', 'pip', 'install', *tested, *requirements])}`"


def install_extra(extra: str) -> str:
    """The command, in backquotes, that installs what an extra of pyproject.toml names."""
    if is_checkout():
        return pip_install("-e", f"{_from_here(resources())}[{extra}]")
    return pip_install(f"{DISTRIBUTION}[{extra}]")  # which is installed: pip fetches the extra's libraries alone


def make(target: str, otherwise: str) -> str:
    """What runs a target of the Makefile; `otherwise` where there is none, since a wheel has no Makefile."""
    if not is_checkout():
        return otherwise
    there = _from_here(resources())
    return f"Run `make {target}`" if there == "." else f"Run `make -C {shlex.quote(there)} {target}`"


def is_checkout() -> bool:
    """Whether this code lies in its repository."""
    return (resources() / "pyproject.toml").is_file() and (resources() / "Makefile").is_file()


def _from_here(path: Path) -> str:
    """The path, relative to the current folder where it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):
        return str(path)
