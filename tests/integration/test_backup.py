"""Ledger, cache and registry, copied while in use and restored elsewhere."""

from __future__ import annotations

import json
import sqlite3
import tarfile
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from ops.cache import ResponseCache
from ops.core.backup import backup, restore
from ops.core.errors import DataError
from ops.core.response import Response
from ops.core.workspace import Workspace
from ops.release import store
from ops.spending.ledger import Bill, Departure, Ledger

RESPONSE = Response("Answer: 4", 10, 5, 0.25, 0.25, "stop")


def pay(ledger: Ledger, cache: ResponseCache, number: int) -> None:
    """Make one call like a client: reserved, sent, stored, booked."""
    [held] = ledger.mark_sent(Departure(ledger.reserve("run", 1.0, 1e9), "test", "w", f"key-{number}"))
    cache.put_many([(f"key-{number}", "{}", RESPONSE)])
    ledger.settle(Bill(held, "test", "w", 0.25, 10, 5, f"key-{number}"))


def logged(workspace: Workspace, number: int) -> None:
    with store.connected(workspace) as client:
        run = client.create_run(store.experiment(client, workspace)).info.run_id
        client.log_text(run, f"note {number}", "note.txt")
        client.set_tag(run, "number", str(number))


@pytest.mark.slow
def test_a_copy_that_is_taken_during_writes_is_whole_and_opens_elsewhere(tmp_path: Path) -> None:
    here, there = Workspace(tmp_path / "here"), Workspace(tmp_path / "there")
    ledger, cache, ended = Ledger(here.ledger), ResponseCache(here.cache), threading.Event()
    logged(here, 0)

    def repeat(work: Callable[[int], None]) -> None:
        for number in count():
            if ended.is_set():
                return
            work(number)

    works = (lambda number: pay(ledger, cache, number), lambda number: logged(here, number + 1))
    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        while ledger.by_run().get("run") is None or ledger.by_run()["run"].calls < 50:
            pass
        before = ledger.by_run()["run"].calls
        said = backup(here, tmp_path / "copy.tar")
        after = ledger.by_run()["run"].calls
    finally:
        ended.set()
        for thread in threads:
            thread.join(240)
    assert set(said) == {"ledger", "cache", "registry", "registry's artifacts", "snapshots"}
    restore(there, tmp_path / "copy.tar")

    books, copied = Ledger(there.ledger), ResponseCache(there.cache)
    sums = books.by_run()["run"]
    assert before <= sums.calls <= after
    assert sums.usd == 0.25 * sums.calls + sums.lost_usd, "books of one moment"
    keys = [f"key-{number}" for number in range(sums.calls)]
    assert copied.holds(keys) == set(keys), "whatever was booked is there to be used"
    pay(books, copied, 10**6)
    with store.connected(there) as client:
        runs = client.search_runs([store.experiment(client, there)], max_results=1000)
        for run in (run for run in runs if "number" in run.data.tags):
            [note] = [client.download_artifacts(run.info.run_id, "note.txt", str(tmp_path))]
            assert Path(note).read_text(encoding="utf-8") == f"note {run.data.tags['number']}"
            assert Path(note).is_relative_to(tmp_path)
        assert all(str(there.mlflow_artifacts) in run.info.artifact_uri for run in runs)


def test_a_backup_holds_the_registry_while_its_store_is_in_use(tmp_path: Path) -> None:
    here = Workspace(tmp_path / "here")
    logged(here, 0)
    with store.connected(here):
        said = backup(here, tmp_path / "copy.tar")
    assert said["registry"].startswith("1 file, ")
    assert said["registry's artifacts"].startswith("1 file, ")


def test_a_backup_omits_and_reports_data_on_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Workspace(tmp_path / "here")
    pay(Ledger(here.ledger), ResponseCache(here.cache), 0)
    monkeypatch.setenv("PODIUM_LEDGER_URL", "postgresql://somewhere/db")
    said = backup(here, tmp_path / "copy.tar")
    assert "PODIUM_LEDGER_URL names a server" in said["ledger"]
    assert restore(Workspace(tmp_path / "there"), tmp_path / "copy.tar") == ["cache"]


def test_nothing_is_replaced_and_nothing_is_taken_for_a_back_up(tmp_path: Path) -> None:
    here, there = Workspace(tmp_path / "here"), Workspace(tmp_path / "there")
    with pytest.raises(DataError, match="nothing to back up"):
        backup(here, tmp_path / "copy.tar")
    assert not list(tmp_path.glob("*.tar"))
    pay(Ledger(here.ledger), ResponseCache(here.cache), 0)
    backup(here, tmp_path / "copy.tar")
    with pytest.raises(DataError, match=r"ledger\.sqlite.*is there already"):
        restore(here, tmp_path / "copy.tar")
    half = tmp_path / "half.tar"
    half.write_bytes((tmp_path / "copy.tar").read_bytes()[:-4000])
    with pytest.raises(DataError, match="is not a complete back-up"):
        restore(there, half)
    damaged = tmp_path / "damaged"
    with tarfile.open(tmp_path / "copy.tar") as archive:
        archive.extractall(damaged)
    with sqlite3.connect(damaged / "ledger.sqlite") as connection:
        connection.execute("UPDATE calls SET usd = 0")
    with pytest.raises(DataError, match=r"ledger\.sqlite.*differs from the backed-up file"):
        restore(there, packed(damaged))
    later = json.loads((damaged / "podium-backup.json").read_text(encoding="utf-8")) | {"format": 99}
    (damaged / "podium-backup.json").write_text(json.dumps(later), encoding="utf-8")
    with pytest.raises(DataError, match="Update Podium"):
        restore(there, packed(damaged))
    assert not any(path.is_file() for path in there.state.rglob("*"))


def packed(folder: Path) -> Path:
    with tarfile.open(file := folder.with_suffix(".tar"), "w:gz") as archive:
        archive.add(folder, arcname=".")
    return file
