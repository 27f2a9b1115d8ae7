"""The effect of a misbehaving provider on run, ledger, cap and cache.

`python -m tests.faults.misbehaving` prints two tables: every reply of `CASES` over real HTTP, in a run and in the one
that resumes it; and the treatment of each claim of usage (`tests.faults.claims`).
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ops.cache import ResponseCache
from ops.conductor.rollout import Rollout, roll_out
from ops.config import Prompting
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.spending.ledger import Ledger
from ops.workers.call import Account
from ops.workers.client import WorkerClient
from ops.workflow.grammar import Workflow
from ops.workflow.team import Team
from tests.faults.claims import table
from tests.faults.provider_errors import SENT
from tests.faults.remote import FaultServer

ATTEMPTS = 3
"""Attempts of one call that is retried."""
CAP_USD = 0.01
PAID_USD = 2e-5
"""USD of one reply of the fault server at its worker's prices."""
PROBLEM = Problem(
    id="1", benchmark="rlpr", domain="rlpr", split="train", grader="text", question="Who wrote it?", answer="Nobody"
)


def says(content: str | None, finish_reason: str, **fields: Any) -> str:
    """Return the order for a message with that text and further fields."""
    return json.dumps({"says": {"content": content, "finish_reason": finish_reason, **fields}})


def sends(status: int, message: str, headers: dict[str, str] | None = None, **error: Any) -> str:
    """Return the order for an error of that status."""
    body = {"error": {"message": message, "type": "invalid_request_error", **error}}
    return json.dumps({"status": status, "body": body, "headers": headers or {}})


class Case(NamedTuple):
    """A reply, and the required result of the call."""

    name: str
    order: str
    ends: str
    """The rollout's status and reward, or the error that stops the run."""
    attempts: int = 1
    paid: int = 0
    """Replies that are booked."""
    cached: int = 0
    waits: bool = False
    """The resumed run does not call at once."""


class Seen(NamedTuple):
    """The result of one case."""

    ends: str
    attempts: int
    paid: int
    open_reservations: int
    cached: int
    resumed: str
    """What the resumed run did: its requests, or its wait."""


_EMPTY, _REJECTED = "empty, reward 0.5", "rejected, reward 0.5"
_AWAY = "unreachable, reward None"
CASES = (
    Case("empty, length", says("", "length"), _EMPTY, paid=1, cached=1),
    Case("null, length", says(None, "length"), _EMPTY, paid=1, cached=1),
    Case("blank, length", says(" \n\t\u2003", "length"), _EMPTY, paid=1, cached=1),
    Case("reasoning alone, length", says("", "length", reasoning_content="I think"), _EMPTY, paid=1, cached=1),
    Case("empty, stop", says("", "stop"), _EMPTY, attempts=3, paid=3, cached=1),
    Case("blank, stop", says("\n\n", "stop"), _EMPTY, attempts=3, paid=3, cached=1),
    Case("no choices", "empty choices", _AWAY, attempts=3, paid=3),
    Case("content filter", says("", "content_filter"), "refused, reward 0.5", paid=1, cached=1),
    Case("content filter, half an answer", says("It is", "content_filter"), "refused, reward 0.5", paid=1, cached=1),
    Case("lone surrogate in the text", says("It is \ud83d.", "stop"), "answered, reward 0.5", paid=1, cached=1),
    Case("lone surrogate in finish_reason", says("yes", "st\udc00p"), "answered, reward 0.5", paid=1, cached=1),
    Case("lone surrogate in an error", sends(400, "no \ud83d"), _REJECTED),
    Case("400 unknown words", sends(400, "The stars are not right."), _REJECTED),
    Case("400 parameter", sends(400, "Unsupported value", param="temperature"), _REJECTED),
    Case("400 Gemini, empty text", sends(400, "contents[1].parts[0].data: required oneof field"), _REJECTED),
    Case("422", sends(422, "Failed to deserialize"), _REJECTED),
    Case("400 balance", sends(400, "Your account balance is insufficient."), "AccountError"),
    Case("400 credit", sends(400, "Your credit balance is too low."), "AccountError"),
    Case("402", sends(402, "Payment Required"), "AccountError"),
    Case("429 quota", sends(429, "Exceeded", code="insufficient_quota"), "AccountError"),
    Case("400 key", sends(400, "API key not valid."), "ConfigError"),
    Case("401", sends(401, "who are you"), "ConfigError"),
    Case("403", sends(403, "not yours"), "ConfigError"),
    Case("400 model", sends(400, "Model Not Exist"), "ConfigError"),
    Case("400 model id", sends(400, "gpt-9 is not a valid model ID"), "ConfigError"),
    Case("404", sends(404, "The model `m` does not exist"), "ConfigError"),
    Case("400 context", sends(400, "prompt is too long: 9 tokens > 8 maximum"), "too_long, reward 0.5"),
    Case("500", sends(500, "oops"), _AWAY, attempts=3),
    Case("503", sends(503, "later"), _AWAY, attempts=3),
    *(
        Case(f"429 Retry-After {value}", sends(429, "slow", {"retry-after": value}), _AWAY, attempts=1, waits=True)
        for value in ("inf", "nan", "-5", "9999999999", "Fri, 31 Dec 99999 23:59:59 GMT", "soon")
    ),
)


def observe(server: FaultServer, folder: Path, case: Case) -> Seen:
    """Run one rollout against a server with the case's behaviour, and resume it with the same files."""
    before = _requests(server)
    worker = server.worker(retries=0 if case.waits else ATTEMPTS - 1, breaker_failures=100, timeout_s=60)
    server.order(plan=[case.order] * 20)
    first = _client(folder)
    ends = _ends(first, worker)
    attempts = _requests(server) - before
    paid = first.ledger.spent("run") / PAID_USD
    seen = (ends, attempts, round(paid), first.ledger.in_flight("run"), len(first.cache))
    server.order(plan=[])
    second = _client(folder)
    try:
        again = _ends(second, worker, limit_s=0.5 if case.waits else None)
    finally:
        for client in (first, second):
            client.cache.close()
            client.ledger.close()
    asked = _requests(server) - before - attempts
    return Seen(*seen, again if again == "waits" else f"{asked} requests")


def _requests(server: FaultServer) -> int:
    return Counter(entry["event"] for entry in server.log())["came"]


def _client(folder: Path) -> WorkerClient:
    cache, ledger = ResponseCache(folder / "cache"), Ledger(folder / "ledger.sqlite")
    return WorkerClient(cache, ledger, Account("run", "test", CAP_USD), pool_file="pool.yaml", backoff_s=0.01)


def _ends(client: WorkerClient, worker: Any, limit_s: float | None = None) -> str:
    async def run() -> list[Rollout]:
        async with asyncio.timeout(limit_s):
            return await roll_out([Workflow.single(0).render()], [PROBLEM], Team([worker], client, Prompting()))

    try:
        [rollout] = asyncio.run(run())
    except TimeoutError:
        return "waits"
    except PodiumError as error:
        str(error).encode()
        return type(error).__name__
    assert rollout.trace is not None
    json.dumps(rollout.trace.as_row(), ensure_ascii=False).encode()
    return f"{rollout.trace.status}, reward {rollout.reward}"


def main() -> None:
    """Print the tables."""
    print(f"| reply | run | attempts | booked | USD of a cap of ${CAP_USD} | reserved after | cached | resumed run |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    cases = [*CASES, *(Case(f"{sent.name}", sent.step, "", waits=sent.meaning == "later") for sent in SENT)]
    for case in cases:
        with tempfile.TemporaryDirectory() as name, FaultServer(Path(name)) as server:
            seen = observe(server, Path(name), case)
        usd = f"{seen.paid * PAID_USD:.6f}"
        cells = [case.name, seen.ends, seen.attempts, seen.paid, usd, seen.open_reservations, seen.cached, seen.resumed]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print()
    os.environ["REMOTE_KEY"] = "nothing"
    for line in table():
        print(line, flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
