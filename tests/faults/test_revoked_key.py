"""A provider revokes the key in the middle of a run: it stops at once with a message, and continues with another
key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ops.core.errors import ConfigError
from ops.core.problem import Problem
from ops.precaching.precache import precache
from ops.workers.client import WorkerClient
from tests.faults.remote import FaultServer

PROBLEMS = [
    Problem(f"p{i}", "rlpr", "rlpr", "train", f"Number {i}: what is 2+2?", "4", "text") for i in range(60)
]


def test_a_key_is_revoked_in_the_middle_of_a_run(
    server: FaultServer, make_client: Callable[..., WorkerClient]
) -> None:
    worker, client = server.worker(concurrency=4, retries=0), make_client(pool_file="config/pools/own.yaml")
    server.order(plan=["ok"] * 20 + ["401"] * 200)
    with pytest.raises(ConfigError) as stopped:
        asyncio.run(precache(PROBLEMS, worker, client))
    assert "config/pools/own.yaml: workers.remote.api_key_env: the provider refused the key" in str(stopped.value)
    refused = 200 - server.order()["planned"]
    assert refused <= 2 * 4, "no question is begun after the first that was refused; eight were under way"
    assert len(client.cache) == 20
    server.order(plan=[])
    rows = asyncio.run(precache(PROBLEMS, worker, make_client()))
    assert [row.status for row in rows] == ["ok"] * 60
    assert max(server.served().values()) == 1, "an answer was paid for twice"
