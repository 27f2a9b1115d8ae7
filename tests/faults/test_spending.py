"""Processes killed while they spend: the cap holds by the server's count, and no call is repeated needlessly."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from ops.config import Worker
from ops.core.errors import WorkerUnreachable
from ops.spending.bookings import SpendingSum
from ops.spending.ledger import Ledger, OutgoingCall
from ops.store import cache_key
from tests.faults.clients import MakeClient
from tests.faults.processes import begin, outcomes, running
from tests.faults.remote import PAID_USD, PRICE, FaultServer, ask, client_in, left_behind, user

TOGETHER = pytest.mark.parametrize(("count", "questions"), [(3, 60), pytest.param(8, 200, marks=pytest.mark.soak)])
"""Processes, and questions of each, the same for all."""
CONCURRENCY = 4
WARM_UP = "a first one, with a cache and a ledger of its own"
"""The first call of a process prepares things for seconds."""


@dataclass(frozen=True)
class Order:
    """The task of each process, the same for all."""

    folder: Path
    worker: Worker
    questions: int
    cap_usd: float = 1.0


def live(order: Order, end: Connection) -> None:
    """Report readiness, wait for a message, send all questions, and return the number of each result."""
    asyncio.run(_ask_all(order, end))


async def _ask_all(order: Order, end: Connection) -> None:
    await client_in(order.folder / f"of {os.getpid()}").complete(order.worker, user(WARM_UP))
    end.send("ready")
    await asyncio.to_thread(end.recv)
    client = client_in(order.folder, order.cap_usd)
    calls = (client.complete(order.worker, user(f"question {number}")) for number in range(order.questions))
    results = await asyncio.gather(*calls, return_exceptions=True)
    end.send(Counter("answered" if not isinstance(r, BaseException) else type(r).__name__ for r in results))


def arrivals(server: FaultServer) -> dict[str, list[float]]:
    """Return the arrival time of each prompt at the server: what a provider may bill."""
    times: dict[str, list[float]] = {}
    for entry in server.came():
        if entry["prompt"] != WARM_UP:
            times.setdefault(entry["prompt"], []).append(entry["time"])
    return times


def billed(server: FaultServer) -> float:
    """Return the USD that the server may bill."""
    return sum(map(len, arrivals(server).values())) * PAID_USD


def order(server: FaultServer, folder: Path, questions: int, *, timeout_s: float, cap_usd: float = 1.0) -> Order:
    worker = server.worker(max_tokens=16, concurrency=CONCURRENCY, timeout_s=timeout_s)
    return Order(folder, worker, questions, cap_usd)


def books(folder: Path) -> SpendingSum:
    return Ledger(folder / "ledger.sqlite").by_run()["run"]


@pytest.mark.parametrize("fault", ["hang", "reset mid-body", "truncated JSON", "trickle"])
def test_a_call_without_an_answer_is_lost_until_a_retry_measures_its_cost(
    server: FaultServer, make_client: MakeClient, fault: str
) -> None:
    client, worker = make_client(), server.worker(timeout_s=3.0, retries=0, breaker_failures=100)
    ask(client, worker.model_copy(update={"timeout_s": 60.0}), "a first one, which prepares things")
    server.order(plan=[fault])
    with pytest.raises(WorkerUnreachable):
        ask(client, worker)
    spent = client.ledger.by_run()["run"]
    assert (spent.calls, spent.lost) == (1, 1)
    assert spent.lost_usd > 64 * PRICE["output"] / 1e6  # its worst case
    ask(client, worker)
    assert client.ledger.by_run()["run"] == SpendingSum(
        pytest.approx(3 * PAID_USD), 2, 20, 10, 1, pytest.approx(PAID_USD)
    )


def test_a_cancelled_call_is_lost_where_it_had_left_and_leaves_nothing_behind(
    server: FaultServer, make_client: MakeClient
) -> None:
    client, worker = make_client(), server.worker(concurrency=2, timeout_s=60)

    async def cancel() -> None:
        await client.complete(worker, user("a first one"))
        server.order(latency_s=30.0)
        before = asyncio.all_tasks()
        prompts = [user(f"question {number}") for number in range(6)]
        calls = [asyncio.create_task(client.complete(worker, prompt)) for prompt in prompts]
        while server.order()["busy"] < 2:  # noqa: ASYNC110  (it is another process that counts)
            await asyncio.sleep(0.02)
        for call in calls:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 6
        await asyncio.sleep(0.1)
        assert left_behind(before) == []
        assert client.ledger.count_in_flight("run") == 0
        server.order(latency_s=0.0)
        await asyncio.wait_for(asyncio.gather(*(client.complete(worker, prompt) for prompt in prompts)), 30)

    asyncio.run(cancel())
    spent = client.ledger.by_run()["run"]
    assert (spent.calls, spent.lost) == (7, 2)
    assert spent.usd == pytest.approx(9 * PAID_USD) == pytest.approx(billed(server))


def test_a_stored_response_that_was_not_booked_measures_its_lost_call(
    server: FaultServer, make_client: MakeClient, tmp_path: Path
) -> None:
    client, worker = make_client(), server.worker()
    answer = ask(client, worker)
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM spending")  # as a kill between the two leaves it
    key = cache_key(worker.identity, user("2+2?"), 0)
    held = client.ledger.reserve("run", 1e-3, 10.0)
    client.ledger.mark_lost(*client.ledger.mark_sent(OutgoingCall(held, "test", "remote", key)))
    assert client.ledger.total_usd("run") == pytest.approx(1e-3)
    assert ask(make_client(cap_usd=1e-3), worker, "another").text  # the cache is checked for answers
    spent = client.ledger.by_run()["run"]
    assert (spent.calls, spent.lost, spent.lost_usd) == (1, 1, pytest.approx(answer.cost_usd))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("rounds", "questions"), [(2, 60), pytest.param(5, 200, marks=pytest.mark.soak)])
def test_the_cap_holds_by_the_servers_count_however_often_processes_are_killed(
    server: FaultServer, tmp_path: Path, rounds: int, questions: int
) -> None:
    server.order(latency_s=0.4)
    cap, chance, kills = 0.003 * questions / 200, random.Random(3), 0
    capped = order(server, tmp_path, questions, timeout_s=3.0, cap_usd=cap)
    for _ in range(rounds):
        with running(live, *[capped] * 3) as processes:
            begin(*processes)
            for process in processes:
                came = billed(server)
                while billed(server) == came and process.is_running():  # it has begun, however slow the machine
                    time.sleep(0.02)
                time.sleep(chance.uniform(0.0, 0.2))
                kills += process.kill()
    with running(live, *[capped] * 3) as processes:
        begin(*processes)
        assert all(set(outcome) <= {"answered", "OverBudget"} for outcome in outcomes(*processes))
    assert kills > rounds
    assert billed(server) <= cap
    assert books(tmp_path).lost > 0
    assert billed(server) <= books(tmp_path).usd + 1e-9 <= cap + 2e-9

    with running(live, *[order(server, tmp_path, questions, timeout_s=3.0)] * 3) as processes:
        begin(*processes)
        assert outcomes(*processes) == [Counter(answered=questions)] * 3
    arrived = arrivals(server)
    spent = books(tmp_path)
    assert len(arrived) == questions
    # Every question's cost is known by now, also that of the lost calls.
    assert spent.calls + spent.lost >= sum(map(len, arrived.values()))
    assert spent.lost_usd == pytest.approx(spent.lost * PAID_USD)


KILLS, OF_EACH = 40, 4
"""Processes that are killed, and calls of each."""


def fork_each_time(order: Order, end: Connection) -> None:
    """After the warm-up, for each URL that comes: start a process that asks at that URL, send its id, and wait for its
    end."""
    asyncio.run(client_in(order.folder / "warm").complete(order.worker, user(WARM_UP)))
    end.send("ready")
    while url := end.recv():
        if not (pid := os.fork()):
            worker = order.worker.model_copy(update={"api_base": url})
            asyncio.run(_ask(order, worker, f"of process {os.getpid()}"))
            os._exit(0)
        end.send(pid)
        os.waitpid(pid, 0)
        end.send("gone")


async def _ask(order: Order, worker: Worker, text: str) -> None:
    client = client_in(order.folder, order.cap_usd)
    calls = (client.complete(worker, user(f"{text}: {number}")) for number in range(OF_EACH))
    await asyncio.gather(*calls, return_exceptions=True)


@contextmanager
def silent_server() -> Iterator[tuple[str, list[socket.socket]]]:
    """Give the address of a server whose connections never stand, because it never answers the TLS handshake, and the
    connections that it has accepted."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        accepted: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    accepted.append(listening.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"https://127.0.0.1:{listening.getsockname()[1]}/v1", accepted
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for connection in accepted:
                connection.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_forty_kills_do_not_use_up_the_cap_with_calls_that_were_never_sent(server: FaultServer, tmp_path: Path) -> None:
    """Half of the processes are killed while their connections are opened, and all others but the first at a random
    moment."""
    server.order(latency_s=0.05)
    chance, cap = random.Random(5), 0.006
    capped = order(server, tmp_path, OF_EACH, timeout_s=60.0, cap_usd=cap)
    with silent_server() as (silent, accepted), running(fork_each_time, capped) as [process]:
        for number in range(KILLS):
            before = len(accepted)
            process.send(silent if number % 2 else capped.worker.api_base)
            pid = process.said()
            if number % 2:
                while len(accepted) < before + OF_EACH:
                    time.sleep(0.005)
            else:
                time.sleep(chance.uniform(0.0, 0.15))
            if number:  # the first process ends by itself, so that some calls are sent however slow the machine is
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert process.said() == "gone"
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.release_ended_processes()
    spent, arrived = ledger.by_run().get("run", SpendingSum()), sum(map(len, arrivals(server).values()))
    assert arrived >= OF_EACH, "some calls were sent"
    # One process may have been killed in the milliseconds between the mark and the write.
    assert arrived <= spent.calls + spent.lost <= arrived + OF_EACH
    server.order(latency_s=0.0)
    assert ask(client_in(tmp_path, cap), capped.worker, "another").text, "the cap has room for more calls"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_lost_question_is_asked_again_only_when_its_time_out_has_passed(server: FaultServer, tmp_path: Path) -> None:
    timeout_s = 8.0
    with (
        running(live, *[order(server, tmp_path, 12, timeout_s=timeout_s)] * 2) as others,  # ready before the time-outs
        running(live, order(server, tmp_path, CONCURRENCY, timeout_s=timeout_s)) as [process],
    ):
        server.order(latency_s=60.0)
        process.begin()
        while server.order()["busy"] < CONCURRENCY:
            time.sleep(0.02)
        process.kill()
        server.order(latency_s=0.0)
        lost = arrivals(server)
        begin(*others)
        assert outcomes(*others) == [Counter(answered=12)] * 2
    times = arrivals(server)
    assert {prompt: len(at) for prompt, at in times.items()} == {
        f"question {number}": 2 if number < CONCURRENCY else 1 for number in range(12)
    }
    assert all(times[prompt][1] - at >= timeout_s - 0.5 for prompt, [at] in lost.items())
    # Meanwhile the others were answered.
    assert max(at for [at, *more] in times.values() if not more) < min(times[prompt][1] for prompt in lost)
    assert (books(tmp_path).calls, books(tmp_path).lost) == (12, CONCURRENCY)
    assert books(tmp_path).usd == pytest.approx((12 + CONCURRENCY) * PAID_USD)


@pytest.mark.slow
@pytest.mark.timeout(600)
@TOGETHER
def test_processes_ask_each_question_once(server: FaultServer, tmp_path: Path, count: int, questions: int) -> None:
    server.order(latency_s=0.1)
    with running(live, *[order(server, tmp_path, questions, timeout_s=60.0)] * count) as processes:
        begin(*processes)
        assert outcomes(*processes) == [Counter(answered=questions)] * count
    assert Counter({prompt: len(at) for prompt, at in arrivals(server).items()}) == Counter(
        f"question {number}" for number in range(questions)
    )
    assert (books(tmp_path).calls, books(tmp_path).lost) == (questions, 0)


@pytest.mark.slow
@pytest.mark.timeout(600)
@TOGETHER
def test_only_calls_in_flight_of_a_killed_process_are_repeated(
    server: FaultServer, tmp_path: Path, count: int, questions: int
) -> None:
    server.order(latency_s=0.3)
    timeout_s = 4.0
    with running(live, *[order(server, tmp_path, questions, timeout_s=timeout_s)] * count) as processes:
        begin(*processes)
        while len(arrivals(server)) < questions // 5:
            time.sleep(0.01)
        processes[0].kill()
        killed_at = time.time()
        assert outcomes(*processes[1:]) == [Counter(answered=questions)] * (count - 1)
    times = arrivals(server)
    repeated = [at for at in times.values() if len(at) > 1]
    assert len(times) == questions
    assert len(repeated) <= CONCURRENCY
    assert all(len(at) == 2 and at[0] <= killed_at and at[1] - at[0] >= timeout_s - 0.5 for at in repeated)
    assert books(tmp_path).calls == questions
