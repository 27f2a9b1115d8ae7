"""A real OpenAI-compatible server on loopback that fails on request, and clients that call it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ops.config import Worker
from ops.core.messages import Message
from ops.core.response import Response
from ops.workers.client import WorkerClient
from tests.faults.clients import make_client as make_client
from tests.faults.clients import server as server
from tests.faults.remote import remote_worker
from tests.faults.server import Server

ASK = [{"role": "user", "content": "the-secret-question: 2+2?"}]


def ask(client: WorkerClient, worker: Worker, messages: Sequence[Message] = ASK, sample: int = 0) -> Response:
    return asyncio.run(client.complete(worker, messages, sample=sample))


def together(client: WorkerClient, worker: Worker, count: int, messages: Sequence[Message] = ASK) -> list[Any]:
    """Make calls of different samples at once, and return their responses or errors."""

    async def calls() -> list[Any]:
        every = (client.complete(worker, messages, sample=sample) for sample in range(count))
        return await asyncio.gather(*every, return_exceptions=True)

    return asyncio.run(calls())


class Loopback(Server):
    """The server of tests/faults in a thread: `plan` lists the faults of the next requests, `requests` has those
    received."""

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.loop = asyncio.new_event_loop()
        listening = asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=2048)
        self.listening = self.loop.run_until_complete(listening)
        self.url = f"http://127.0.0.1:{self.listening.sockets[0].getsockname()[1]}"
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        self.listening.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.01))
        self.loop.close()
        self.log.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await super().serve(reader, writer)
        finally:
            writer.close()

    def next_step(self) -> str:
        step = super().next_step()
        return STEPS.get(step, step)

    def note(self, event: str, body: dict[str, Any], step: str, key: str) -> None:
        if event == "came":
            self.requests.append(body)
            self.keys.append(key)
            self.times.append(time.monotonic())

    def worker(self, **settings: Any) -> Worker:
        return remote_worker(self.url, **{"api_key_env": "LOOPBACK_KEY", "timeout_s": 30.0} | settings)


STEPS = {
    "ok": json.dumps({"says": {"content": "Answer: 4"}}),
    "filtered": json.dumps({"says": {"content": "", "finish_reason": "content_filter"}}),
    "truncated": json.dumps({"says": {"content": "Answer: 4", "finish_reason": "length"}}),
    "truncated empty": json.dumps({"says": {"content": "", "finish_reason": "length"}}),
    "pause": json.dumps({"status": 429, "body": {}, "headers": {"retry-after": "0.6"}}),
}
"""Additional entries of `plan`, besides the faults and statuses of every fault server."""
KEY = "sk-loopback-0123456789abcdefghijkl"


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, litellm_at_hand: None) -> Iterator[Loopback]:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    server = Loopback(tmp_path / "server.jsonl")
    yield server
    server.close()


@pytest.fixture
def client(make_client: Callable[..., WorkerClient]) -> WorkerClient:
    return make_client()


@pytest.fixture
def worker(loopback: Loopback) -> Worker:
    return loopback.worker()
