"""Two promotions at once, on a store of this machine and on a server that machines share: one wins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ops.core.workspace import Workspace
from ops.release import aliases, registry
from ops.release.lock import LOCK, Locked, alone
from ops.release.promotion import NOBODY
from tests.faults.mlflow_server import MlflowServer
from tests.releases import YES, checkout, empty_store, version

RUN = Path(__file__).with_name("promotion_run.py")
ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield empty_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(params=["file", "server"])
def workspace(
    request: pytest.FixtureRequest, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workspace]:
    made = checkout(tmp_path / "project", store)
    if request.param == "file":
        yield made
        return
    server = MlflowServer(tmp_path / "server", made.state / "mlflow" / "mlflow.db")
    server.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    try:
        yield made
    finally:
        server.kill()


@contextmanager
def started(workspace: Workspace, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The process, when it has reached the store; it goes on when a line is written to it."""
    process = subprocess.Popen(
        [sys.executable, str(RUN), str(workspace.root), *words], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait(480)


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_two_promotions_at_once_one_wins_and_the_other_says_so(workspace: Workspace) -> None:
    for _ in range(3):
        version(workspace)
    aliases.promote(workspace, "1", YES)
    with started(workspace, "promote", "2", "1") as first, started(workspace, "promote", "3", "1") as second:
        go(first)
        go(second)
        outcomes = {"2": said(first), "3": said(second)}
    [winner] = [number for number, outcome in outcomes.items() if outcome == "promoted"]
    [loser] = outcomes.keys() - {winner}
    assert outcomes[loser].startswith(
        f"Overtaken: Version {winner} became champion meanwhile; version {loser} was judged against 1."
    )
    champion = registry.champion(workspace)
    assert champion is not None and champion.version == winner
    assert champion.tags["replaced"] == "1"
    assert "verdict" not in registry.named(workspace, loser).tags
    assert aliases.rollback(workspace, "dear").version == "1"


def test_looks_counted_at_once_have_numbers_of_their_own(workspace: Workspace) -> None:
    from concurrent.futures import ThreadPoolExecutor

    numbers = [version(workspace).version for _ in range(3)]
    # Threads share MLflow's one global address, which is the same for all of them.
    with ThreadPoolExecutor(3) as pool:
        looks = list(pool.map(lambda number: registry.look_at(workspace, None, number), numbers))
    assert sorted(looks) == [1, 2, 3]


def unlocked(workspace: Workspace) -> None:
    """What the message tells a person to do."""
    with registry.connected(workspace) as client:
        client.delete_registered_model(LOCK)


def test_a_process_that_dies_while_it_moves_the_champion(workspace: Workspace) -> None:
    for _ in range(2):
        version(workspace)
    aliases.promote(workspace, "1", YES)
    with started(workspace, "hold") as holder:
        go(holder)
        assert said(holder) == "held"
        with pytest.raises(Locked), alone(workspace, patience_s=0.5):
            pass
    # Killed: a file's lock is free; a shared one stays, for nobody can tell who is dead from who is slow.
    if workspace.mlflow_uri.startswith("http"):
        told = rf":{holder.pid} \(host:pid\) holds .*delete the registered model {LOCK}"
        with pytest.raises(Locked, match=told), alone(workspace, patience_s=0.5):
            pass
        unlocked(workspace)
    assert aliases.promote(workspace, "2", YES)
    champion = registry.champion(workspace)
    assert champion is not None and champion.version == "2"
    assert NOBODY not in champion.tags.values()
