"""A registry on this machine and on a server: concurrent promotions, the lock, fetched files, an outage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from shutil import copyfile
from threading import Thread

import pytest

from ops.config import Pool, PoolChange, Worker
from ops.core.errors import ConfigError, DataError, PodiumError
from ops.core.workspace import Workspace
from ops.release import aliases, registry
from ops.release.aliases import find_rollback_target
from ops.release.champion import RegisteredVersions
from ops.release.lineage import ReleaseRefusedError
from ops.release.lock import LOCK_MODEL, ChampionLockedError, lock_champion
from ops.release.mlflow_store import RegistryError, check_stores_all_characters, connect
from ops.release.promotion import NO_CHAMPION
from ops.retraining.fine_tuning_start import get_champion_folder
from tests.faults.processes import begin, outcomes, running
from tests.releases import POLICY, YES, checkout, empty_store, version
from tests.team.servers import Mlflow, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield empty_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[Mlflow]:
    folder = tmp_path_factory.mktemp("server")
    database = copyfile(store, folder / "mlflow.db")
    server = Mlflow(folder, f"sqlite:///{database}", str(folder / "artifacts"))
    yield server
    server.stop()


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
        with connect(made) as client:
            for model in client.search_registered_models():
                client.delete_registered_model(model.name)


@dataclass(frozen=True)
class Order:
    """Promote `version`, which was judged against version `against`; roll that back; without both, hold the lock."""

    workspace: Workspace
    version: str = ""
    against: str = ""


def live(order: Order, end: Connection) -> None:
    """Take part in a promotion, or hold the lock until the process is killed."""
    registry.find_champion(order.workspace)  # mlflow is imported and the store is reached
    end.send("ready")
    end.recv()
    if not order.against:
        with lock_champion(order.workspace):
            end.send("held")
            time.sleep(600)
    try:
        if not order.version:
            back = aliases.roll_back_champion(order.workspace, "costly", expected_champion=order.against)
            end.send(f"back to {back.version}")
            return
        verdict = replace(YES, against=order.against)
        end.send("promoted" if aliases.promote_version(order.workspace, order.version, verdict) else "kept back")
    except PodiumError as error:
        end.send(f"{type(error).__name__}: {error}")


def test_one_of_two_concurrent_promotions_wins_and_the_other_is_refused(workspace: Workspace) -> None:
    for _ in range(3):
        version(workspace)
    aliases.promote_version(workspace, "1", YES)
    with running(live, Order(workspace, "2", "1"), Order(workspace, "3", "1")) as processes:
        begin(*processes)
        ends = dict(zip("23", outcomes(*processes), strict=True))
    [winner] = [number for number, end in ends.items() if end == "promoted"]
    [loser] = ends.keys() - {winner}
    assert ends[loser].startswith(
        f"ChampionChangedError: Version {winner} became champion meanwhile; version {loser} was judged against 1."
    )
    champion = registry.find_champion(workspace)
    assert champion is not None and champion.version == winner
    assert champion.tags["replaced"] == "1"
    assert "verdict" not in registry.get_version(workspace, loser).tags
    assert aliases.roll_back_champion(workspace, "costly").version == "1"


def test_a_rollback_during_a_promotion_keeps_previous_and_one_of_the_two_is_refused(workspace: Workspace) -> None:
    for _ in range(3):
        version(workspace)
    aliases.promote_version(workspace, "1", YES)
    aliases.promote_version(workspace, "2", YES)
    with running(live, Order(workspace, "3", "2"), Order(workspace, against="2")) as processes:
        begin(*processes)
        promotion, rollback = outcomes(*processes)
    champion = registry.find_champion(workspace)
    assert champion is not None
    if promotion == "promoted":
        overtaken = "ChampionChangedError: Version 3 became champion meanwhile; the rollback was meant for"
        assert rollback.startswith(overtaken)
        assert (champion.version, find_rollback_target(workspace).version) == ("3", "2")
    else:
        assert (promotion.partition(":")[0], rollback, champion.version) == ("ChampionChangedError", "back to 1", "1")


def test_a_rollback_of_another_version_than_the_champion_changes_nothing(workspace: Workspace) -> None:
    for number in ("1", "2", "3"):
        version(workspace)
        aliases.promote_version(workspace, number, YES)
    with pytest.raises(aliases.ChampionChangedError, match="the rollback was meant for version 2"):
        aliases.roll_back_champion(workspace, "costly", expected_champion="2")
    assert find_rollback_target(workspace).version == "2"
    assert aliases.roll_back_champion(workspace, "costly", expected_champion="3").version == "2"


def test_concurrent_analyses_have_different_numbers(workspace: Workspace) -> None:
    from concurrent.futures import ThreadPoolExecutor

    numbers = [version(workspace).version for _ in range(3)]
    # Threads share MLflow's single global address, which is the same for all of them.
    with ThreadPoolExecutor(3) as pool:
        analyses = list(pool.map(lambda number: registry.assign_analysis_number(workspace, None, number), numbers))
    assert sorted(analyses) == [1, 2, 3]


@pytest.mark.parametrize("workspace", ["file", pytest.param("server", marks=pytest.mark.long)], indirect=True)
def test_a_process_that_dies_while_it_moves_the_champion(workspace: Workspace) -> None:
    for _ in range(2):
        version(workspace)
    aliases.promote_version(workspace, "1", YES)
    with running(live, Order(workspace)) as [holder]:
        holder.begin()
        assert holder.said() == "held"
        with pytest.raises(ChampionLockedError), lock_champion(workspace, timeout_s=0.5):
            pass
    # After a kill a file's lock is free; a shared one stays, for an ended process cannot be distinguished from a slow
    # one.
    if workspace.mlflow_uri.startswith("http"):
        shown = rf":{holder.pid} \(host:pid\) holds .*delete the registered model {LOCK_MODEL}"
        with pytest.raises(ChampionLockedError, match=shown), lock_champion(workspace, timeout_s=0.5):
            pass
        with connect(workspace) as client:
            client.delete_registered_model(LOCK_MODEL)
    assert aliases.promote_version(workspace, "2", YES)
    champion = registry.find_champion(workspace)
    assert champion is not None and champion.version == "2"
    assert NO_CHAMPION not in champion.tags.values()


def test_the_lock_is_refused_while_it_is_held_and_free_afterwards(workspace: Workspace) -> None:
    for _ in range(2):
        refused = pytest.raises(ChampionLockedError, match=r"another process is|holds the promotion lock")
        with lock_champion(workspace), refused, lock_champion(workspace, timeout_s=0.3):
            pass


def test_a_versions_files_are_fetched_checked_and_kept(workspace: Workspace) -> None:
    version(workspace)
    with connect(workspace) as client:
        champion = RegisteredVersions(workspace, client)
        files = champion.fetch_files("1")
        assert (files.policy / "podium.json").read_text(encoding="utf-8") == "{}" and files.pool.is_file()
        kept = workspace.state / "serving"
        on_a_server = workspace.mlflow_uri.startswith("http")
        assert kept.is_dir() == on_a_server
        if on_a_server:
            [folder] = kept.iterdir()
            assert files.policy.is_relative_to(folder)
        assert champion.fetch_files("1") == files
        (files.policy / "model.safetensors").write_bytes(b"other weights")
        if on_a_server:  # a damaged copy is fetched again
            assert champion.fetch_files("1") == files
            assert (files.policy / "model.safetensors").read_bytes() != b"other weights"
        else:
            with pytest.raises(
                ReleaseRefusedError, match=r"model.safetensors: has changed since version 1 was registered"
            ):
                champion.fetch_files("1")
        version(workspace)
        client.set_model_version_tag("conductor", "2", "files", "{}")
        with pytest.raises(ReleaseRefusedError, match="was not registered"):
            champion.fetch_files("2")
        assert not on_a_server or len(list(kept.iterdir())) == 1, "a version that differs is not kept"


def test_a_checkout_that_did_not_train_the_champion_gets_its_policy(workspace: Workspace) -> None:
    change = PoolChange(version="1", policy=POLICY, before=Pool(name="p", workers=(Worker(name="a", model="local/a"),)))
    with pytest.raises(RegistryError, match="There is no version 1"):
        get_champion_folder(workspace, change)
    version(workspace)
    folder = get_champion_folder(workspace, change)
    assert sorted(file.name for file in folder.iterdir()) == ["SHA256SUMS", "model.safetensors", "podium.json"]
    assert folder == workspace.runs / POLICY / "policy" == get_champion_folder(workspace, change)
    assert [each.name for each in folder.parent.iterdir()] == ["policy"], "nothing half-written is left"
    version(workspace, card=None)
    other = change.model_copy(update={"version": "2", "policy": "other"})
    with pytest.raises(DataError, match=r"version 2 contains no policy.*podium run"):
        get_champion_folder(workspace, other)


def test_a_server_that_is_away_is_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    check_stores_all_characters(workspace)  # others find that it is down
    with connect(workspace) as client:
        champion = RegisteredVersions(workspace, client)
        for question, shown in (
            (champion.find_current, "asked for the champion"),
            (champion.explain_missing, "asked for its versions"),
            (lambda: champion.fetch_files("1"), "version 1 cannot be fetched"),
        ):
            with pytest.raises(RegistryError, match=shown):
                question()


class Narrow(BaseHTTPRequestHandler):
    """MLflow's interface in front of a database that does not store every character."""

    def do_GET(self) -> None:
        self._send(200, b'{"experiment": {"experiment_id": "1", "name": "podium", "lifecycle_stage": "active"}}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._send(400, b'{"error_code": "BAD_REQUEST", "message": "character has no equivalent in encoding"}')

    def log_message(self, *args: object) -> None:
        pass

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_store_that_takes_every_text_is_accepted(workspace: Workspace) -> None:
    check_stores_all_characters(workspace)


def test_a_server_that_does_not_take_every_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Narrow) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ConfigError, match=r"MLFLOW_TRACKING_URI: is a server that does not store every text.*UTF8"):
            check_stores_all_characters(workspace)
        server.shutdown()
