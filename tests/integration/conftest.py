"""Each test begins without a variable that names another checkout, Dagster instance or MLflow store."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from ops.core.workspace import Workspace
from pipelines.home import prepare


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
    prepare(project)
    with dg.DagsterInstance.get() as dagster:
        yield dagster
