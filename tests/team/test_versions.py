"""DVC's remote in an S3 store: the data of a stage are fetched elsewhere; an outage of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.config import Versions
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.versioning import commit, push, version
from tests.integration.test_versioning import workspace, write  # noqa: F401  (a fixture)
from tests.team.servers import S3
from tests.team.versions import pulled, remote_in


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
    commit(workspace, "one")
    push(workspace, Versions(push=True), "one")
    assert store.objects("dvc/files/md5")
    other = pulled(workspace, tmp_path / "elsewhere", "one", {})
    assert (other.data / "raw" / "x.jsonl").read_text(encoding="utf-8") == "precious\n"

    store.stop()
    write(workspace, "raw/x.jsonl", "newer\n")
    newer = commit(workspace, "one")
    with pytest.raises(DataError, match=r"did not accept a copy of one.*The data is kept and recorded"):
        push(workspace, Versions(push=True), "one")
    assert version(workspace, "one") == newer
    store = S3(folder, port=store.port)  # empty, because the server keeps its objects in memory
    push(workspace, Versions(push=True), "one")
    other = pulled(workspace, tmp_path / "later", "one", {})
    assert (other.data / "raw" / "x.jsonl").read_text(encoding="utf-8") == "newer\n"
    store.stop()
