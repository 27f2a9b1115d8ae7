"""Claims of usage that a provider may make, and their treatment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.cache import ResponseCache
from ops.core.errors import PodiumError
from ops.spending.ledger import Ledger
from ops.workers.call import Account
from ops.workers.client import WorkerClient
from ops.workers.providers import most_tokens
from tests.faults.remote import FaultServer

ASK = [{"role": "user", "content": "What is 2+2?"}]
MOST = most_tokens(ASK)
ANSWER = "The answer is 4."
CAP = 0.01


def reply(usage: object, text: str = ANSWER, finish_reason: str = "stop") -> str:
    """Return an order for the server: a whole answer with that usage; "none": without one."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "some-model", "choices": [choice]}
    return json.dumps({"status": 200, "body": body if usage == "none" else body | {"usage": usage}})


def counts(prompt: object, completion: object, **more: object) -> dict[str, object]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


IMPOSSIBLE = {
    "negative prompt": (counts(-500, 5), "-500 prompt tokens", (MOST, 5)),
    "negative completion": (counts(10, -12_990_000), "-12990000 completion tokens", (10, 64)),
    "10^9 completion": (counts(10, 10**9), "1000000000 completion tokens", (10, 64)),
    "10^9 prompt": (counts(10**9, 5), "1000000000 prompt tokens", (MOST, 5)),
    "2^63": (counts(2**63, 5), "9223372036854775808 prompt tokens", (MOST, 5)),
    "600 digits": (counts(10, int("9" * 600)), "999999999999999999999999… completion tokens", (10, 64)),
    "both": (counts(-1, -1), "-1 prompt tokens", (MOST, 64)),
    "hidden reasoning of 10^6": (
        counts(10, 5, completion_tokens_details={"reasoning_tokens": 10**6}), "1000005 completion tokens", (10, 64)
    ),
}  # fmt: skip
OTHERS = {
    "honest": counts(10, 5), "none": "none", "null": None, "no counts": {"total_tokens": 15}, "zeros": counts(0, 0),
    "strings of digits": counts("10", "5"), "true": counts(True, True), "words": counts("ten", 5),
    "a fraction": counts(10.7, 5), "cached 10^9": counts(10, 5, prompt_tokens_details={"cached_tokens": 10**9}),
}  # fmt: skip
LONG = "The answer follows from the sum of both sides. " * 4
"""188 characters."""
TEN_TIMES = "word " * 640
OVERLONG = {
    "ignores max_tokens, honest": counts(10, 640), "ignores max_tokens, none": "none",
    "ignores max_tokens, lies": counts(10, 5),
}  # fmt: skip


def table() -> Iterator[str]:
    """Return one line of Markdown per claim: two calls over HTTP, at a cap of 1 cent and max_tokens of 64."""
    yield "| claim | run | calls sent | booked tokens | ledger, USD | lost | open | cached |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    orders = {name: reply(claim) for name, (claim, _, _) in IMPOSSIBLE.items()}
    orders |= {name: reply(claim) for name, claim in OTHERS.items()}
    orders |= {"5 tokens for 188 characters": reply(counts(10, 5), LONG)}
    orders |= {name: reply(claim, TEN_TIMES) for name, claim in OVERLONG.items()}
    with TemporaryDirectory() as folder, FaultServer(Path(folder)) as server:
        for name, order in orders.items():
            yield asyncio.run(_line(name, order, server, Path(folder) / name.replace("/", "")))


async def _line(name: str, order: str, server: FaultServer, folder: Path) -> str:
    cache, ledger = ResponseCache(folder / "cache"), Ledger(folder / "ledger.sqlite")
    client = WorkerClient(cache, ledger, Account("run", "test", CAP), pool_file="pool.yaml", backoff_s=0.01)
    worker = server.worker(api_key_env="REMOTE_KEY", retries=1)
    before = len(server.log())
    server.order(plan=[order] * 4)
    outcomes = []
    for sample in range(2):
        try:
            outcomes.append((await client.complete(worker, ASK, sample=sample)).text[:16])
        except PodiumError as error:
            outcomes.append(f"{type(error).__name__}: {str(error)[:110]}…")
    server.order(plan=[])
    came = sum(entry["event"] == "came" for entry in server.log()[before:])
    spent = ledger.by_run()["run"]
    run = outcomes[0] if outcomes[0] == outcomes[1] else " / ".join(outcomes)
    figures = (came, f"{spent.prompt_tokens} + {spent.completion_tokens}", f"{spent.usd:.6f}", spent.lost)
    line = f"| {name} | {run} | {' | '.join(map(str, figures))} | {ledger.in_flight('run')} | {len(cache)} |"
    cache.close()
    ledger.close()
    return line

