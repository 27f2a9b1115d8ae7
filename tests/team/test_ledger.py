"""The ledger in Postgres: the cap holds over several machines, restarts of the server, and suspended processes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ops.core.errors import ConfigError, LedgerUnavailable, OverBudget
from ops.core.usage import Usage
from ops.spending.bookings import SpendingSum
from ops.spending.ledger import Bill, Ledger, OutgoingCall, open_ledger
from ops.spending.postgres_ledger import SharedLedgerStore
from tests.command import podium
from tests.faults.processes import begin, outcomes, running
from tests.team.servers import Postgres, until

NOWHERE = Path("/nonexistent/ledger.sqlite")


def open_(url: str, **settings: Any) -> Ledger:
    return Ledger(NOWHERE, SharedLedgerStore(url, **settings))


def pay(ledger: Ledger, run: str, usd: float, worst: float, cap: float, purpose: str = "test", key: str = "") -> None:
    [held] = ledger.mark_sent(OutgoingCall(ledger.reserve(run, worst, cap), purpose, "w", key))
    ledger.settle(Bill(held, purpose, "w", usd, Usage(10, 5), key))


def test_sums_are_those_of_the_local_ledger(postgres: Postgres, tmp_path: Path) -> None:
    shared, local = open_(postgres.database()), Ledger(tmp_path / "ledger.sqlite")
    for ledger in (shared, local):
        for run, purpose, usd in [("a", "precache", 0.25), ("a", "training", 0.5), ("b", "training", 2.0)]:
            pay(ledger, run, usd, 2.0, 10.0, purpose)
        [lost] = ledger.mark_sent(OutgoingCall(ledger.reserve("a", 1.0, 10.0), "training", "w", "k"))
        ledger.mark_lost(lost)
        assert ledger.lost_keys_without_cost() == ["k"]
        ledger.book_lost_calls({"k": 0.125})
    for name in ("by_run", "by_purpose", "by_worker", "by_month"):
        assert getattr(shared, name)() == getattr(local, name)()
    assert shared.by_run() == {"a": SpendingSum(0.875, 2, 20, 10, 1, 0.125), "b": SpendingSum(2.0, 1, 10, 5)}
    assert shared.mean_usage("training") == local.mean_usage("training") == {"w": Usage(10.0, 5.0)}
    assert [call[1:] for call in shared.latest_calls(9)] == [call[1:] for call in local.latest_calls(9)]
    assert shared.open_reservations() == {}
    shared.close()
    local.close()


@pytest.mark.parametrize("lacking", ["PODIUM_DAGSTER_URL", "PODIUM_LEDGER_URL"])
def test_a_database_that_lacks_characters_is_refused_before_anything_is_made(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lacking: str
) -> None:
    monkeypatch.setenv("PODIUM_TEAM", "1")
    for variable, scheme in (("PODIUM_DAGSTER_URL", "+psycopg2://"), ("PODIUM_LEDGER_URL", "://")):
        url = postgres.database("SQL_ASCII" if variable == lacking else "UTF8")
        monkeypatch.setenv(variable, url.replace("://", scheme))
    assert podium("team", "setup") == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {lacking}: is a database with the encoding SQL_ASCII")
    assert "ENCODING 'UTF8'" in said


def test_the_variable_names_the_server_and_errors_are_reported(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.database()
    monkeypatch.setenv("PODIUM_LEDGER_URL", url)
    ledger = open_ledger(tmp_path / "ledger.sqlite")
    pay(ledger, "run", 0.5, 1.0, 10.0)
    ledger.close()
    assert not (tmp_path / "ledger.sqlite").exists()
    with closing(open_(url)) as again:
        assert again.total_usd("run") == 0.5
    monkeypatch.setenv("PODIUM_LEDGER_URL", "mysql://podium:secret@host/db")
    with pytest.raises(ConfigError, match="not an address of a Postgres") as told:
        open_ledger(tmp_path)
    assert "secret" not in str(told.value)
    with pytest.raises(LedgerUnavailable, match=r"does not answer.*no paid call is made") as away:
        open_("postgresql://podium:secret@127.0.0.1:1/db", patience_s=0.2).total_usd("run")
    assert "secret" not in str(away.value)


def spend(order: tuple[str, float], end: Connection) -> None:
    """Pay until the cap, with the ledger at that address and that lease in seconds; return the number of calls."""
    url, lease_s = order
    ledger, paid = open_(url, lease_s=lease_s), 0
    end.send("ready")
    end.recv()
    with contextlib.suppress(OverBudget):
        while True:
            pay(ledger, "run", 0.006, 0.01, 1.0)
            paid += 1
    ledger.close()
    end.send(paid)


HELD = """SELECT (SELECT coalesce(sum(usd), 0) FROM spent) + (SELECT coalesce(sum(usd), 0) FROM blocks)"""


def test_processes_that_share_nothing_but_the_server_never_pass_the_cap_and_use_it_up(postgres: Postgres) -> None:
    url = postgres.database()
    watcher, highest = open_(url), 0.0
    with running(spend, *[(url, 60.0)] * 3) as processes:
        begin(*processes)
        while any(process.is_running() for process in processes):
            highest = max(highest, watcher._store.read(lambda known: known.execute(HELD).fetchone()[0]))
        paid = sum(outcomes(*processes))
    assert watcher.by_run()["run"].calls == paid
    assert highest <= 1.0 + 1e-6
    assert 1.0 - 0.011 <= watcher.total_usd("run") <= 1.0 + 1e-9
    watcher.close()


def test_sent_calls_of_a_lost_machine_are_spent_and_the_rest_is_free_after_its_lease(
    postgres: Postgres,
) -> None:
    url = postgres.database()
    gone = open_(url, lease_s=1.5)
    waiting = gone.reserve("run", 0.5, 1.0)
    [sent] = gone.mark_sent(OutgoingCall(gone.reserve("run", 0.25, 1.0), "test", "w", "k"))
    assert waiting.usd == 0.5 and sent.sent
    other = open_(url, lease_s=1.5)
    with pytest.raises(OverBudget):
        other.reserve("run", 0.5, 1.0)
    store = gone._store
    assert isinstance(store, SharedLedgerStore)
    with store._leases.locked() as held:
        held.clear()  # as after a power failure: no process renews the lease

    def is_free() -> bool:
        try:
            other.release(other.reserve("run", 0.7, 1.0))
        except OverBudget:
            return False
        return True

    until(is_free, "the dead process's room is free")
    assert other.by_run()["run"] == SpendingSum(0.25, 0, 0, 0, 1, 0.25)
    # The process was only suspended: its sent call is settled once, and its unsent call needs a new reservation.
    gone.settle(Bill(sent, "test", "w", 0.1, Usage(1, 1), "k"))
    assert other.by_run()["run"] == SpendingSum(0.1, 1, 1, 1)
    other.reserve("run", 0.8, 1.0)
    with pytest.raises(OverBudget):
        gone.mark_sent(OutgoingCall(waiting, "test", "w", "k2"))
    gone.close()
    other.close()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_restarts_is_waited_for_and_nothing_is_booked_twice(postgres: Postgres, mode: str) -> None:
    url = postgres.database()
    ledger, paid, ended = open_(url), 0, threading.Event()

    def spend() -> None:
        nonlocal paid
        while not ended.is_set():
            pay(ledger, "run", 0.001, 0.01, 1e6)
            paid += 1

    thread = threading.Thread(target=spend)
    thread.start()

    def goes_on() -> None:
        before = paid
        until(lambda: paid > before + 20, "calls are booked")

    try:
        for _ in range(2):
            goes_on()
            postgres.stop(mode)
            time.sleep(0.5)
            postgres.start()
        goes_on()
    finally:
        ended.set()
        thread.join(240)
    sums = ledger.by_run()["run"]
    assert (sums.calls, sums.lost) == (paid, 0)
    assert sums.usd == pytest.approx(0.001 * paid)
    assert ledger.open_reservations() == {}
    ledger.close()


def test_an_answer_to_a_commit_that_is_lost_is_not_taken_for_a_lost_commit(postgres: Postgres) -> None:
    url = postgres.database()
    ledger = open_(url)
    held = ledger.reserve("run", 0.5, 10.0)
    store = ledger._store
    assert isinstance(store, SharedLedgerStore)
    connected, broken = store._server._connect, []

    class Breaks:
        """A connection that commits a transaction and then fails as if the server was lost."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        @contextlib.contextmanager
        def transaction(self) -> Iterator[Any]:
            with self._connection.transaction() as whole:
                yield whole
            broken.append(True)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    def once() -> Any:
        return connected() if broken else Breaks(connected())

    store._server._connect = once  # type: ignore[method-assign]
    ledger.settle(Bill(held, "test", "w", 0.25, Usage(1, 1)))
    assert broken
    assert ledger.by_run()["run"] == SpendingSum(0.25, 1, 1, 1)
    ledger.close()


def test_a_killed_process_leaves_nothing_reserved_for_ever(postgres: Postgres) -> None:
    url = postgres.database()
    other = open_(url, lease_s=1.0)
    with running(spend, (url, 1.0)) as [process]:
        process.begin()
        until(lambda: any(spent.calls for spent in other.by_run().values()), "a call is paid")
        assert process.kill(), "it had ended before"
    until(lambda: other.open_reservations() == {}, "the killed process's room is free")
    sums = other.by_run()["run"]
    assert sums.calls >= 1 and sums.lost <= 1
    other.close()
