"""Each test begins without a variable that names another checkout, Dagster instance or MLflow store; a copy of the
package whose files decide the versions of code."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ops.core import code_version
from ops.core.workspace import Workspace
from ops.grading import version
from pipelines.dagster_home import prepare_home


@pytest.fixture(autouse=True, scope="module")
def no_server() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


@pytest.fixture(autouse=True)
def no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAGSTER_HOME", "PODIUM_ROOT"):
        monkeypatch.setenv(name, "")  # what a command sets is removed afterwards


@pytest.fixture
def instance(project: Workspace) -> Iterator[dg.DagsterInstance]:
    """The instance of the test's own project."""
    prepare_home(project)
    with dg.DagsterInstance.get() as dagster:
        yield dagster


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package, whose files decide the versions of code and graders."""
    copied = tmp_path / "ops"
    shutil.copytree(code_version.PACKAGE_FOLDER, copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_version, "PACKAGE_FOLDER", copied)
    forget()
    yield copied
    monkeypatch.undo()
    forget()


def forget() -> None:
    """Read the files of graders again, as another process does."""
    version.hash_code_and_libraries.cache_clear()
    version.list_grader_modules.cache_clear()
    code_version.code_version.cache_clear()
