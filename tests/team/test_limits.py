"""A worker's limits in Redis: the tests of `tests.faults.test_shared_limits`, for processes that share only the server;
and an outage of the server.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ops.config import Worker
from ops.core.errors import ConfigError, LimitsUnavailable
from ops.workers.redis_limits import FleetLimits, _WaitingCall
from ops.workers.worker_handle import resolve_worker
from tests.faults.clients import server  # noqa: F401  (a fixture)
from tests.faults.test_shared_limits import (  # noqa: F401  (the same tests, over Redis)
    test_a_pause_that_the_provider_requests_from_one_process_applies_to_all,
    test_a_process_with_few_calls_does_not_wait_for_one_with_many,
    test_processes_together_keep_a_workers_concurrency,
    test_processes_together_keep_a_workers_requests_per_minute,
)
from tests.team.servers import Redis

WORKER = Worker.model_validate({
    "name": "w", "model": "openai/m", "api_base": "http://127.0.0.1:1/v1", "price": {"input": 1.0, "output": 1.0},
})  # fmt: skip


@pytest.fixture(autouse=True)
def over_redis(redis_server: Redis, monkeypatch: pytest.MonkeyPatch) -> Redis:
    monkeypatch.setenv("PODIUM_LIMITS_URL", redis_server.url)
    redis_server.empty()
    return redis_server


def test_the_slots_of_a_machine_that_is_gone_are_free_after_its_lease(over_redis: Redis) -> None:
    async def live() -> None:
        gone, other = (FleetLimits(over_redis.url, "w", lease_s=2.0) for _ in range(2))
        first = await gone.take_slot(1)
        waiting = asyncio.create_task(other.take_slot(1))
        await asyncio.sleep(3.0)
        assert not waiting.done(), "a lease is renewed while its holder lives"
        with gone._leases.locked() as held:
            held.clear()  # no process renews it any more
        slot = await asyncio.wait_for(waiting, 60)
        other.release_slot(slot)
        with gone._leases.locked() as held:
            held[first] = "of long ago"
        gone.release_slot(first)
        assert await asyncio.wait_for(other.take_slot(1), 60)

    asyncio.run(live())


async def until_in_line(limits: FleetLimits, count: int) -> None:
    """Wait, at most a minute, until that many processes wait in line."""
    for _ in range(6000):
        if limits._client.zcard(limits._line) == count:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def test_processes_that_wait_are_served_in_the_order_of_arrival(over_redis: Redis) -> None:
    """A process with many waiting calls does not keep the slot from one with a single call."""

    async def live() -> None:
        many, few = (FleetLimits(over_redis.url, "w") for _ in range(2))
        taken: list[str] = []

        async def call(limits: FleetLimits, name: str) -> None:
            slot = await limits.take_slot(1)
            taken.append(name)
            await asyncio.sleep(0)
            limits.release_slot(slot)

        first = await many.take_slot(1)
        calls = [asyncio.create_task(call(many, "many")) for _ in range(20)]
        await until_in_line(many, 1)
        calls.append(asyncio.create_task(call(few, "few")))
        await until_in_line(many, 2)
        many.release_slot(first)
        await asyncio.wait_for(asyncio.gather(*calls), 60)
        assert taken.index("few") == 1, "one of the many stood before it in the line"

    asyncio.run(live())


def test_an_ended_process_loses_its_place_in_the_queue(over_redis: Redis) -> None:
    async def live() -> None:
        gone, other = (FleetLimits(over_redis.url, "w") for _ in range(2))
        first = await gone.take_slot(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(other.take_slot(1), 0.2)
        assert not other._client.zcard(other._line), "who gives up leaves the line"
        assert gone._try_take_slot(1, _WaitingCall()) is None  # waits in the line without asking again
        gone._head = None
        gone.release_slot(first)
        assert await asyncio.wait_for(other.take_slot(1), 60)

    asyncio.run(live())


def test_a_wait_that_is_cancelled_leaves_nothing_behind(over_redis: Redis) -> None:
    async def live() -> None:
        limits = FleetLimits(over_redis.url, "w")
        slot = await limits.take_slot(1)
        waiting = asyncio.create_task(limits.take_slot(1))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert limits._head is None, "no call is at the head of the line"
        limits.release_slot(slot)
        again = await asyncio.wait_for(limits.take_slot(1), 60)
        with limits._leases.locked() as held:
            assert again != slot and list(held) == [again]

    asyncio.run(live())


def test_an_unreachable_server_and_an_invalid_address(
    over_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = resolve_worker(WORKER, "pool.yaml", tmp_path)
    over_redis.stop()
    with pytest.raises(LimitsUnavailable, match="no worker is called"):
        asyncio.run(handle.queue.enter("call", 10))
    over_redis.start()
    assert asyncio.run(handle.queue.enter("call", 10)).slot == 1
    monkeypatch.setenv("PODIUM_LIMITS_URL", "http://:secret@host")
    with pytest.raises(ConfigError, match="not an address of a Redis") as told:
        resolve_worker(WORKER, "pool.yaml", tmp_path)
    assert "secret" not in str(told.value)
    assert not list(tmp_path.iterdir()), "no files of one machine's limits"
