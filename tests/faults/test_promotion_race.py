"""Two concurrent promotions, on a store of this machine and on a shared server: one wins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile

import pytest

from ops.core.workspace import Workspace
from ops.release import aliases, registry
from ops.release.lock import LOCK, Locked, alone
from ops.release.promotion import NO_CHAMPION
from ops.release.store import connected
from tests.faults.mlflow_server import MlflowServer
from tests.faults.processes import Process
from tests.faults.promotion_run import Order, live
from tests.releases import YES, checkout, empty_store, version

PRELOADED = ["mlflow", "tests.faults.promotion_run"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield empty_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    server = MlflowServer(folder, copyfile(store, folder / "mlflow.db"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(params=["file", "server"])
def workspace(
    request: pytest.FixtureRequest, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workspace]:
    """A checkout and its empty registry."""
    made = checkout(tmp_path / "project", store)
    if request.param == "server":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("mlflow_server").url)
    yield made
    if request.param == "server":
        with connected(made) as client:
            for model in client.search_registered_models():
                client.delete_registered_model(model.name)


@contextmanager
def started(order: Order) -> Iterator[Process]:
    """Start the process and return it once it has reached the store."""
    process = Process(live, order, PRELOADED)
    try:
        process.wait_until_ready()
        yield process
    finally:
        process.kill()


def test_one_of_two_concurrent_promotions_wins_and_the_other_is_refused(workspace: Workspace) -> None:
    for _ in range(3):
        version(workspace)
    aliases.promote(workspace, "1", YES)
    with started(Order(workspace, "2", "1")) as first, started(Order(workspace, "3", "1")) as second:
        first.begin()
        second.begin()
        outcomes = {"2": first.outcome(), "3": second.outcome()}
    [winner] = [number for number, outcome in outcomes.items() if outcome == "promoted"]
    [loser] = outcomes.keys() - {winner}
    assert outcomes[loser].startswith(
        f"Overtaken: Version {winner} became champion meanwhile; version {loser} was judged against 1."
    )
    champion = registry.champion(workspace)
    assert champion is not None and champion.version == winner
    assert champion.tags["replaced"] == "1"
    assert "verdict" not in registry.named(workspace, loser).tags
    assert aliases.rollback(workspace, "costly").version == "1"


def test_concurrent_analyses_have_different_numbers(workspace: Workspace) -> None:
    from concurrent.futures import ThreadPoolExecutor

    numbers = [version(workspace).version for _ in range(3)]
    # Threads share MLflow's single global address, which is the same for all of them.
    with ThreadPoolExecutor(3) as pool:
        analyses = list(pool.map(lambda number: registry.count_analysis(workspace, None, number), numbers))
    assert sorted(analyses) == [1, 2, 3]


def unlocked(workspace: Workspace) -> None:
    """Follow the instruction in the message."""
    with connected(workspace) as client:
        client.delete_registered_model(LOCK)


@pytest.mark.parametrize("workspace", ["file", pytest.param("server", marks=pytest.mark.long)], indirect=True)
def test_a_process_that_dies_while_it_moves_the_champion(workspace: Workspace) -> None:
    for _ in range(2):
        version(workspace)
    aliases.promote(workspace, "1", YES)
    with started(Order(workspace)) as holder:
        holder.begin()
        assert holder.said() == "held"
        with pytest.raises(Locked), alone(workspace, patience_s=0.5):
            pass
    # After a kill a file's lock is free; a shared one stays, for an ended process cannot be distinguished from a slow
    # one.
    if workspace.mlflow_uri.startswith("http"):
        shown = rf":{holder.pid} \(host:pid\) holds .*delete the registered model {LOCK}"
        with pytest.raises(Locked, match=shown), alone(workspace, patience_s=0.5):
            pass
        unlocked(workspace)
    assert aliases.promote(workspace, "2", YES)
    champion = registry.champion(workspace)
    assert champion is not None and champion.version == "2"
    assert NO_CHAMPION not in champion.tags.values()
