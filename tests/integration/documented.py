"""A checkout with a tiny quickstart that `make run` has finished, and targets of its Makefile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ops.core.workspace import Workspace
from tests.conftest import make_project
from tests.integration.checkouts import LENIENT, configure
from tests.integration.test_lifecycle import RECIPE
from tests.once import made_once

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"


def finished(folder: Path) -> Path:
    """Copy a finished pipeline run into `folder`: the files of tests that begin there share one."""
    if SHARED.is_dir():
        (folder / "shared").symlink_to(SHARED)
    return Path(shutil.copytree(made_once("documented", _run), folder / "project", symlinks=True))


def unfinished(root: Path) -> Workspace:
    """Make a checkout in which nothing has run yet; its recipe `quickstart` takes seconds and its studies are small."""
    workspace = make_project(root)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", ".env.example"):
        shutil.copyfile(ROOT / name, root / name)
    for name in ("docs", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    asking = ["best_single", "five_consensus"]
    study = {"kind": "changes", "title": "Small", "recipe": "quickstart"}
    voted = {"until 2 agree": {"evaluation": {"vote": {"workflows": 3, "agree": 2}}}}
    claims = {**study, "seeds": [3], "changes": voted, "claimed": ["as it is", "until 2 agree"], "baselines": asking}
    studies = {"seeds": {**claims, "temperatures": [0.0, 1.0]}, "vote": claims,
               "reproduction_vote": {**claims, "recipe": "reproduction"},
               "ablations": {**study, "changes": {"hotter": {"grpo": {"temperature": 0.9}}}}}  # fmt: skip
    recipe = RECIPE | {"name": "quickstart"}
    configure(workspace, {"recipes/quickstart": recipe, "promotion": LENIENT, "studies": {"studies": studies}})
    return workspace


def _run(root: Path) -> None:
    unfinished(root)
    make(root, "run")


def make(project: Path, target: str, *variables: str) -> str:
    """Return what the target prints; it must succeed."""
    environment = Path(sys.prefix)
    installed = f"{environment}/.installed"  # assumed to be newer than what it depends on
    command = ["make", "-o", installed, f"VENV={environment}", target, *variables]
    done = subprocess.run(
        command, cwd=project, timeout=1500,
        env={**os.environ, "PODIUM_ROOT": str(project), "PODIUM_BENCH_SMALL": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout
