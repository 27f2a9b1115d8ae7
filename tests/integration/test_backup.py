"""Ledger, cache, registry and what a user wrote: copied while in use, restored elsewhere, and merged with what came
since."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.config import Setup, dump_settings
from ops.core.backup import create_backup, restore_backup
from ops.core.errors import DataError
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.core.workspace_parts import PARTS, check_parts, count_rows, find_missing_parts
from ops.release import mlflow_store
from ops.spending.bookings import SpendingSum
from ops.spending.ledger import Bill, Ledger, OutgoingCall
from ops.store import ResponseCache
from pipelines.commands.main import podium
from tests.unit.core.test_parts import DAMAGES, register

RESPONSE = Response("Answer: 4", Usage(10, 5), 0.25, 0.25, "stop")


def pay(ledger: Ledger, cache: ResponseCache, number: int) -> None:
    """Make one call like a client: reserved, sent, booked, stored."""
    [held] = ledger.mark_sent(OutgoingCall(ledger.reserve("run", 1.0, 1e9), "test", "w", f"key-{number}"))
    ledger.settle(Bill(held, "test", "w", 0.25, Usage(10, 5), f"key-{number}"))
    cache.put_many([(f"key-{number}", "{}", RESPONSE)])


def pay_for(workspace: Workspace, *numbers: int) -> None:
    ledger, cache = Ledger(workspace.ledger), ResponseCache(workspace.cache)
    for number in numbers:
        pay(ledger, cache, number)
    ledger.close()
    cache.close()


def contents(workspace: Workspace) -> tuple[SpendingSum, set[str], list[float]]:
    """Return the sum of the ledger, the keys of the cache, and the times of the calls, newest first."""
    ledger, cache = Ledger(workspace.ledger), ResponseCache(workspace.cache)
    keys = {row.key for row in cache.backend.iterate_entries()}
    times = [call.at for call in ledger.latest_calls(1000)]
    sums = ledger.by_run()["run"]
    ledger.close()
    cache.close()
    return sums, keys, times


def keys_of(*numbers: int) -> set[str]:
    return {f"key-{number}" for number in numbers}


def logged(workspace: Workspace, number: int) -> None:
    with mlflow_store.connect(workspace) as client:
        run = client.create_run(mlflow_store.get_or_create_experiment(client, workspace)).info.run_id
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
        said = create_backup(here, tmp_path / "copy.tar")
        after = ledger.by_run()["run"].calls
    finally:
        ended.set()
        for thread in threads:
            thread.join(240)
    assert set(said) == {"ledger", "cache", "registry", "artifacts", "snapshots", "files"}
    restore_backup(there, tmp_path / "copy.tar")

    books, copied = Ledger(there.ledger), ResponseCache(there.cache)
    sums = books.by_run()["run"]
    assert before <= sums.calls <= after
    assert sums.usd == 0.25 * sums.calls + sums.lost_usd, "books of one moment"
    booked, stored = keys_of(*range(sums.calls)), {row.key for row in copied.backend.iterate_entries()}
    assert stored <= booked, "whatever is stored is booked"
    assert len(booked - stored) <= 1, "whatever is booked is there to be used, but for the call of that moment"
    pay(books, copied, 10**6)
    with mlflow_store.connect(there) as client:
        runs = client.search_runs([mlflow_store.get_or_create_experiment(client, there)], max_results=1000)
        for run in (run for run in runs if "number" in run.data.tags):
            [note] = [client.download_artifacts(run.info.run_id, "note.txt", str(tmp_path))]
            assert Path(note).read_text(encoding="utf-8") == f"note {run.data.tags['number']}"
            assert Path(note).is_relative_to(tmp_path)
        assert all(str(there.mlflow_artifacts) in run.info.artifact_uri for run in runs)


def test_a_backup_holds_the_registry_while_its_store_is_in_use(tmp_path: Path) -> None:
    here = Workspace(tmp_path / "here")
    logged(here, 0)
    with mlflow_store.connect(here):
        said = create_backup(here, tmp_path / "copy.tar")
    assert said["registry"].startswith("1 file, ")
    assert said["artifacts"].startswith("1 file, ")


def test_a_backup_omits_and_reports_data_on_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Workspace(tmp_path / "here")
    pay(Ledger(here.ledger), ResponseCache(here.cache), 0)
    monkeypatch.setenv("PODIUM_LEDGER_URL", "postgresql://somewhere/db")
    said = create_backup(here, tmp_path / "copy.tar")
    assert "PODIUM_LEDGER_URL names a server" in said["ledger"]
    assert set(restore_backup(Workspace(tmp_path / "there"), tmp_path / "copy.tar")) == {"cache"}


def test_nothing_is_taken_for_a_back_up_that_is_not_one(tmp_path: Path) -> None:
    here, there = Workspace(tmp_path / "here"), Workspace(tmp_path / "there")
    with pytest.raises(DataError, match="nothing to back up"):
        create_backup(here, tmp_path / "copy.tar")
    assert not list(tmp_path.glob("*.tar"))
    pay(Ledger(here.ledger), ResponseCache(here.cache), 0)
    create_backup(here, tmp_path / "copy.tar")
    half = tmp_path / "half.tar"
    half.write_bytes((tmp_path / "copy.tar").read_bytes()[:-4000])
    with pytest.raises(DataError, match="is not a complete back-up"):
        restore_backup(there, half)
    damaged = tmp_path / "damaged"
    with tarfile.open(tmp_path / "copy.tar") as archive:
        archive.extractall(damaged)
    with sqlite3.connect(damaged / "ledger.sqlite") as connection:
        connection.execute("UPDATE calls SET usd = 0")
    with pytest.raises(DataError, match=r"ledger\.sqlite.*differs from the backed-up file"):
        restore_backup(there, packed(damaged))
    later = json.loads((damaged / "podium-backup.json").read_text(encoding="utf-8")) | {"format": 99}
    (damaged / "podium-backup.json").write_text(json.dumps(later), encoding="utf-8")
    with pytest.raises(DataError, match="Update Podium"):
        restore_backup(there, packed(damaged))
    assert {path.name for path in there.state.rglob("*")} == {"lifecycle.lock"}


def test_what_was_paid_since_the_backup_stays(tmp_path: Path) -> None:
    here = Workspace(tmp_path / "here")
    pay_for(here, *range(5))
    create_backup(here, tmp_path / "copy.tar")
    pay_for(here, *range(5, 8))
    before = contents(here)
    said = restore_backup(here, tmp_path / "copy.tar")
    assert contents(here) == before
    assert said["ledger"] == "0 calls added to the 8 that are there"
    assert said["cache"] == "0 responses added to the 8 that are there"


@pytest.mark.parametrize("begun", [(), (6, 7)], ids=["gone", "begun anew"])
def test_a_lost_ledger_is_restored_beside_what_was_begun_since(tmp_path: Path, begun: tuple[int, ...]) -> None:
    here = Workspace(tmp_path / "here")
    ledger, cache = Ledger(here.ledger), ResponseCache(here.cache)
    for number in range(4):
        pay(ledger, cache, number)
    # Equal calls that were booked together, a lost one, and one in flight.
    ledger.settle(*(Bill(ledger.reserve("run", 1.0, 1e9), "test", "w", 0.25, Usage(10, 5)) for _ in range(2)))
    ledger.mark_lost(*ledger.mark_sent(OutgoingCall(ledger.reserve("run", 1.0, 1e9), "test", "w", "key-9")))
    ledger.mark_sent(OutgoingCall(ledger.reserve("run", 2.0, 1e9), "test", "w", "key-10"))
    create_backup(here, tmp_path / "copy.tar")
    ledger.close()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{here.ledger}{suffix}").unlink(missing_ok=True)
    if not begun:  # a file with tables and nothing in them, which also a refused call leaves
        ledger.release(ledger.reserve("run", 1.0, 1e9))
        ledger.close()
        assert here.ledger.stat().st_size > 0
    pay_for(here, *begun)
    for _ in range(2):  # a second one adds nothing
        restore_backup(here, tmp_path / "copy.tar", ["ledger"])
        sums, keys, times = contents(here)
        assert (sums.calls, sums.prompt_tokens) == (6 + len(begun), 10 * (6 + len(begun)))
        assert sums.usd - sums.lost_usd == pytest.approx(0.25 * sums.calls)
        assert times == sorted(times, reverse=True)
        assert keys == keys_of(*range(4), *begun)
        if begun:
            assert (sums.lost, sums.lost_usd) == (2, 3.0), "a call in flight at the backup may have been billed"
    check_parts(here)


def as_earlier(file: Path) -> None:
    """Make a store one of the version that had responses only."""
    with sqlite3.connect(file) as connection:
        for statement in (
            "CREATE TABLE identities (worker INTEGER PRIMARY KEY, identity TEXT NOT NULL)",
            "ALTER TABLE entries ADD COLUMN worker INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE entries ADD COLUMN messages INTEGER NOT NULL DEFAULT 0",
            "CREATE INDEX near ON entries (substr(material, 13, 96), messages)",
            "DROP INDEX kinds",
            "ALTER TABLE entries DROP COLUMN kind",
            "ALTER TABLE entries RENAME COLUMN value TO response",
            "ALTER TABLE entries RENAME TO responses",
            "PRAGMA user_version=3",
        ):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("earlier", [("here",), ("there",), ("here", "there")], ids="+".join)
def test_responses_of_an_earlier_version_are_backed_up_and_merged(tmp_path: Path, earlier: tuple[str, ...]) -> None:
    here, there = Workspace(tmp_path / "here"), Workspace(tmp_path / "there")
    for workspace, numbers in ((here, range(4)), (there, range(2, 5))):
        ledger, cache = Ledger(workspace.ledger), ResponseCache(workspace.cache)
        for number in numbers:
            pay(ledger, cache, number)
        ledger.close()
        cache.close()
        if workspace.root.name in earlier:
            as_earlier(workspace.cache / "responses.sqlite")
    create_backup(here, tmp_path / "copy.tar")
    assert (
        restore_backup(there, tmp_path / "copy.tar", ["cache"])["cache"] == "2 responses added to the 3 that are there"
    )
    cache = ResponseCache(there.cache)
    assert {entry.key for entry in cache.backend.iterate_entries()} == keys_of(*range(5))
    cache.close()


@pytest.mark.parametrize("part", ["ledger", "cache", "registry"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_single_part_is_restored_from_the_state_in_which_that_is_advised(
    tmp_path: Path, part: str, damage: Callable[[Path], None]
) -> None:
    here = Workspace(tmp_path / "here")
    pay_for(here, *range(50))
    register(here)
    check_parts(here)
    create_backup(here, tmp_path / "copy.tar")
    before = contents(here)
    file = here.state / {each.name: each.relative_path for each in PARTS}[part]
    damage(file)
    [error] = find_missing_parts(here)
    assert "`podium restore FILE`" in str(error)
    said = restore_backup(here, tmp_path / "copy.tar", [part])
    assert list(said) == [part, *(["artifacts"] if part == "registry" else [])]
    check_parts(here)
    assert contents(here) == before
    assert count_rows(here.state / "mlflow" / "mlflow.db", ("runs",)) == 2
    assert len(list(file.parent.glob(f"{file.name}.replaced-*"))) == (damage.__name__ not in ("remove", "empty"))


def test_a_registry_with_contents_and_edited_files_stay_until_they_are_to_be_replaced(tmp_path: Path) -> None:
    here = Workspace(tmp_path / "here")
    pay_for(here, 1)
    register(here, 1)
    recipe, artifact = here.config / "recipes" / "own.yaml", here.mlflow_artifacts / "0" / "policy"
    recipe.parent.mkdir(parents=True)
    recipe.write_text("old", encoding="utf-8")
    create_backup(here, tmp_path / "copy.tar")
    with sqlite3.connect(here.state / "mlflow" / "mlflow.db") as connection:
        connection.execute("INSERT INTO runs VALUES ('new')")
    recipe.write_text("new", encoding="utf-8")
    artifact.write_text("new", encoding="utf-8")
    said = restore_backup(here, tmp_path / "copy.tar")
    assert "kept, it holds 2 runs" in said["registry"]
    assert all("--replace" in said[part] for part in ("registry", "artifacts", "files"))
    assert recipe.read_text(encoding="utf-8") == artifact.read_text(encoding="utf-8") == "new"
    restore_backup(here, tmp_path / "copy.tar", replace=True)
    assert (recipe.read_text(encoding="utf-8"), artifact.read_text(encoding="utf-8")) == ("old", "")
    assert count_rows(here.state / "mlflow" / "mlflow.db", ("runs",)) == 1
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and "replaced-" in str(path)]
    assert sorted(path.name.partition(".replaced")[0] for path in kept) == ["mlflow.db", "own.yaml", "policy"]
    assert [path.name for path in artifact.parent.iterdir()] == ["policy"]
    check_parts(here)


def test_what_a_user_wrote_is_restored_into_an_empty_folder_and_after_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Workspace(tmp_path / "here")
    run("init", str(here.root))
    own = {
        "config/recipes/mine.yaml": MINE,
        "config/pools/mine.yaml": (here.config / "pools" / "quickstart.yaml").read_text(encoding="utf-8"),
        "config/promotion.yaml": (here.config / "promotion.yaml").read_text(encoding="utf-8") + "# stricter\n",
        "graders/nested/own.py": "def grade(problem, answer):\n    return answer == problem['answer']\n",
        "config/pools/served.yaml": "name: served\nworkers: [{name: s, serve: {model_path: models/small}}]\n",
        "models/small/config.json": "{}",
        "school/train.jsonl": '{"id": "1", "question": "2 + 3 = ?", "answer": "5"}\n',
        "data/few_shots/mine.yaml": "examples: []\n",
        ".env": "OPENAI_API_KEY=sk-secret\n",
    }
    for name, text in own.items():
        (here.root / name).parent.mkdir(parents=True, exist_ok=True)
        (here.root / name).write_text(text, encoding="utf-8")
    pay_for(here, 1)
    monkeypatch.chdir(here.root)
    said = run("backup", str(tmp_path / "copy.tar"))
    assert re.search(r"left out: \.env holds keys.*; models/small is a folder", said)
    with tarfile.open(tmp_path / "copy.tar") as archive:
        assert not any(name.endswith(".env") for name in archive.getnames())
    for name in ("bare", "laid out"):
        there = Workspace(tmp_path / name)
        there.root.mkdir()
        monkeypatch.chdir(there.root)
        if name == "laid out":
            run("init")
        run("restore", str(tmp_path / "copy.tar"))
        for file, text in own.items():
            restored = there.root / file
            if file in (".env", "models/small/config.json"):
                assert not restored.exists(), file
            else:
                assert restored.read_text(encoding="utf-8") == text, file
        assert dump_settings(Setup.read(there, "mine").recipe) == dump_settings(Setup.read(here, "mine").recipe)
        check_parts(there)


MINE = """\
base: quickstart
name: mine
pool: mine
benchmarks:
  math500: {source: file, train_file: school/train.jsonl, test_file: school/train.jsonl,
            grader: {kind: function, file: graders/nested/own.py}}
"""


def run(*words: str) -> str:
    """Run a command of Podium in this process and return what it printed."""
    done = CliRunner().invoke(podium, words)
    assert done.exit_code == 0, done.output
    return done.output


KILLED = """
import os, signal, sys
from pathlib import Path
from click.testing import CliRunner
from pipelines.commands.main import podium
left = int(sys.argv[1])
def kill(*arguments, kept=os.{name}, **options):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return kept(*arguments, **options)
os.{name} = kill
result = CliRunner().invoke(podium, sys.argv[2:])
sys.exit(result.exit_code)
"""


def killed(name: str, call: int, folder: Path, *words: str) -> bool:
    """Run a command in `folder` that is killed in its call of that number of `os.NAME`; whether there were so many."""
    program = KILLED.format(name=name)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program, str(call), *words], cwd=folder, env=environment, capture_output=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_backup_leaves_nothing_for_good(tmp_path: Path) -> None:
    here, target = Workspace(tmp_path / "here"), tmp_path / "backups"
    run("init", str(here.root))
    pay_for(here, *range(3))
    target.mkdir()
    for name, call in (("mkdir", 3), ("replace", 1)):  # while the parts are copied, and before the file appears
        assert killed(name, call, here.root, "backup", str(target / "first.tar"))
        assert len(list(target.iterdir())) == 1, "what the one before left is gone"
    create_backup(here, target / "second.tar")
    assert [path.name for path in target.iterdir()] == ["second.tar"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_init_is_completed_by_the_next(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    run("init", str(whole))
    expected = files_in(whole)
    for call in (1, 7, len(expected) - 2, len(expected)):
        folder = tmp_path / str(call)
        folder.mkdir()
        assert killed("fsync", call, folder, "init")
        present = {name: text for name, text in files_in(folder).items() if ".tmp" not in name}
        assert present.items() <= expected.items(), "what is there is whole"
        run("init", str(folder))
        assert files_in(folder) == expected


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def packed(folder: Path) -> Path:
    with tarfile.open(file := folder.with_suffix(".tar"), "w:gz") as archive:
        archive.add(folder, arcname=".")
    return file
