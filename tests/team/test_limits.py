"""A worker's limits in Redis: what `tests.faults.test_shared_limits` asks of one machine, of processes that share
nothing but the server; and the server away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ops.config import Worker
from ops.core.errors import ConfigError, LimitsUnavailable
from ops.workers.fleet import FleetLimits
from ops.workers.seat import take_seat
from tests.faults.conftest import server  # noqa: F401  (a fixture)
from tests.faults.test_shared_limits import (  # noqa: F401  (the same tests, over Redis)
    test_a_pause_that_the_provider_asks_one_for_is_kept_by_all,
    test_processes_together_keep_a_workers_concurrency,
    test_processes_together_keep_a_workers_requests_per_minute,
    test_who_has_little_to_ask_does_not_wait_for_who_has_much,
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
        gone, other = (FleetLimits(over_redis.url, "w", lease_s=0.6) for _ in range(2))
        first = await gone.take(1)
        waiting = asyncio.create_task(other.take(1))
        await asyncio.sleep(1.5)
        assert not waiting.done(), "a lease is renewed while its holder lives"
        with gone._leases.held() as held:
            held.clear()  # nothing renews it any more
        slot = await asyncio.wait_for(waiting, 60)
        other.give(slot)
        with gone._leases.held() as held:
            held[first] = "of long ago"
        gone.give(first)
        assert await asyncio.wait_for(other.take(1), 60)

    asyncio.run(live())


def test_a_wait_that_is_cancelled_leaves_nothing_behind(over_redis: Redis) -> None:
    async def live() -> None:
        limits = FleetLimits(over_redis.url, "w")
        slot = await limits.take(1)
        waiting = asyncio.create_task(limits.take(1))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert limits._head is None, "nobody stands at the head of the line"
        limits.give(slot)
        again = await asyncio.wait_for(limits.take(1), 60)
        with limits._leases.held() as held:
            assert again != slot and list(held) == [again]

    asyncio.run(live())


def test_a_server_that_is_away_and_an_address_that_is_none(
    over_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = take_seat(WORKER, "pool.yaml", tmp_path)
    over_redis.stop()
    with pytest.raises(LimitsUnavailable, match="nobody is asked"):
        asyncio.run(seat.limits.enter(10))
    over_redis.start()
    assert asyncio.run(seat.limits.enter(10)).slot == 1
    monkeypatch.setenv("PODIUM_LIMITS_URL", "http://:secret@host")
    with pytest.raises(ConfigError, match="no address of a Redis") as told:
        take_seat(WORKER, "pool.yaml", tmp_path)
    assert "secret" not in str(told.value)
    assert not list(tmp_path.iterdir()), "no files of one machine's limits"
