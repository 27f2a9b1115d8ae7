"""Fixtures: the fault server, and clients on files of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.cache import ResponseCache
from ops.spending.ledger import Ledger
from ops.workers.call import Account
from ops.workers.client import WorkerClient
from tests.faults.remote import FaultServer


@pytest.fixture
def server(tmp_path: Path, litellm_at_hand: None) -> Iterator[FaultServer]:
    with FaultServer(tmp_path) as running:
        yield running


@pytest.fixture
def make_client(tmp_path: Path) -> Iterator[Callable[..., WorkerClient]]:
    made: list[WorkerClient] = []

    def make(cap_usd: float = 10.0, run: str = "run", **settings: Any) -> WorkerClient:
        cache, ledger = ResponseCache(tmp_path / "cache"), Ledger(tmp_path / "ledger.sqlite")
        made.append(WorkerClient(cache, ledger, Account(run, "test", cap_usd), **{"backoff_s": 0.01, **settings}))
        return made[-1]

    yield make
    for client in made:
        client.cache.close()
        client.ledger.close()
