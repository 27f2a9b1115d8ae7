"""DVC's cache is deleted: the data in `data/` is still used, and the next commit stores it again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ops.core.workspace import Workspace
from ops.versioning import commit, is_stored, revision
from ops.versioning.dvc import program

ROOT = Path(__file__).resolve().parents[2]


def dvc(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program(Workspace(root)), *arguments], cwd=root, capture_output=True, text=True, check=False,
        timeout=240,
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "checkout"
    (root / "data" / "raw").mkdir(parents=True)
    shutil.copytree(ROOT / ".dvc", root / ".dvc", ignore=shutil.ignore_patterns("cache", "tmp", "config.local"))
    (root / "dvc.yaml").write_text("stages:\n  one:\n    cmd: python -m absent\n    outs: [data/raw]\n")
    subprocess.run(["git", "init", "--quiet", str(root)], check=True, timeout=240)
    return Workspace(root)


@pytest.mark.long
def test_the_cache_is_deleted_and_made_again_from_the_data(workspace: Workspace) -> None:
    file = workspace.data / "raw" / "x.jsonl"
    file.write_text("precious\n", encoding="utf-8")
    first, lock = commit(workspace, "one"), revision(workspace)
    assert is_stored(workspace, "one")
    shutil.rmtree(workspace.root / ".dvc" / "cache")
    assert not is_stored(workspace, "one"), "a stage that is unchanged would be left out, and its data never stored"
    assert file.read_text(encoding="utf-8") == "precious\n", "the data hung on the cache"
    assert revision(workspace) == lock
    moved = file.rename(workspace.root / "aside")
    assert dvc(workspace.root, "checkout", "one").returncode != 0, "it came from nowhere"
    moved.rename(file)
    assert commit(workspace, "one") == first
    assert is_stored(workspace, "one")
    file.unlink()
    assert dvc(workspace.root, "checkout", "--force", "one").returncode == 0
    assert file.read_text(encoding="utf-8") == "precious\n"


def test_the_cache_may_lie_elsewhere(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.data / "raw" / "x.jsonl").write_text("precious\n", encoding="utf-8")
    for place in ("elsewhere", str(tmp_path / "far")):
        assert dvc(workspace.root, "cache", "dir", "--local", place).returncode == 0
        commit(workspace, "one")
        assert is_stored(workspace, "one")
