"""A checkout of the project stays clean for git: a run, a first look, an upgrade by `git pull`, and a run again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.core.workspace import Workspace
from ops.versioning.dvc import find_program
from tests.command import PODIUM, script
from tests.integration.checkouts import SHORT, configure, sizes
from tests.integration.test_versioning import git

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # `make test` reads the ignored names (test_versioning.py)

RECIPE: dict[str, Any] = {name: SHORT[name] for name in ("seed", "grading", "curation")} | {
    "name": "shipped", "pool": "quickstart", "benchmarks": sizes(40, 4, ["math500"]) | sizes(40, 4, ["mmlu"]),
    "policy": {"kind": "static", "workflow": [{"worker": "solver"}]},
}  # fmt: skip
"""A recipe of the project other than the quickstart."""


def called(root: Path, *words: str, status: int = 0) -> str:
    """Run `podium` with the code of the checkout; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    done = subprocess.run(
        [*PODIUM, *words], cwd=root, env=environment | {"PODIUM_ROOT": str(root)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    return done.stdout


def stale(root: Path) -> Any:
    """Return the stages that `dvc status` reports."""
    environment = os.environ | {"PATH": f"{script(root.with_name('bin')).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [find_program(Workspace(root)), "status", "--json"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True, timeout=240)
    return yaml.safe_load(done.stdout)


def test_no_command_for_users_changes_a_tracked_file_and_git_pull_works(
    tmp_path: Path, make: Callable[[Path], Workspace]
) -> None:
    upstream, root = make(tmp_path / "upstream").root, tmp_path / "checkout"
    configure(Workspace(upstream), {"recipes/shipped": RECIPE})
    git(upstream, "add", "--all")
    git(upstream, "commit", "--quiet", "--message", "one more recipe")
    git(upstream, "clone", "--quiet", str(upstream), str(root))
    called(root, "run", "shipped", "--yes", status=3)
    assert (git(root, "status", "--porcelain"), stale(root)) == ("", {})
    said = called(root, "init", str(root), "--pool", "openai", "--yes", status=1)
    assert "OPENAI_API_KEY" in said and (root / "config" / "recipes" / "first-look-openai.yaml").is_file()
    assert git(root, "status", "--porcelain") == ""

    module = upstream / "ops" / "curation" / "diverse_choice.py"
    module.write_text(module.read_text(encoding="utf-8") + "\n# A remark.\n", encoding="utf-8")
    (upstream / "dvc.yaml").write_text(f"# A remark.\n{(upstream / 'dvc.yaml').read_text()}", encoding="utf-8")
    git(upstream, "commit", "--quiet", "--all", "--message", "an upgrade")
    git(root, "pull", "--quiet")
    assert git(root, "status", "--porcelain") == ""
    called(root, "run", "shipped", "--yes", status=3)
    assert (git(root, "status", "--porcelain"), stale(root)) == ("", {})
