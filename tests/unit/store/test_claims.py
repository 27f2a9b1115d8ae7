"""Claims in both backends: one process makes a call, and a claim ends with its holder or its answer."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from pathlib import Path

from ops.core.response import Response
from ops.store import ResponseCache
from tests.unit.store.conftest import RESPONSE, OpenCache, claims, holder, take


def test_one_holds_the_claim_and_the_others_get_its_response(open_cache: OpenCache) -> None:
    async def scenario() -> None:
        claim = await open_cache().claim("key")
        assert not isinstance(claim, Response)
        waiting = [asyncio.create_task(open_cache().claim("key")) for _ in range(5)]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in waiting)
        open_cache().put_many([("key", "{}", RESPONSE)])
        claim.release()
        assert [got.text for got in await asyncio.gather(*waiting) if isinstance(got, Response)] == ["Answer: 4"] * 5

    asyncio.run(scenario())


def test_a_failed_call_passes_the_claim_to_a_waiting_caller(open_cache: OpenCache) -> None:
    async def scenario() -> None:
        cache = open_cache()
        claim = await cache.claim("key")
        assert not isinstance(claim, Response)
        assert cache.mark_sent({"key": 60.0}) == {"key"}
        waiting = [asyncio.create_task(open_cache().claim("key")) for _ in range(3)]
        await asyncio.sleep(0.1)
        claim.release()
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=20)
        await asyncio.sleep(0.5)
        assert len(done) == 1
        assert not any(task.done() for task in rest)
        for task in rest:
            task.cancel()

    asyncio.run(scenario())


def test_a_claim_taken_after_the_response_was_stored_is_a_hit(open_cache: OpenCache) -> None:
    first, second = open_cache(), open_cache()
    assert first.get("key") is None  # looked up before …
    second.put_many([("key", "{}", RESPONSE)])  # … it was stored
    assert isinstance(asyncio.run(first.claim("key")), Response)
    assert claims(second, "key")[0] is not None  # nothing is left claimed


def test_a_cancelled_wait_leaves_no_claim(open_cache: OpenCache) -> None:
    async def scenario(turns: int) -> None:
        waiting = [asyncio.create_task(cache.claim(f"key {number}")) for number in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for task in waiting:
            if not task.cancelled() and not isinstance(claim := task.result(), Response):
                claim.release()

    cache = open_cache()
    for turns in range(5):  # before the request, during it, and after
        asyncio.run(scenario(turns))
        for claim in claims(cache, "key 0", "key 1", "key 2"):
            assert claim is not None
            claim.release()


def test_one_of_two_callers_in_one_turn_gets_the_claim(open_cache: OpenCache) -> None:
    async def scenario() -> None:
        cache = open_cache()
        waiting = [asyncio.create_task(cache.claim("key")) for _ in range(2)]
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=20)
        await asyncio.sleep(0.1)
        assert (len(done), [task.done() for task in rest]) == (1, [False])
        cache.put_many([("key", "{}", RESPONSE)])
        assert [got.text for got in await asyncio.gather(*rest) if isinstance(got, Response)] == ["Answer: 4"]

    asyncio.run(scenario())


def test_storing_the_response_ends_the_claim(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    claim = claims(cache, "key")[0]
    cache.put_many([("key", "{}", RESPONSE)])
    cache.delete(["key"])
    later = claims(ResponseCache(tmp_path), "key")[0]
    assert later is not None
    claim.release()  # the claim of another process stays
    assert claims(ResponseCache(tmp_path), "key")[0] is None


def test_claims_of_a_killed_holder_are_free_at_once_if_unsent_and_later_if_sent(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    with holder(tmp_path, 1.0) as process:
        assert claims(cache, "waiting", "sent") == [None, None]
        time.sleep(1.0)  # a claim does not expire while its holder runs, which may be retrying
        assert claims(cache, "sent")[0] is None
        os.kill(process.pid, signal.SIGKILL)
    take(cache, "sent")
    take(cache, "waiting")

    with holder(tmp_path / "other", 5.0) as process:
        began = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
    other = ResponseCache(tmp_path / "other")
    assert claims(other, "waiting")[0] is not None
    assert claims(other, "sent")[0] is None
    take(other, "sent")
    assert time.monotonic() - began >= 4.0


def test_a_suspended_holder_detects_its_lost_claim_before_it_sends(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    with holder(tmp_path, 60.0) as process:
        os.kill(process.pid, signal.SIGSTOP)
        take(cache, "waiting")
        assert claims(cache, "sent")[0] is None
        os.kill(process.pid, signal.SIGCONT)
        assert process.communicate("go\n", timeout=60)[0].strip() == "lost"
    assert claims(cache, "waiting")[0] is None  # the claim is held, whatever happened to the other


def test_a_process_with_a_reused_pid_is_a_different_process(tmp_path: Path) -> None:
    assert ResponseCache(tmp_path).mark_sent({"key": 1.0}) == set()
    with sqlite3.connect(tmp_path / "claims.sqlite") as connection:
        connection.execute("INSERT INTO claims VALUES ('key', ?, ?, 0)", (os.getpid(), 1.0))
    connection.close()
    assert claims(ResponseCache(tmp_path), "key")[0] is not None


def test_an_old_claim_is_no_entry(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    claim = claims(cache, "key")[0]
    assert cache.mark_sent({"key": 1.0, "never claimed": 1.0}) == {"key"}
    assert (len(cache), cache.get("key"), cache.find_existing(["key"])) == (0, None, set())
    claim.release()
    assert cache.mark_sent({"key": 1.0}) == set()
