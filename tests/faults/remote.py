"""The fault server as tests use it: started, controlled, its log read, killed; its orders, and clients that call it."""

from __future__ import annotations

import asyncio
import atexit
import json
import subprocess
import sys
import urllib.request
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from ops.config import Worker
from ops.core.messages import Message
from ops.core.response import Response
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from tests.faults.server import COMPLETION_TOKENS, PROMPT_TOKENS

PRICE = {"input": 1.0, "output": 2.0}
"""USD per million tokens, of every worker here."""
PAID_USD = (PROMPT_TOKENS * PRICE["input"] + COMPLETION_TOKENS * PRICE["output"]) / 1e6
"""USD of one reply of the fault server to a short question."""


def remote_worker(url: str, **settings: Any) -> Worker:
    """Return a worker at the server `url`, with these settings beside or in place of the usual ones."""
    values = {
        "name": "remote", "model": "openai/some-model", "api_base": f"{url}/v1", "price": PRICE,
        "max_tokens": 64, "timeout_s": 60.0,
    }  # fmt: skip
    return Worker.model_validate(values | settings)


def client_in(folder: Path, cap_usd: float = 10.0, run: str = "run", **settings: Any) -> WorkerClient:
    """Return a client whose cache and ledger are in `folder`."""
    cache, ledger = ResponseCache(folder / "cache"), Ledger(folder / "ledger.sqlite")
    return WorkerClient(cache, ledger, Account(run, "test", cap_usd), **{"backoff_s": 0.01, **settings})


def user(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def ask(client: WorkerClient, worker: Worker, text: str = "2+2?") -> Response:
    return asyncio.run(client.complete(worker, user(text)))


def left_behind(before: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Return the tasks that are new since `before` and not LiteLLM's own."""
    return [task for task in asyncio.all_tasks() - before if "LoggingWorker" not in repr(task)]


def says(content: object, finish_reason: str | None, **fields: Any) -> str:
    """Return the order for a message with that text and further fields."""
    return json.dumps({"says": {"content": content, "finish_reason": finish_reason, **fields}})


def sends(status: int, message: str, headers: dict[str, str] | None = None, **error: Any) -> str:
    """Return the order for an error of that status."""
    body = {"error": {"message": message, "type": "invalid_request_error", **error}}
    return json.dumps({"status": status, "body": body, "headers": headers or {}})


def order(url: str, **values: Any) -> dict[str, Any]:
    """Set `plan`, `rate`, `faults`, `latency_s`, `seed` of a server; returns `busy`, `most_busy`, `planned`."""
    request = urllib.request.Request(f"{url}/control", data=json.dumps(values).encode(), method="POST")
    with urllib.request.urlopen(request) as response:
        state: dict[str, Any] = json.load(response)
    return state


class Forks:
    """A process that forks a server at each request, because a fork takes milliseconds and an interpreter's start many
    more."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("server.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(self._process.communicate, timeout=60)  # it kills the remaining servers, and ends

    def request(self, *words: str) -> list[int]:
        """`start FILE` gives the new server's process and port; `kill PROCESS` gives the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        return [int(word) for word in self._process.stdout.readline().split()]


forks = lru_cache(maxsize=1)(Forks)


class FaultServer:
    """A context manager around the server's process; `order` controls it, `log` returns its actions."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "server.jsonl"
        self._pid = 0

    def __enter__(self) -> Self:
        self._pid, port = forks().request("start", str(self._log))
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it by SIGKILL, if it runs."""
        if self._pid:
            forks().request("kill", str(self._pid))
            self._pid = 0

    def order(self, **values: Any) -> dict[str, Any]:
        """Set its `plan`, `rate` and so on, as `order` does."""
        return order(self.url, **values)

    def log(self) -> list[dict[str, Any]]:
        """Return the requests and answers so far, up to the last answer that a client has received."""
        self.order()  # it answers only after it has written the line of its last reply
        written = self._log.read_text(encoding="utf-8").rpartition("\n")[0]  # the last line may be half written
        return [json.loads(line) for line in written.splitlines()]

    def came(self) -> list[dict[str, Any]]:
        """Return the requests so far."""
        return [entry for entry in self.log() if entry["event"] == "came"]

    def served(self) -> Counter[str]:
        """Return the number of complete answers, by prompt."""
        return Counter(entry["prompt"] for entry in self.log() if entry["event"] == "served")

    def worker(self, **settings: Any) -> Worker:
        return remote_worker(self.url, **settings)
