"""Properties of every backend: round trips, damage, inspection, pruning, verification, export."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ops.config import Pool, Worker
from ops.core.response import Response
from ops.core.usage import Usage
from ops.store import Backend, Kind, ResponseCache, ValueStore, cache_key, cache_material
from ops.store.admin import UNKNOWN_MODEL, export_responses, find_entry, list_contents, prune_entries, verify_entries
from ops.store.entries import Entry, compute_checksum
from tests.unit.store.conftest import RESPONSE, OpenCache

MATHS = Worker(name="maths", model="openai/maths", temperature=0.2)
CODER = Worker(name="coder", model="openai/coder", temperature=0.2)
QUESTION = [{"role": "user", "content": "A farmer has 17 sheep and buys 4 more. How many now?\n\nSubtask: Solve."}]
PAID = (Usage(10, 5), 2e-5, 0.25, "stop")


def entry(
    worker: Worker, messages: list[dict[str, str]], sample: int = 0, text: str = "Answer: 21"
) -> tuple[str, str, Response]:
    key, material = (form(worker.identity, messages, sample) for form in (cache_key, cache_material))
    return key, material, Response(text, *PAID, retries=2)


def store(cache: ResponseCache, worker: Worker, messages: Any, sample: int = 0, text: str = "Answer: 21") -> str:
    made = entry(worker, messages, sample, text)
    cache.put_many([made])
    return made[0]


def writer(store: Backend) -> ValueStore[str]:
    return ValueStore(store, Kind.COMPLETION, lambda value: value if isinstance(value, str) else None)


def spoil(cache: ResponseCache, key: str) -> None:
    """Replace the entry's checksum with that of another text."""
    found = cache.backend.find(key)
    cache.backend.insert([found._replace(checksum=compute_checksum(Kind.RESPONSE, key, b"another text"))])


def test_stored_entries_are_found_by_other_processes(cache: ResponseCache, open_cache: OpenCache) -> None:
    keys = [store(cache, MATHS, QUESTION, sample, f"text {sample} \ud800") for sample in range(3)]
    other = open_cache()
    assert [other.get(key) for key in keys] == [Response(f"text {n} \ud800", *PAID, cached=True) for n in range(3)]
    assert len(other) == 3
    assert other.get("0" * 64) is None
    assert other.find_existing([*keys, "0" * 64]) == set(keys)


def test_put_again_replaces(open_cache: OpenCache) -> None:
    store(open_cache(), MATHS, QUESTION, text="old")
    key = store(open_cache(), MATHS, QUESTION, text="new")
    response = open_cache().get(key)
    assert (response.text, len(open_cache())) == ("new", 1)


def test_a_damaged_entry_is_dropped_and_can_be_put_again(cache: ResponseCache, open_cache: OpenCache) -> None:
    key = store(open_cache(), MATHS, QUESTION)
    spoil(open_cache(), key)
    assert cache.get(key) is None
    assert len(cache) == 0
    store(cache, MATHS, QUESTION)
    assert open_cache().get(key) is not None


# ── looking after it ─────────────────────────────────────────────────────────


def test_holdings_by_worker_settings(cache: ResponseCache) -> None:
    before = time.time()
    for sample in range(3):
        store(cache, MATHS, QUESTION, sample)
    store(cache, CODER, QUESTION)
    cache.put_many([("x", "no material", RESPONSE)])
    writer(cache.backend).put({"a": "a text", "b": "another"})
    listing = list_contents(cache.backend)
    entries = [(holding.kind, holding.model, holding.entries) for holding in listing]
    responses = [("response", UNKNOWN_MODEL, 1), ("response", "openai/coder", 1)]
    assert entries == [("response", "openai/maths", 3), *responses, ("completion", "", 2)]
    assert listing[0].characters > 3 * len(QUESTION[0]["content"])
    assert before - 1 <= listing[0].oldest <= listing[0].newest <= time.time()


def test_prune_by_pool_keeps_what_its_workers_ask_for(cache: ResponseCache, open_cache: OpenCache) -> None:
    kept, gone = store(cache, MATHS, QUESTION), store(cache, CODER, QUESTION)
    hot = store(cache, MATHS.model_copy(update={"temperature": 0.9}), QUESTION)
    pool = Pool(name="p", workers=(MATHS.model_copy(update={"name": "renamed", "concurrency": 3}),))
    writer(cache.backend).put({"a": "a text"})
    identities = [worker.identity for worker in pool.workers]
    assert prune_entries(cache.backend, keep=identities, dry_run=True) == 2
    assert len(cache) == 3
    assert prune_entries(cache.backend, keep=identities) == 2
    assert cache.find_existing([kept, gone, hot]) == {kept}
    assert open_cache().get(gone) is None
    assert writer(cache.backend).get(["a"]) == {"a": "a text"}


def test_prune_by_age(cache: ResponseCache) -> None:
    new = store(cache, MATHS, QUESTION)
    old, material, response = entry(MATHS, QUESTION, 1)
    before = time.time() - 10 * 86_400
    value = Entry.from_value(Kind.COMPLETION, "a", "a text", before)
    cache.backend.insert([Entry.from_response(old, material, response, before), value])
    assert prune_entries(cache.backend, older_than_days=11) == 0
    assert prune_entries(cache.backend, older_than_days=9, kinds=["response"]) == 1
    assert cache.find_existing([new, old]) == {new}
    assert prune_entries(cache.backend, older_than_days=9) == 1
    assert writer(cache.backend).get(["a"]) == {}


def test_verify_reports_and_repairs(cache: ResponseCache, open_cache: OpenCache) -> None:
    keys = [store(cache, MATHS, QUESTION, sample) for sample in range(4)]
    spoil(cache, keys[2])
    values = writer(cache.backend)
    values.put({"x": "a text", "y": "another"})
    cache.backend.insert([cache.backend.find("y")._replace(body=b'"anothes"')])
    fresh = open_cache()
    damaged = {("response", keys[2]), ("completion", "y")}
    assert (verify_entries(fresh.backend).entries, set(verify_entries(fresh.backend).damaged)) == (6, damaged)
    assert len(fresh) == 4
    assert set(verify_entries(fresh.backend, repair=True).damaged) == damaged
    assert verify_entries(fresh.backend) == (4, ())
    assert values.get(["x", "y"]) == {"x": "a text"}


def test_export_and_show(cache: ResponseCache, tmp_path: Path) -> None:
    keys = [store(cache, MATHS, QUESTION, sample, f"text {sample} \ud800") for sample in range(3)]
    spoil(cache, keys[0])
    file = tmp_path / "out" / "cache.parquet"
    assert export_responses(cache.backend, file) == 2
    rows = {row["key"]: row for row in pq.read_table(file).to_pylist()}
    assert set(rows) == set(keys[1:])
    row = rows[keys[1]]
    assert (row["model"], row["sample"], row["text"], row["cost_usd"]) == ("openai/maths", 1, "text 1 ?", 2e-5)
    assert "17 sheep" in row["messages"]
    assert find_entry(cache.backend, keys[1][:12]) == row | {"created": row["created"]}
    assert find_entry(cache.backend, keys[0]) is None
    assert find_entry(cache.backend, "z") is None

    assert export_responses(cache.backend, file, texts=False) == 2
    assert not any("sheep" in str(row) or "text 1" in str(row) for row in pq.read_table(file).to_pylist())
    assert [path.name for path in file.parent.iterdir()] == ["cache.parquet"]
    writer(cache.backend).put({"zero": "a text"})
    shown = find_entry(cache.backend, "ze")
    assert (shown["kind"], shown["key"], shown["value"]) == ("completion", "zero", "a text")
    assert export_responses(cache.backend, file) == 2


def test_rows_that_come_while_all_are_read_do_no_harm(cache: ResponseCache) -> None:
    for sample in range(20):
        store(cache, MATHS, QUESTION, sample)
    seen = set()
    for number, found in enumerate(cache.backend.iterate_entries()):
        store(cache, MATHS, QUESTION, 100 + number % 5)
        seen.add(found.key)
    assert {cache_key(MATHS.identity, QUESTION, sample) for sample in range(20)} <= seen


def test_a_response_in_memory_is_the_response_on_disk(cache: ResponseCache, open_cache: OpenCache) -> None:
    cache.put_many([("key", "{}", Response("Answer: 21", *PAID))])
    assert cache.get("key") == open_cache().get("key") == Response("Answer: 21", *PAID, cached=True)
