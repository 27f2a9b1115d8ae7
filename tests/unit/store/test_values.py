"""Completions and verdicts in each backend: computed once, stored, and computed again if they are damaged."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ops.store import Backend, ComputedValue, Kind, ResponseCache, ValueStore, cache_key, cache_material
from ops.store.sqlite_file import SqliteBackend
from tests.unit.store.conftest import RESPONSE, OpenStore

KINDS = [Kind.COMPLETION, Kind.VERDICT]


def values(store: Backend, kind: Kind = Kind.COMPLETION) -> ValueStore[str]:
    return ValueStore(store, kind, lambda value: value if isinstance(value, str) else None)


class Computer:
    """Computes a text for each key, and notes which keys it was asked for."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.computed: list[str] = []
        self._pause_s = pause_s

    def __call__(self, keys: Sequence[str]) -> Mapping[str, ComputedValue[str]]:
        self.computed += keys
        time.sleep(self._pause_s)
        return {key: ComputedValue(f"text {key}", f"text {key}") for key in keys}


def test_a_value_is_computed_once_and_then_read(open_store: OpenStore) -> None:
    compute = Computer()
    expected = {key: f"text {key}" for key in ("a", "b")}
    assert values(open_store()).get_or_compute(["b", "a", "b"], compute) == expected
    assert values(open_store()).get_or_compute(["a", "b"], compute) == expected
    assert values(open_store()).get(["b", "c"]) == {"b": "text b"}
    assert compute.computed == ["b", "a"]


def test_kinds_have_values_of_their_own(open_store: OpenStore) -> None:
    store = open_store()
    for kind in KINDS:
        values(store, kind).put({f"{kind} key": f"a {kind}"})
    key, material = cache_key({}, [], 0), cache_material({}, [], 0)
    ResponseCache(store).put_many([(key, material, RESPONSE)])
    assert [store.count(kind) for kind in Kind] == [1, 1, 1]
    assert values(store).get([f"{kind} key" for kind in KINDS]) == {"completion key": "a completion"}
    assert ResponseCache(store).get("completion key") is None


@pytest.mark.parametrize("kind", Kind)
def test_a_damaged_entry_is_a_miss_and_only_that(
    kind: Kind, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    keys = {each: cache_key({"kind": each}, [], 0) for each in Kind}
    others = {each: values(store, each) for each in KINDS}
    ResponseCache(store).put_many([(keys[Kind.RESPONSE], cache_material({"kind": Kind.RESPONSE}, [], 0), RESPONSE)])
    for each, own in others.items():
        own.put({keys[each]: "a text"})
    found = store.find(keys[kind])
    store.insert([found._replace(body=found.body.replace(b"e", b"i"))])

    def read() -> dict[Kind, object]:
        held: dict[Kind, object] = {each: own.get([keys[each]]).get(keys[each]) for each, own in others.items()}
        response = ResponseCache(open_store()).get(keys[Kind.RESPONSE])
        return held | {Kind.RESPONSE: response and response.text}

    whole = {Kind.RESPONSE: "Answer: 4", Kind.COMPLETION: "a text", Kind.VERDICT: "a text"}
    with caplog.at_level(logging.WARNING):
        assert read() == whole | {kind: None}
    assert len(caplog.messages) == 1 and "damaged" in caplog.messages[0]
    if kind is not Kind.RESPONSE:
        compute = Computer()
        assert others[kind].get_or_compute([keys[kind]], compute) == {keys[kind]: f"text {keys[kind]}"}
        assert others[kind].get_or_compute([keys[kind]], compute) == {keys[kind]: f"text {keys[kind]}"}
        assert compute.computed == [keys[kind]]


def test_an_entry_under_the_key_of_another_is_damaged(open_store: OpenStore) -> None:
    store = open_store()
    values(store).put({"a": "a text"})
    store.insert([store.find("a")._replace(key="b")])
    assert values(store).get(["a", "b"]) == {"a": "a text"}


def test_what_is_not_to_be_stored_is_computed_by_each_caller(open_store: OpenStore) -> None:
    times = []

    def compute(keys: list[str]) -> Mapping[str, ComputedValue[str]]:
        times.append(keys)
        return {key: ComputedValue("only now", None) for key in keys}

    for _ in range(2):
        assert values(open_store()).get_or_compute(["a"], compute) == {"a": "only now"}
    assert times == [["a"], ["a"]]


def test_callers_that_need_each_others_keys_compute_each_once(open_store: OpenStore) -> None:
    compute, got = Computer(0.05), list[dict[str, str]]()
    keys = [f"key {number}" for number in range(12)]
    orders = [keys, keys[::-1], keys[6:] + keys[:6], keys[::2] + keys[1::2]]
    stores = [open_store() for _ in orders]

    def work(store: Backend, order: list[str]) -> None:
        for some in (order[:5], order[3:9], order):
            got.append(values(store).get_or_compute(some, compute))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(stores, orders, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got) == 12 and all(value == f"text {key}" for each in got for key, value in each.items())
    assert sorted(compute.computed) == sorted(keys)


def test_a_failure_passes_the_claim_on(open_store: OpenStore) -> None:
    def fail(keys: list[str]) -> Mapping[str, ComputedValue[str]]:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        values(open_store()).get_or_compute(["a"], fail)
    assert values(open_store()).get_or_compute(["a"], Computer()) == {"a": "text a"}


_PROCESS = """
    import sys, time
    from pathlib import Path
    from ops.store import ComputedValue, Kind, ValueStore
    from ops.store.sqlite_file import SqliteBackend

    def compute(keys):
        for key in keys:
            print(key, flush=True)
        time.sleep(float(sys.argv[2]))
        return {key: ComputedValue(f"text {key}", f"text {key}") for key in keys}

    store = ValueStore(SqliteBackend(Path(sys.argv[1])), Kind.VERDICT, str)
    print("ready", flush=True)
    sys.stdin.readline()
    for start in range(0, 40, 4)[:: int(sys.argv[3])]:
        keys = [f"key-{number}" for number in range(start, start + 8)]
        assert store.get_or_compute(keys, compute) == {key: f"text {key}" for key in keys}
"""


def process(folder: Path, seconds: float, step: int = 1) -> subprocess.Popen[str]:
    """A process that computes values, which are also those of others: from the first on, or (step −1) from the last."""
    command = [sys.executable, "-c", textwrap.dedent(_PROCESS), str(folder), str(seconds), str(step)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout.readline() == "ready\n"
    return started


def test_two_processes_at_once_compute_each_value_once(tmp_path: Path) -> None:
    running = [process(tmp_path, 0.02, step) for step in (1, -1)]
    for each in running:
        each.stdin.write("go\n")
        each.stdin.flush()
    said = [each.communicate(timeout=100)[0].split() for each in running]
    assert [each.returncode for each in running] == [0, 0]
    assert sorted(said[0] + said[1]) == sorted(f"key-{number}" for number in range(44))
    assert all(said), "both computed something"


def test_what_a_killed_process_was_computing_is_computed_by_another(tmp_path: Path) -> None:
    killed = process(tmp_path, 600.0)
    killed.stdin.write("go\n")
    killed.stdin.flush()
    assert killed.stdout.readline() == "key-0\n"
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)
    began = time.monotonic()
    assert values(SqliteBackend(tmp_path), Kind.VERDICT).get_or_compute(["key-0"], Computer()) == {
        "key-0": "text key-0"
    }
    assert time.monotonic() - began < 30
