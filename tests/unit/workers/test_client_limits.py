"""A worker's limits and the run's cap, as a client keeps them against a real server on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

from ops.core.errors import OverBudget

ASK = [{"role": "user", "content": "2+2?"}]


def test_concurrency_is_kept(loopback: Any, make_client: Any) -> None:
    client, worker = make_client(), loopback.worker(concurrency=3)
    loopback.delay_s = 0.03

    async def many() -> None:
        await asyncio.gather(*(client.complete(worker, ASK, sample=s) for s in range(20)))

    asyncio.run(many())
    assert len(loopback.requests) == 20
    assert loopback.most_busy == 3


def test_requests_per_minute_space_the_calls(loopback: Any, make_client: Any) -> None:
    client, worker = make_client(), loopback.worker(requests_per_minute=300)
    asyncio.run(client.complete(worker, ASK, sample=9))  # LiteLLM's first call takes its time
    loopback.times.clear()

    async def many() -> None:
        await asyncio.gather(*(client.complete(worker, ASK, sample=s) for s in range(5)))

    asyncio.run(many())
    assert loopback.times[-1] - loopback.times[0] >= 0.6


def test_the_cap_holds_under_200_concurrent_calls_and_the_rest_is_told(loopback: Any, make_client: Any) -> None:
    worker = loopback.worker(concurrency=200, max_tokens=5)
    each = (10 * 1.0 + 5 * 2.0) / 1e6
    cap = 30 * each
    client = make_client(cap_usd=cap)

    async def many() -> list[Any]:
        calls = (client.complete(worker, ASK, sample=s) for s in range(200))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(many())
    answered = [r for r in results if not isinstance(r, BaseException)]
    refused = [r for r in results if isinstance(r, OverBudget)]
    assert len(answered) + len(refused) == 200
    assert len(answered) == len(loopback.requests)
    assert 0 < client.ledger.spent("run") <= cap + 1e-12
    # What is left over is less than one more call's worst case: waiting for it was worth while.
    assert len(answered) >= 24
    more = make_client(cap_usd=10.0)
    asyncio.run(more.complete(worker, ASK, sample=199))


def test_a_reservation_waits_for_what_a_call_in_flight_leaves_over(loopback: Any, make_client: Any) -> None:
    worker = loopback.worker(max_tokens=1000)  # worst case 2e-3 USD and a little, real cost 2e-5
    client = make_client(cap_usd=2.2e-3)
    loopback.delay_s = 0.05

    async def two() -> list[Any]:
        return await asyncio.gather(*(client.complete(worker, ASK, sample=s) for s in range(2)))

    assert len(asyncio.run(two())) == 2
    assert loopback.most_busy == 1
