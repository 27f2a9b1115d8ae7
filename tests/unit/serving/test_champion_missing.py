"""A champion that is removed while it is served: the server continues, reports it once, and names the command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ops.config import load_pool
from ops.core.workspace import Workspace
from ops.release import aliases, store
from ops.release.champion import champion_of
from ops.serving.follow import Follower
from ops.serving.http.metrics import Metrics
from tests.command import podium
from tests.releases import YES, checkout, shared_store, version
from tests.serving.script import Scripted, engine_of

COMMAND = "`podium promote VERSION --by NAME --reason WHY` makes one of them champion"


@pytest.mark.parametrize("taken", ["alias", "version"])
def test_a_removed_champion_is_reported_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str], taken: str,
) -> None:  # fmt: skip
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = checkout(tmp_path / "checkout", shared_store())
    aliases.promote(workspace, version(workspace).version, YES)
    version(workspace)
    pool, metrics = load_pool(Workspace.find().config, "quickstart"), Metrics()
    engine = engine_of(tmp_path / "engine", pool, Scripted("nothing"))  # its version is also named 1
    try:
        with champion_of(workspace) as champion, store.connected(workspace) as client:
            follower = Follower(engine.engine, champion, on_attempt=metrics.swapped)
            assert asyncio.run(follower.look())
            if taken == "alias":
                client.delete_registered_model_alias(store.MODEL, store.CHAMPION)
            else:
                client.delete_model_version(store.MODEL, "1")
            assert [asyncio.run(follower.look()) for _ in range(3)] == [False] * 3
            assert engine.engine.loaded is not None and engine.engine.loaded.version == "1", "it goes on"
            assert b'podium_swaps_total{outcome="missing"} 1.0' in metrics.page()[0]
    finally:
        engine.close()
    said = [record.getMessage() for record in caplog.records if "alias champion" in record.getMessage()]
    left = "2, 1" if taken == "alias" else "2"
    why = (
        "No version of conductor has the alias champion: the gate promoted none (`podium verdict` says why), "
        "the alias was removed, or its version was deleted"
    )
    assert said == [f"{why}. There are versions {left}: {COMMAND}. Until then version 1 stays in service"]
    monkeypatch.setenv("PODIUM_ROOT", str(workspace.root))
    assert podium("serve") == 1, "started again"
    error = capsys.readouterr().err
    assert COMMAND in error and "podium run" not in error
