"""Several processes call one worker; its server counts what arrives."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.limits_run import WARM_UP, Order, live
from tests.faults.processes import Process, begin, outcomes, running
from tests.faults.remote import FaultServer


def ready(
    server: FaultServer, folder: Path, counts: dict[str, int], **settings: Any
) -> AbstractContextManager[list[Process]]:
    """Give one process per name with its own questions, which it sends after `begin`; the outcome is their number."""
    return running(live, *(Order(server.url, folder, name, count, settings) for name, count in counts.items()))


def served(server: FaultServer) -> dict[str, int]:
    return {prompt: times for prompt, times in server.served().items() if prompt != WARM_UP}


def came(server: FaultServer) -> list[float]:
    """Return the times of requests at the server."""
    return sorted(entry["time"] for entry in server.came() if entry["prompt"] != WARM_UP)


@pytest.mark.parametrize("names", ["ab", pytest.param("abcd", marks=pytest.mark.slow)])
def test_processes_together_keep_a_workers_concurrency(server: FaultServer, tmp_path: Path, names: str) -> None:
    with ready(server, tmp_path, dict.fromkeys(names, 24), concurrency=4) as processes:
        server.order(latency_s=1.0, most_busy=0)
        begin(*processes)
        while server.order()["busy"] < 4:  # all places are taken, however slow the machine is
            time.sleep(0.02)
        server.order(latency_s=0.05)
        assert outcomes(*processes) == [24] * len(names)
    assert len(served(server)) == 24 * len(names)
    assert server.order()["most_busy"] == 4


def test_processes_together_keep_a_workers_requests_per_minute(server: FaultServer, tmp_path: Path) -> None:
    with ready(server, tmp_path, dict.fromkeys("ab", 10), requests_per_minute=300) as processes:
        begin(*processes)
        assert outcomes(*processes) == [10] * 2
    times = came(server)
    assert len(times) == 20
    assert times[-1] - times[0] >= 19 * 0.2 * 0.7  # one alone takes half of that


def test_a_pause_that_the_provider_requests_from_one_process_applies_to_all(
    server: FaultServer, tmp_path: Path
) -> None:
    with ready(server, tmp_path, dict.fromkeys("ab", 6), concurrency=1) as processes:
        server.order(plan=["429 date"])  # two seconds from then, in whole seconds
        begin(*processes)
        assert outcomes(*processes) == [6] * 2
    times = came(server)
    assert times[1] - times[0] >= 0.9


def test_the_slots_of_a_killed_process_are_free(server: FaultServer, tmp_path: Path) -> None:
    with ready(server, tmp_path, {"a": 4, "b": 8}, concurrency=4) as [first, second]:
        server.order(plan=["hang"] * 4)
        begin(first)
        while server.order()["busy"] < 4:
            time.sleep(0.02)
        begin(second)
        time.sleep(0.5)
        assert served(server) == {}  # all four are taken
        first.kill()
        assert outcomes(second) == [8]


def test_a_process_with_few_calls_does_not_wait_for_one_with_many(server: FaultServer, tmp_path: Path) -> None:
    """A served question is not last in the queue of a training with hundreds of calls."""
    with ready(server, tmp_path, {"a": 200, "b": 2}, concurrency=2) as [many, few]:
        server.order(latency_s=0.05)
        begin(many)
        while len(served(server)) < 10:
            time.sleep(0.02)
        begin(few)
        assert outcomes(few) == [2]
        assert sum(name.startswith("a") for name in served(server)) < 200
