"""Leases at a server are renewed while held, by one thread; a forked child shares none of its parent's."""

from __future__ import annotations

import os
import threading
from queue import Empty, Queue

import pytest

from ops.core.servers import Leases

EVERY_S = 0.02
PATIENCE_S = 60.0


class Server:
    """Records renewals in order."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self.renewed: Queue[dict[str, int]] = Queue()
        self.leases = Leases[str, int]("test leases", every_s, self.renewed.put)

    def hold(self, **values: int) -> None:
        with self.leases.held() as held:
            held.update(values)

    def hears_of(self, **values: int) -> None:
        """Wait until exactly these are renewed."""
        while self.renewed.get(timeout=PATIENCE_S) != values:
            pass


def keepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "test leases"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> None:
    for thread in keepers():
        thread.join(PATIENCE_S)
    assert keepers() == []


def test_held_leases_are_renewed_until_released_and_again_when_new_ones_are_added() -> None:
    server = Server()
    with server.leases.held() as held:
        assert held == {}
    assert keepers() == [], "nothing to do"
    server.hold(one=1, two=2)
    server.hears_of(one=1, two=2)
    server.hold(two=3)
    server.hears_of(one=1, two=3)
    assert len(keepers()) == 1
    with server.leases.held() as held:
        del held["one"]
    server.hears_of(two=3)
    [thread] = keepers()
    with server.leases.held() as held:
        held.clear()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    server.hold(three=3)
    server.hears_of(three=3)
    with server.leases.held() as held:
        held.clear()


def test_leases_added_before_an_error_are_held() -> None:
    server = Server()
    with pytest.raises(RuntimeError), server.leases.held() as held:
        held["one"] = 1
        raise RuntimeError
    server.hears_of(one=1)
    with server.leases.held() as held:
        held.clear()


def test_giving_back_and_taking_between_two_renewals_loses_no_lease() -> None:
    server = Server(every_s=0.001)
    for number in range(300):
        server.hold(one=number)
        if number % 3:
            threading.Event().wait(0.0015)
        with server.leases.held() as held:
            held.clear()
    server.hold(last=1)
    server.hears_of(last=1)
    assert len(keepers()) == 1
    with server.leases.held() as held:
        held.clear()


def test_a_forked_child_renews_only_its_own_leases() -> None:
    server = Server()
    server.hold(parents=1)
    server.hears_of(parents=1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        server.renewed = Queue()  # a thread that does not exist here may hold the inherited lock
        server.leases._renew = server.renewed.put
        server.hold(own=1)
        try:
            first = server.renewed.get(timeout=PATIENCE_S)
        except Empty:
            first = {}
        os.write(write, repr(first).encode())
        os._exit(0)
    try:
        assert os.read(read, 99) == b"{'own': 1}"
        server.renewed.queue.clear()
        server.hears_of(parents=1)
    finally:
        os.waitpid(child, 0)
    with server.leases.held() as held:
        held.clear()
