"""The ledger: caps hold under concurrent calls, and settled calls stay settled."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.core.errors import DataError, OverBudget
from ops.core.usage import Usage
from ops.spending.bookings import SpendingSum
from ops.spending.ledger import Bill, Ledger, OutgoingCall, Reservation
from ops.spending.ledger_store import SqlConnection
from ops.spending.sqlite_ledger import LocalLedgerStore

T = TypeVar("T")


def bill(reservation: Reservation, usd: float, purpose: str = "test", worker: str = "w") -> Bill:
    return Bill(reservation, purpose, worker, usd, usage=Usage(10, 5))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def test_every_call_is_on_disk_and_in_the_sums(ledger: Ledger, tmp_path: Path) -> None:
    first, second = ledger.reserve_many("a", [1.0, 1.0], 10.0)
    ledger.settle(bill(first, 0.25, "precache", "x"), bill(second, 0.5, "training", "y"))
    ledger.settle(bill(ledger.reserve("a", 1.0, 10.0), 1.0, "training", "x"))
    ledger.settle(Bill(ledger.reserve("b", 1.0, 10.0), "precache", "x", 0.75, usage=Usage(30, 1)))
    calls = Ledger(tmp_path / "ledger.sqlite").latest_calls(10)
    assert [(c.run, c.purpose, c.worker, c.prompt_tokens, c.completion_tokens, c.usd) for c in calls] == [
        ("b", "precache", "x", 30, 1, 0.75),
        ("a", "training", "x", 10, 5, 1.0),
        ("a", "training", "y", 10, 5, 0.5),
        ("a", "precache", "x", 10, 5, 0.25),
    ]
    assert abs(calls[0].at - time.time()) < 60
    assert [call.usd for call in ledger.latest_calls(1, "a")] == [1.0]
    assert ledger.mean_usage("precache") == {"x": Usage(20.0, 3.0)}
    assert (ledger.total_usd("a"), ledger.total_usd("absent")) == (1.75, 0.0)
    assert ledger.by_purpose("a") == {"precache": SpendingSum(0.25, 1, 10, 5), "training": SpendingSum(1.5, 2, 20, 10)}
    assert ledger.by_purpose()["precache"].usd == 1.0
    assert {name: spent.usd for name, spent in ledger.by_worker().items()} == {"x": 2.0, "y": 0.5}
    assert {name: spent.usd for name, spent in ledger.by_run().items()} == {"a": 1.75, "b": 0.75}
    assert [(spent.calls, spent.usd) for spent in ledger.by_month().values()] == [(4, 2.5)]


def test_a_call_that_may_exceed_the_cap_is_refused_with_the_command_that_continues(ledger: Ledger) -> None:
    ledger.settle(bill(ledger.reserve("run", 0.75, 1.0), 0.75))
    with pytest.raises(OverBudget, match=r"'run'.*budget\.run_usd"):
        ledger.reserve("run", 0.5, 1.0)
    ledger.reserve("run", 0.25, 1.0)
    ledger.reserve("other", 0.5, 1.0)
    ledger.reserve("run", 0.5, 2.0)


def test_reservations_count_until_they_are_returned(ledger: Ledger) -> None:
    first = ledger.reserve("run", 0.8, 1.0)
    with pytest.raises(OverBudget):
        ledger.reserve("run", 0.8, 1.0)
    ledger.release(first)
    second = ledger.reserve("run", 0.8, 1.0)
    ledger.settle(bill(second, 0.1))
    assert ledger.count_in_flight("run") == 0
    ledger.reserve("run", 0.9, 1.0)


def test_reserve_many_gives_those_from_the_first_on_that_fit(ledger: Ledger) -> None:
    held = ledger.reserve_many("run", [0.25, 0.25, 0.25, 0.25, 0.25], 1.0)
    assert [reservation.usd for reservation in held] == [0.25] * 4
    assert ledger.count_in_flight("run") == 4
    with pytest.raises(OverBudget):
        ledger.reserve_many("run", [0.25, 0.01], 1.0)
    ledger.release(*held)
    assert ledger.count_in_flight("run") == 0
    assert len(ledger.reserve_many("run", [0.5, 0.6, 0.1], 1.0)) == 1


def test_the_monthly_cap_bounds_all_runs_together(ledger: Ledger) -> None:
    ledger.settle(bill(ledger.reserve("a", 1.0, 10.0, month_cap_usd=1.5), 1.0))
    with pytest.raises(OverBudget, match="month"):
        ledger.reserve("b", 1.0, 10.0, month_cap_usd=1.5)
    ledger.reserve("b", 0.5, 10.0, month_cap_usd=1.5)


@pytest.mark.parametrize(
    ("usd", "prompt", "completion"),
    [
        (-0.01, 1, 1), (float("inf"), 1, 1), (float("nan"), 1, 1), (0.1, -1, 1), (0.1, 1, -1), (0.1, 2**63, 1),
        (0.1, 1, 2**63),
    ],
)  # fmt: skip
def test_an_impossible_bill_is_refused(usd: float, prompt: int, completion: int) -> None:
    with pytest.raises(ValueError, match="a bill of"):
        Bill(Reservation("run", 1.0), "test", "worker", usd, Usage(prompt, completion))


def test_a_call_above_its_worst_case_is_booked_in_full(ledger: Ledger) -> None:
    held = ledger.reserve("run", 0.1, 1.0)
    ledger.settle(bill(ledger.reserve("run", 0.1, 1.0), 0.95))
    assert ledger.total_usd("run") == 0.95
    with pytest.raises(OverBudget):
        ledger.reserve("run", 0.1, 1.0)
    ledger.release(held)


@settings(max_examples=40, deadline=None)
@given(
    calls=st.lists(st.tuples(st.floats(0.001, 0.4), st.floats(0, 1), st.booleans()), max_size=40),
    cap=st.floats(0.1, 2.0),
)
def test_the_cap_holds_in_any_order_and_nothing_leaks(
    tmp_path_factory: pytest.TempPathFactory, calls: Any, cap: float
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "l.sqlite")
    held: list[tuple[Reservation, float]] = []
    total = 0.0
    for worst, share, finish in calls:
        try:
            held.append((ledger.reserve("run", worst, cap), worst * share))
        except OverBudget:
            # A call is refused only if it does not fit beside the spent and reserved amounts.
            assert total + sum(r.usd for r, _ in held) + worst > cap - 1e-6
        if finish and held:
            reservation, usd = held.pop(0)
            ledger.settle(bill(reservation, usd))
            total += usd
        assert ledger.total_usd("run") <= cap + 1e-9
    for reservation, usd in held:
        ledger.settle(bill(reservation, usd))
        total += usd
    assert ledger.total_usd("run") == pytest.approx(total)
    assert ledger.total_usd("run") <= cap + 1e-9
    with ledger._store._file.connection() as connection:
        assert connection.execute("SELECT count(*) FROM blocks").fetchone() == (0,)
    ledger.close()


def _storm(path: Path, process: int, together: Any, results: Any) -> None:
    """Make 125 calls at once in threads; each costs up to its worst case, and reports the ledger's state then."""
    ledger, paid, highest = Ledger(path), 0.0, 0.0
    together.wait(100)

    def call(number: int) -> tuple[float, float]:
        worst = 0.002 + 0.0001 * (number % 7)
        while True:
            try:
                reservation = ledger.reserve("run", worst, 0.5)
                break
            except OverBudget:
                if ledger.count_in_flight("run") == 0:
                    return 0.0, 0.0
                time.sleep(0.002)
        with_it = ledger.total_usd("run") + sum(ledger.open_reservations().values())
        usd = worst * (0.4 + 0.6 * (number % 3) / 2)
        ledger.settle(bill(reservation, usd, worker=str(process)))
        return usd, with_it

    with ThreadPoolExecutor(125) as pool:
        for usd, with_it in pool.map(call, range(125)):
            paid, highest = paid + usd, max(highest, with_it)
    results.put((paid, highest))


def test_500_calls_at_once_in_four_processes_never_pass_the_cap(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together, results = context.Barrier(4), context.Queue()
    path = tmp_path / "l.sqlite"
    processes = [context.Process(target=_storm, args=(path, number, together, results)) for number in range(4)]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=100) for _ in processes]
    for process in processes:
        process.join(30)
    ledger = Ledger(path)
    assert ledger.total_usd("run") == pytest.approx(sum(paid for paid, _ in outcomes))
    # 500 calls of about 0.0016 USD need about 0.8 USD: the cap was reached, and never exceeded at any moment.
    assert 0.45 <= ledger.total_usd("run") <= 0.5 + 1e-9
    assert max(highest for _, highest in outcomes) <= 0.5 + 1e-9
    assert ledger.open_reservations() == {}
    assert len(ledger.reserve_many("run", [0.1, 0.1], 1.0)) == 2  # a larger cap allows more calls


_SENDER = """
    import sys, time
    from pathlib import Path
    from ops.spending.ledger import Bill, Ledger, OutgoingCall
    ledger = Ledger(Path(sys.argv[1]))
    done, queued, sent = ledger.reserve_many("run", [0.2, 0.4, 0.3], 1.0)
    ledger.settle(Bill(done, "test", "w", 0.1))
    ledger.mark_sent(OutgoingCall(sent, "test", "w", "key"))
    print("ready", flush=True)
    time.sleep(60)
"""


def test_settled_and_sent_calls_of_a_killed_process_are_spent_and_waiting_ones_free(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    command = [sys.executable, "-c", textwrap.dedent(_SENDER), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline().strip() == "ready"
        ledger = Ledger(path)
        assert ledger.by_run() == {"run": SpendingSum(0.1, 1)}  # the holder still runs and may receive the answer
        assert ledger.open_reservations()["run"] >= 0.7
        with pytest.raises(OverBudget):
            ledger.reserve("run", 0.3, 1.0)
        os.kill(sender.pid, signal.SIGKILL)
    waited = ledger.reserve("run", 0.6, 1.0)  # refused before; there is room after the holder's end
    with pytest.raises(OverBudget):
        ledger.reserve("run", 0.1, 1.0)
    assert ledger.by_run() == {"run": SpendingSum(0.4, 1, lost=1, lost_usd=0.3)}
    assert ledger.by_purpose("run")["test"].lost == ledger.by_worker("run")["w"].lost == 1
    assert ledger.total_usd("run") == pytest.approx(0.4)
    assert ledger.open_reservations() == {"run": pytest.approx(0.6)}
    assert ledger.lost_keys_without_cost() == ["key"]

    [held] = ledger.mark_sent(OutgoingCall(waited, "test", "w", "key"))
    ledger.settle(Bill(held, "test", "w", 0.1, Usage(10, 5), key="key"))
    # The answer to the same question gives the cost of the lost call, which was paid as well.
    assert ledger.by_run() == {"run": SpendingSum(pytest.approx(0.3), 2, 10, 5, lost=1, lost_usd=0.1)}
    assert ledger.lost_keys_without_cost() == []
    assert ledger.mean_usage("test") == {"w": Usage(5.0, 2.5)}


def test_a_call_that_was_sent_and_is_lost_counts_at_its_worst_case(ledger: Ledger) -> None:
    settled, refused, lost = ledger.mark_sent(*(
        OutgoingCall(held, "test", "w", f"key {number}")
        for number, held in enumerate(ledger.reserve_many("run", [0.25, 0.25, 0.25], 1.0))
    ))  # fmt: skip
    ledger.settle(bill(settled, 0.125))
    ledger.release(refused)
    ledger.mark_lost(lost)
    assert ledger.by_run() == {"run": SpendingSum(0.375, 1, 10, 5, lost=1, lost_usd=0.25)}
    assert ledger.count_in_flight("run") == 0
    with pytest.raises(OverBudget):
        ledger.reserve("run", 0.7, 1.0)
    ledger.book_lost_calls({"key 2": 0.0625})
    assert ledger.total_usd("run") == 0.1875
    ledger.reserve("run", 0.7, 1.0)


def test_a_forked_child_does_not_spend_its_parents_reservation(ledger: Ledger) -> None:
    held = ledger.reserve("run", 0.6, 1.0)

    def child() -> None:
        try:
            ledger.reserve("run", 0.6, 1.0)
        except OverBudget:
            os._exit(7)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    assert process.exitcode == 7
    ledger.settle(bill(held, 0.5))
    assert ledger.total_usd("run") == 0.5


class Failing(LocalLedgerStore):
    """A store that takes no change while `fails`, as on a full disk."""

    fails = False

    def write(self, work: Callable[[SqlConnection], T]) -> T:
        if self.fails:
            raise DataError(self.name, "", "database or disk is full", "Make room")
        return super().write(work)


@pytest.mark.parametrize("how", ["settle", "lose", "release", "settle unsent"])
def test_a_call_whose_end_the_store_did_not_take_is_known_to_the_ledger(tmp_path: Path, how: str) -> None:
    cap, store = 3.0, Failing(tmp_path / "ledger.sqlite")
    ledger = Ledger(tmp_path / "ledger.sqlite", store)
    held = ledger.reserve("run", 1.0, cap)
    beside = ledger.reserve("run", 1.0, cap)
    if how != "settle unsent":
        [held] = ledger.mark_sent(OutgoingCall(held, "test", "w", "key"))
    ends: dict[str, Callable[[], None]] = {
        "settle": lambda: ledger.settle(bill(held, 0.25)),
        "lose": lambda: ledger.mark_lost(held),
        "release": lambda: ledger.release(held),
        "settle unsent": lambda: ledger.settle(bill(held, 0.25)),
    }
    store.fails = True
    with pytest.raises(DataError, match="full"):
        ends[how]()
    assert ledger.count_in_flight("run") == 1, "that call is over, and nobody waits for it"
    store.fails = False
    books = Ledger(tmp_path / "ledger.sqlite")
    assert books.total_usd("run") + sum(books.open_reservations().values()) <= cap
    ledger.settle(bill(beside, 0.5))
    counted = how in ("settle", "lose")
    assert ledger.by_run()["run"] == SpendingSum(0.5 + counted, 1, 10, 5, int(counted), float(counted))
    ledger.settle(bill(ledger.reserve("run", 1.0, cap), 1.0))
    with pytest.raises(OverBudget):
        ledger.reserve("run", cap - 1.5 - counted + 0.01, cap)
    ledger.settle(bill(ledger.reserve("run", cap - 1.5 - counted, cap), 0.0))
    ledger.close()
    assert Ledger(tmp_path / "ledger.sqlite").open_reservations() == {}
