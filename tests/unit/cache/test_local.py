"""The response cache on this machine: keys, round trips, damage."""

from __future__ import annotations

import logging
import multiprocessing
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.cache import ResponseCache, cache_key, cache_material
from ops.cache.front import OVERHEAD
from ops.core.response import Response

RESPONSE = Response("Answer: 4", 10, 5, 2e-5, 0.25, "stop", retries=2)


def test_a_response_comes_back_as_it_was_paid_for(tmp_path: Path) -> None:
    ResponseCache(tmp_path).put_many([("key", "{}", RESPONSE)])
    response = ResponseCache(tmp_path).get("key")
    assert response == Response("Answer: 4", 10, 5, 2e-5, 0.25, "stop", cached=True)
    assert ResponseCache(tmp_path).get("other") is None


@given(text=st.text(st.characters(), max_size=50), cost=st.floats(0, 1e3), latency=st.floats(0, 1e5))
def test_any_text_survives_also_lone_surrogates(
    tmp_path_factory: pytest.TempPathFactory, text: str, cost: float, latency: float
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any_text"
    response = Response(text + "\ud800", 1, 1, cost, latency, "length")
    messages = [{"role": "user", "content": text + "\udfff"}]
    key, material = cache_key({}, messages, 0), cache_material({}, messages, 0)
    ResponseCache(folder).put_many([(key, material, response)])
    stored = ResponseCache(folder).get(key)
    assert stored is not None
    assert (stored.text, stored.cost_usd, stored.latency_s) == (response.text, cost, latency)


MESSAGES = st.lists(st.fixed_dictionaries({"role": st.text(max_size=4), "content": st.text(max_size=8)}), max_size=3)


@given(a=MESSAGES, b=MESSAGES, i=st.integers(0, 2), j=st.integers(0, 2))
def test_keys_are_equal_exactly_when_everything_is(a: Any, b: Any, i: int, j: int) -> None:
    same = cache_key({"model": "m"}, a, i) == cache_key({"model": "m"}, b, j)
    assert same == (a == b and i == j)


def test_the_order_of_settings_does_not_change_a_key() -> None:
    assert cache_key({"a": 1, "b": {"c": 2, "d": 3}}, [], 0) == cache_key({"b": {"d": 3, "c": 2}, "a": 1}, [], 0)
    assert cache_key({"a": 1}, [], 0) != cache_key({"a": 2}, [], 0)


def test_memory_is_bounded_and_what_it_forgets_is_on_disk(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path, memory_chars=3 * (OVERHEAD + 40))
    for number in range(50):
        cache.put_many([(str(number), "{}", Response(f"{number:040}", 1, 1, 0.0, 0.0, "stop"))])
    assert len(cache._memory) == 3
    assert all((response := cache.get(str(n))) and response.text == f"{n:040}" for n in range(50))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE responses SET response = replace(response, 'Answer', 'Anser')",
        "UPDATE responses SET response = '['",
        "UPDATE responses SET response = CAST(X'FF00FE' AS TEXT)",
        "UPDATE responses SET response = X'00'",
        "UPDATE responses SET checksum = ''",
    ],
)
def test_a_damaged_row_is_dropped_and_missed(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    writer = ResponseCache(tmp_path)
    writer.put_many([("key", "{}", RESPONSE)])
    writer.close()
    with sqlite3.connect(tmp_path / "responses.sqlite") as connection:
        connection.execute(damage)
    connection.close()
    cache = ResponseCache(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert cache.get("key") is None
    assert "key" in caplog.text
    assert len(cache) == 0
    cache.put_many([("key", "{}", RESPONSE)])
    assert cache.get("key") is not None


@pytest.mark.parametrize("first", ["get", "put"])
def test_a_file_that_is_not_a_database_is_renamed(tmp_path: Path, first: str) -> None:
    (tmp_path / "responses.sqlite").write_bytes(b"not a database at all" * 500)
    cache = ResponseCache(tmp_path)
    if first == "get":
        assert cache.get("key") is None
    cache.put_many([("key", "{}", RESPONSE)])
    assert ResponseCache(tmp_path).get("key") is not None
    assert len(list(tmp_path.glob("responses.sqlite.damaged-*"))) == 1


def test_put_many_is_all_or_nothing(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    bad: Any = object()
    with pytest.raises(sqlite3.Error):
        cache.put_many([("a", "{}", RESPONSE), (bad, "{}", RESPONSE)])
    assert len(cache) == 0
    assert cache.get("a") is None


def test_a_forked_child_uses_a_connection_of_its_own(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    cache.put_many([("parent", "{}", RESPONSE)])
    child = multiprocessing.get_context("fork").Process(target=cache.put_many, args=([("child", "{}", RESPONSE)],))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert cache.get("child") is not None
