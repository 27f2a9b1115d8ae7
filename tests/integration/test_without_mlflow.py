"""An environment without the mlflow library, in the project's folder: the error says so, and `mlflow/` is not
imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USES = {
    "store": "from ops.release.store import connected\nwith connected(workspace): pass",
    "tracing": "from ops.release.tracing import store_traces\nstore_traces('', '', [])",
}


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """Everything installed except mlflow."""
    import pydantic

    installed = Path(pydantic.__file__).parents[1]
    for file in installed.iterdir():
        if not file.name.startswith("mlflow"):
            (tmp_path / file.name).symlink_to(file)
    return tmp_path


@pytest.mark.parametrize("use", USES)
def test_a_missing_mlflow_is_reported_with_its_remedy(libraries: Path, use: str) -> None:
    program = (
        "import mlflow\n"
        "assert mlflow.__file__ is None, 'the folder hides what this test is about'\n"
        "from pathlib import Path\nfrom ops.core.errors import PodiumError\nfrom ops.core.workspace import Workspace\n"
        f"workspace = Workspace(Path({str(libraries)!r}))\n"
        "try:\n    " + USES[use].replace("\n", "\n    ") + "\n"
        "except PodiumError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(libraries)])},
        capture_output=True,
        text=True,
        check=False, timeout=240,
    )
    assert "the mlflow library is not installed. Run `" in done.stdout, done.stderr
