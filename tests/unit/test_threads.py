"""Threads: one renews the leases at a server, of which a forked child shares none; several parse Python texts."""

from __future__ import annotations

import ast
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue

import pytest

from ops.core.cpython import evaluate_literal, parse
from ops.core.servers import LeaseRenewer

EVERY_S = 0.02
PATIENCE_S = 60.0


class Server:
    """Records renewals in order."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self.renewed: Queue[dict[str, int]] = Queue()
        self.leases = LeaseRenewer[str, int]("test leases", every_s, self.renewed.put)

    def hold(self, **values: int) -> None:
        with self.leases.locked() as held:
            held.update(values)

    def release(self, *names: str) -> None:
        """Give these back; all where none is named."""
        with self.leases.locked() as held:
            for name in names or tuple(held):
                del held[name]

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
    with server.leases.locked() as held:
        assert held == {}
    assert keepers() == [], "nothing to do"
    server.hold(one=1, two=2)
    server.hears_of(one=1, two=2)
    server.hold(two=3)
    server.hears_of(one=1, two=3)
    assert len(keepers()) == 1
    server.release("one")
    server.hears_of(two=3)
    [thread] = keepers()
    server.release()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    server.hold(three=3)
    server.hears_of(three=3)
    server.release()


def test_leases_added_before_an_error_are_held() -> None:
    server = Server()
    with pytest.raises(RuntimeError), server.leases.locked() as held:
        held["one"] = 1
        raise RuntimeError
    server.hears_of(one=1)
    server.release()


def test_giving_back_and_taking_between_two_renewals_loses_no_lease() -> None:
    server = Server(every_s=0.001)
    for number in range(300):
        server.hold(one=number)
        if number % 3:
            threading.Event().wait(0.0015)
        server.release()
    server.hold(last=1)
    server.hears_of(last=1)
    assert len(keepers()) == 1
    server.release()


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
    server.release()


# ── Python texts ─────────────────────────────────────────────────────────────


TEXT = "def f(a):\n    return " + " + ".join(f"(a[{n}] * {{'k': [{n}, (1, 2)]}}['k'][0])" for n in range(60)) + "\n"


class Cycle:
    """An object whose collection runs Python code, which lets another thread in."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sum(range(100))


def parsed(text: str) -> str:
    Cycle()
    return ast.dump(parse(text))


def test_threads_that_parse_at_once_all_get_their_tree() -> None:
    expected, before = ast.dump(ast.parse(TEXT)), gc.get_threshold()
    gc.set_threshold(20, 1, 1)  # a collection in the middle of every parse
    try:
        with ThreadPoolExecutor(8) as threads:
            trees = set(threads.map(parsed, [TEXT] * 60))
    finally:
        gc.set_threshold(*before)
    assert trees == {expected}


def test_a_depth_that_another_library_has_confused_is_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, plain = [], ast.parse

    def confused(source: str, *, mode: str = "exec") -> ast.AST:
        if len(refused) < 3:
            refused.append(source)
            raise SystemError("AST constructor recursion depth mismatch (before=45, after=43)")
        return plain(source, mode=mode)

    monkeypatch.setattr(ast, "parse", confused)
    assert evaluate_literal(" [1, 'a']") == [1, "a"]
    assert len(refused) == 3


@pytest.mark.parametrize("text", ["1 +", "x", "[1]()", "\0"])
def test_a_text_that_is_not_a_literal_raises_the_errors_of_literal_eval(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)) as ours:
        evaluate_literal(text)
    with pytest.raises(type(ours.value)):
        ast.literal_eval(text)
