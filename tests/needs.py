"""Programs that a test needs and a bare machine lacks: the test carries the marker, and skips by the program's name.

`pytest -m needs` runs exactly these tests: those of pages are `make browser`, the quick ones of the others `make
test-optional`. A test is marked by `@needs.bubblewrap`, a file by `pytestmark = needs.bubblewrap`, and every test with
a fixture of `FIXTURES` by its fixture.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from ops.grading import find_available_isolation


def _bubblewrap() -> str:
    return (
        ""
        if find_available_isolation() == "bubblewrap"
        else "bubblewrap does not work on this machine (Debian: bubblewrap)"
    )


def _postgres() -> str:
    return "" if postgres_programs() else "Postgres is not installed (Debian: postgresql)"


def _redis() -> str:
    return "" if shutil.which("redis-server") else "redis-server is not installed (Debian: redis-server)"


def _chromium() -> str:
    if find_spec("playwright") is None:
        return "Playwright is not installed (`make browser` installs it)"
    return "" if shutil.which("chromium") else "chromium is not installed (Debian: chromium)"


def _podman() -> str:
    absent = [name for name in ("podman", "podman-compose") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed (Debian: podman; pip: podman-compose)" if absent else ""


def _site() -> str:
    installed = (SITE_PROGRAMS / "mkdocs").is_file()
    return "" if installed else "MkDocs is not installed (`make site` installs it, into .venv-site)"


SITE_PROGRAMS = Path(__file__).parents[1] / ".venv-site" / "bin"
OBSTACLES: dict[str, Callable[[], str]] = {
    "bubblewrap": _bubblewrap, "postgres": _postgres, "redis": _redis, "chromium": _chromium,
    "podman": _podman, "site": _site,
}  # fmt: skip
"""Program → why it cannot be used on this machine, "" where it can."""
bubblewrap = pytest.mark.needs("bubblewrap")
postgres = pytest.mark.needs("postgres")
redis = pytest.mark.needs("redis")
podman = pytest.mark.needs("podman")
site = pytest.mark.needs("site")
FIXTURES = {
    "postgres": postgres, "redis_server": redis, "chromium": pytest.mark.needs("chromium")
}  # fmt: skip
"""Fixture → the marker of every test that has it."""


def postgres_programs() -> Path | None:
    """The folder of Postgres' programs; Debian keeps them off the PATH, beside a `pg_lsclusters` that is on it."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) if shutil.which("pg_lsclusters") else []
    return folders[-1].parent if folders else None


def mark_by_fixtures(item: pytest.Item) -> None:
    """Add the markers of `FIXTURES`."""
    for name in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
        item.add_marker(FIXTURES[name])


def skip_without_programs(item: pytest.Item) -> None:
    """Skip `item` where a program that it needs is absent; called before its fixtures are made."""
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            if why := OBSTACLES[name]():
                pytest.skip(why)
