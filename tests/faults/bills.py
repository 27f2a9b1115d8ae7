"""Ways in which providers bill more, or less, than two counts of tokens at two rates, each with its bill."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ops.core.errors import OverBudget
from ops.core.response import Response
from tests.faults.claims import counts
from tests.faults.remote import FaultServer, client_in, user

TEXT = "word " * 360
"""The answer of every reply, which has more tokens than the reply's provider may claim too few of."""


@dataclass(frozen=True)
class Case:
    """Replies with this usage and these further fields, and what the provider bills for one of them."""

    model: str
    cap_usd: float
    usage: dict[str, Any]
    billed: dict[str, int]
    """LiteLLM's name of a rate → the tokens that are billed at it."""
    reply: dict[str, Any] = field(default_factory=dict)
    extra_body: dict[str, Any] = field(default_factory=dict)
    prompt_chars: int = 400
    max_tokens: int = 1000

    def usd(self) -> float:
        """Return the bill of one reply at the rates of LiteLLM's table."""
        from ops.workers.litellm_private import read_model_table

        table = read_model_table()
        entry = table.get(self.model) or table[self.model.partition("/")[2]]
        return float(sum(tokens * entry[name] for name, tokens in self.billed.items()))


CASES = {
    "cache writes at 1.25 × input": Case(
        "openai/gpt-6-sol", 0.20,
        counts(9000, 400, total_tokens=9400, prompt_tokens_details={"cache_write_tokens": 8900, "cached_tokens": 0}),
        {"input_cost_per_token": 100, "cache_creation_input_token_cost": 8900, "output_cost_per_token": 400},
        prompt_chars=9000,
    ),
    "service tier \"priority\"": Case(
        "openai/gpt-5", 0.30,
        counts(400, 900, total_tokens=1300),
        {"input_cost_per_token_priority": 400, "output_cost_per_token_priority": 900},
        reply={"service_tier": "priority"}, extra_body={"service_tier": "priority"},
    ),
    "service tier \"priority\" by the account's settings": Case(
        "openai/gpt-5", 0.30,
        counts(400, 900, total_tokens=1300),
        {"input_cost_per_token_priority": 400, "output_cost_per_token_priority": 900},
        reply={"service_tier": "priority"},
    ),
    "reasoning beside the completion": Case(
        "openai/gpt-5", 0.10,
        counts(400, 480, total_tokens=1350, completion_tokens_details={"reasoning_tokens": 470}),
        {"input_cost_per_token": 400, "output_cost_per_token": 950},
    ),
    "reasoning at a rate of its own": Case(
        "dashscope/qwen-plus-2025-04-28", 0.05,
        counts(400, 950, total_tokens=1350, completion_tokens_details={"reasoning_tokens": 500}),
        {"input_cost_per_token": 400, "output_cost_per_token": 450, "output_cost_per_reasoning_token": 500},
    ),
    "cached input": Case(
        "openai/gpt-5", 0.30,
        counts(3000, 360, total_tokens=3360, prompt_tokens_details={"cached_tokens": 2900}),
        {"input_cost_per_token": 100, "cache_read_input_token_cost": 2900, "output_cost_per_token": 360},
        prompt_chars=3000,
    ),
    "a cost that the provider states": Case(
        "openai/gpt-5", 0.30,
        counts(400, 360, total_tokens=760, cost=0.006),
        {}, max_tokens=1000,
    ),
}  # fmt: skip


class Booked(NamedTuple):
    """The sum of a run that ended at its cap: what the ledger booked, and what the provider bills (USD)."""

    calls: int
    booked_usd: float
    billed_usd: float


def spend(case: Case, server: FaultServer, folder: Path, most_calls: int = 60, together: int = 4) -> Booked:
    """Ask until the cap is reached, and return what was booked and what the provider bills."""
    choice = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "some-model", "choices": [choice]}
    whole = json.dumps({"status": 200, "body": body | {"usage": case.usage} | case.reply})
    server.order(plan=[whole] * most_calls)
    client = client_in(folder, case.cap_usd)
    worker = server.worker(
        model=case.model, price=None, model_in_replies="some-model", extra_body=case.extra_body,
        max_tokens=case.max_tokens, retries=0, concurrency=together, temperature=None,
    )  # fmt: skip
    prompts = [user(f"{number:04}".ljust(case.prompt_chars, "x")) for number in range(most_calls)]

    async def every() -> Sequence[object]:
        return await asyncio.gather(*(client.complete(worker, each) for each in prompts), return_exceptions=True)

    results = asyncio.run(every())
    refused = [result for result in results if not isinstance(result, Response | OverBudget)]
    assert not refused, refused[0]
    calls = len(server.came())
    usd = case.usage.get("cost") or case.usd()
    return Booked(calls, client.ledger.total_usd("run"), calls * usd)
