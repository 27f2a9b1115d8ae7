"""DVC's remote in an S3 store: the data of a stage are fetched elsewhere; an outage of the store. DVC's cache is
deleted: the data in `data/` is still used, and the next commit stores it again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ops.config import Versions
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.versioning import commit_stages, compute_revision, is_in_cache, push_stages, read_stage_version
from tests.integration.test_versioning import workspace, write  # noqa: F401  (a fixture)
from tests.team.servers import S3
from tests.team.versions import dvc, pulled, remote_in


@pytest.mark.long  # `make test` tests the same with a remote in a folder (tests/integration/test_versioning.py)
def test_data_that_was_pushed_comes_back_elsewhere_and_a_store_that_is_away_costs_a_line(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    (folder := tmp_path / "s3").mkdir()
    store = S3(folder)
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    remote_in(store, workspace)
    write(workspace, "raw/x.jsonl", "precious\n")
    commit_stages(workspace, "one")
    push_stages(workspace, Versions(push=True), "one")
    assert store.objects("dvc/files/md5")
    other = pulled(workspace, tmp_path / "elsewhere", "one", {})
    assert (other.data / "raw" / "x.jsonl").read_text(encoding="utf-8") == "precious\n"

    store.stop()
    write(workspace, "raw/x.jsonl", "newer\n")
    newer = commit_stages(workspace, "one")
    with pytest.raises(DataError, match=r"did not accept a copy of one.*The data is kept and recorded"):
        push_stages(workspace, Versions(push=True), "one")
    assert read_stage_version(workspace, "one") == newer
    store = S3(folder, port=store.port)  # empty, because the server keeps its objects in memory
    push_stages(workspace, Versions(push=True), "one")
    other = pulled(workspace, tmp_path / "later", "one", {})
    assert (other.data / "raw" / "x.jsonl").read_text(encoding="utf-8") == "newer\n"
    store.stop()


@pytest.mark.long
def test_the_cache_is_deleted_and_made_again_from_the_data(workspace: Workspace) -> None:  # noqa: F811
    write(workspace, "raw/x.jsonl", "precious\n")
    file = workspace.data / "raw" / "x.jsonl"
    first, lock = commit_stages(workspace, "one"), compute_revision(workspace)
    assert is_in_cache(workspace, "one")
    shutil.rmtree(workspace.root / ".dvc" / "cache")
    assert not is_in_cache(workspace, "one"), "a stage that is unchanged would be left out, and its data never stored"
    assert file.read_text(encoding="utf-8") == "precious\n", "the data hung on the cache"
    assert compute_revision(workspace) == lock
    moved = file.rename(workspace.root / "aside")
    with pytest.raises(AssertionError, match="Is your cache up to date"):
        dvc(workspace, "checkout", "one")
    moved.rename(file)
    assert commit_stages(workspace, "one") == first
    assert is_in_cache(workspace, "one")
    file.unlink()
    dvc(workspace, "checkout", "--force", "one")
    assert file.read_text(encoding="utf-8") == "precious\n"


def test_the_cache_may_lie_elsewhere(workspace: Workspace, tmp_path: Path) -> None:  # noqa: F811
    write(workspace, "raw/x.jsonl", "precious\n")
    for place in ("elsewhere", str(tmp_path / "far")):
        dvc(workspace, "cache", "dir", "--local", place)
        commit_stages(workspace, "one")
        assert is_in_cache(workspace, "one")
