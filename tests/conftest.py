"""Fixtures and hooks of all tests: a quiet environment, and a project of its own for a test to run in."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dagster._core.storage.defs_state.base import DefsStateStorage  # Dagster has no public way to it
from hypothesis import HealthCheck, settings

from ops.core.workspace import Workspace
from ops.grading import configure, find_available_isolation
from pipelines.startup import silence_tools
from tests import once, preloaded
from tests.databases import migrate_once, read_migrations_once
from tests.needs import mark_by_fixtures, skip_without_programs
from tests.report import pytest_terminal_summary as pytest_terminal_summary

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "tests" / "unit"
LONG_S = 900.0
"""Seconds that a long or soak test may take where it does not say so."""
LONGEST_S = 1000.0
"""A file with a test of a longer time-out is among the longest."""
CARRIED = (
    "assets",
    "config",
    "data/.gitignore",
    "data/cold_start",
    "data/few_shots",
    "data/knowledge",
    "mlflow",
    "ops",
    "pipelines",
    ".dvc/config",
    ".dvcignore",
    ".gitignore",
    "dagster.yaml",
    "dvc.yaml",
)
"""What a checkout needs to live through a lifecycle."""


settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pytest_configure(config: pytest.Config) -> None:
    silence_tools()
    # Nothing of Podium's definitions is kept in an instance. Where Dagster looks for such a thing, it asks the instance
    # whose `with` block was left last, and a context that is collected as garbage leaves one: often of an earlier test.
    DefsStateStorage.get = staticmethod(lambda: None)
    read_migrations_once()
    migrate_once()
    if not config.option.collectonly:
        once.begin_session(config)
    settings.load_profile("any machine")  # a busy one draws examples slowly, which says nothing of the code
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side: threads of one would wait for another's
    forks = any("tests.preloaded" in spec for spec in config.option.tx) and not hasattr(config, "workerinput")
    if forks and not config.option.collectonly:
        server = preloaded.start(f"{os.environ[once.SESSION]}/forks")
        if server is not None:
            config.add_cleanup(lambda: preloaded.stop(server))
    for name in ("PODIUM_CACHE_URL", "PODIUM_LEDGER_URL", "PODIUM_LIMITS_URL"):
        os.environ.pop(name, None)  # no test writes into what a team shares


def pytest_unconfigure(config: pytest.Config) -> None:
    if not config.option.collectonly:
        once.end_session(config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose program is absent, and start every other one from the same state of the process.

    Loading a recipe configures grading for the whole process. The tests' own programs are of known origin, so each
    test begins with the strictest isolation that works on this machine.

    A context of `dg.build_asset_context()` puts a Dagster instance in force when it is made and takes it away when it
    is collected as garbage: collected after the `with` block of another instance, it leaves that one in force, closed,
    and whatever loads definitions next in this process fails.
    """
    skip_without_programs(item)
    configure(ROOT, find_available_isolation())


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Before `-m` selects among the tests."""
    mark_by_fixtures(item)
    long = item.get_closest_marker("long") or item.get_closest_marker("soak")
    if long and not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(LONG_S))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file that may take more than `LONGEST_S` begins: its process ends last. The other processes begin with files of
    quick tests, those directly in `tests/unit` first: they judge the whole code in seconds and fail most often. Then
    the others, whose tests may take longest first, so that none of them is left alone in the end.
    """
    longest: dict[Path, float] = {}
    for item in items:
        longest[item.path] = max(longest.get(item.path, 0.0), allowed_s(item))

    def place(item: pytest.Item) -> tuple[bool, bool, float, bool]:
        allowed = longest[item.path]
        return allowed <= LONGEST_S, allowed > 0, -allowed, item.path.parent != UNIT

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Nothing that was imported or collected becomes garbage: a full collection need not look at it again. Later
    ones come seldom, because tests leave little behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def allowed_s(item: pytest.Item) -> float:
    """Seconds that a test of its own time-out is allowed, or 1 for one that is marked slow; 0 for a quick one."""
    limit = item.get_closest_marker("timeout")
    if limit is None:
        return 1.0 if item.get_closest_marker("slow") else 0.0
    return float(limit.args[0])


@pytest.fixture(autouse=True, scope="module")
def restored_environment() -> Iterator[None]:
    """Every file of tests leaves the environment as it found it: commands that run in this process name their project
    there, and the next file may be in the same process."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def project(tmp_path: Path) -> Workspace:
    """A checkout of its own: a git repository with DVC, the configuration and the code, and no state."""
    return make_project(tmp_path / "project")


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of tests that are coroutines (`pytest.mark.anyio`)."""
    return "asyncio"


@pytest.fixture(scope="session")
def litellm_at_hand() -> None:
    """Its import takes seconds, which are not to count as a call's own time."""
    import litellm
    import openai.resources

    assert litellm and openai


@pytest.fixture(scope="session")
def make() -> Callable[[Path], Workspace]:
    """`make_project`, for fixtures with a wider scope."""
    return make_project


def make_project(root: Path) -> Workspace:
    """What `CARRIED` names, in `root` and committed: a copy of a checkout that is made once in a session."""
    shutil.copytree(once.made_once("checkout", _commit_project), root, dirs_exist_ok=True)
    return Workspace(root)


def _commit_project(root: Path) -> None:
    for name in CARRIED:
        source, target = ROOT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
        else:
            shutil.copyfile(source, target)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-C", str(root)]
    for command in (
        ["init", "--quiet"],
        ["add", "--all"],
        ["commit", "--quiet", "--message", "start"],
        ["gc", "--quiet"],  # one file of objects is copied faster than hundreds
    ):
        subprocess.run([*git, *command], check=True, timeout=240)
