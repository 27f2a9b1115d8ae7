"""Fixtures: the fault server, and clients on files of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.workers.client import WorkerClient
from tests.faults.remote import FaultServer, client_in

MakeClient = Callable[..., WorkerClient]


@pytest.fixture
def server(tmp_path: Path, litellm_at_hand: None) -> Iterator[FaultServer]:
    with FaultServer(tmp_path) as running:
        yield running


@pytest.fixture
def make_client(tmp_path: Path) -> Iterator[MakeClient]:
    made: list[WorkerClient] = []

    def make(**settings: Any) -> WorkerClient:
        made.append(client_in(tmp_path, **settings))
        return made[-1]

    yield make
    for client in made:
        client.cache.close()
        client.ledger.close()
