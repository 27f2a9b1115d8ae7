"""A real OpenAI-compatible server on loopback that fails on command, and clients that ask it."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ops.cache import ResponseCache
from ops.config import Worker
from ops.spending.ledger import Ledger
from ops.workers.call import Account
from ops.workers.client import WorkerClient


class Loopback:
    """The server: `plan` holds what the next requests meet ("ok" when empty), `requests` what came in."""

    def __init__(self) -> None:
        self.plan: deque[str] = deque()
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        self.said = ""
        """What its errors say; "": they quote key and prompt."""
        self.delay_s = 0.0
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"loopback": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def worker(self, **settings: Any) -> Worker:
        values = {
            "name": "remote", "model": "openai/some-model", "api_base": self.url,
            "api_key_env": "LOOPBACK_KEY", "price": {"input": 1.0, "output": 2.0},
            "max_tokens": 64, "timeout_s": 30.0,
        }  # fmt: skip
        return Worker.model_validate(values | settings)


class _Handler(BaseHTTPRequestHandler):
    loopback: Loopback
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.loopback
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with server.lock:
            server.requests.append(body)
            server.keys.append(self.headers.get("authorization", ""))
            server.times.append(time.monotonic())
            step = server.plan.popleft() if server.plan else "ok"
            server.busy += 1
            server.most_busy = max(server.most_busy, server.busy)
        try:
            time.sleep(server.delay_s)
            self._respond(step, body)
        finally:
            with server.lock:
                server.busy -= 1

    def _respond(self, step: str, body: dict[str, Any]) -> None:
        if step == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        if step.isdigit() or step.startswith("429 "):
            status, _, retry_after = step.partition(" ")
            headers = {"retry-after": retry_after} if retry_after else {}
            secret = f"bad key {self.headers.get('authorization')} for {json.dumps(body['messages'])}"
            said = self.loopback.said or secret
            self._send(int(status), {"error": {"message": said, "type": "x", "code": "some_code"}}, headers)
            return
        if step == "hang":
            time.sleep(1.5)
        message: dict[str, Any] = {"role": "assistant", "content": "Answer: 4"}
        reason = "stop"
        if step == "empty":
            message["content"] = ""
        elif step == "filtered":
            message["content"], reason = "", "content_filter"
        elif step == "truncated":
            reason = "length"
        elif step == "truncated empty":
            message["content"], reason = "", "length"
        choices = [] if step == "no choices" else [{"index": 0, "message": message, "finish_reason": reason}]
        reply = {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": choices,
        }
        if step != "no usage":
            reply["usage"] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        self._send(200, reply, {})

    def _send(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Keep the test output quiet."""


KEY = "sk-loopback-0123456789abcdefghijkl"


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch, litellm_at_hand: None) -> Iterator[Loopback]:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    server = Loopback()
    yield server
    server.close()


@pytest.fixture
def make_client(tmp_path: Path) -> Iterator[Any]:
    made: list[WorkerClient] = []

    def make(cap_usd: float = 10.0, run: str = "run", **settings: Any) -> WorkerClient:
        cache, ledger = ResponseCache(tmp_path / "cache"), Ledger(tmp_path / "ledger.sqlite")
        client = WorkerClient(cache, ledger, Account(run, "test", cap_usd), **{"backoff_s": 0.01, **settings})
        made.append(client)
        return client

    yield make
    for client in made:
        client.cache.close()
        client.ledger.close()
