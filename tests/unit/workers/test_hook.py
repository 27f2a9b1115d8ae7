"""A provider that LiteLLM does not know, by a hook: its calls have the limits, retries, cache and cost of any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from ops.core.errors import ConfigError, WorkerRefused, WorkerUnreachable
from ops.core.response import Message
from ops.workers.hook import HOOKS, ProviderHook, custom_providers
from ops.workers.providers import litellm
from ops.workers.unsent import unsent

ASK = [{"role": "user", "content": "What is 2+2?"}]


async def post(
    model: str, messages: list[Message], settings: dict[str, Any], *, api_base: str | None, api_key: str | None,
    timeout_s: float | None,
) -> Mapping[str, Any]:  # fmt: skip
    """Ask the loopback server in its own form."""
    body = {"model": model, "messages": messages, **settings}
    async with httpx.AsyncClient(timeout=timeout_s) as client:
        reply = await client.post(
            f"{api_base}/chat/completions", json=body, headers={"authorization": f"Bearer {api_key}"}
        )
    reply.raise_for_status()
    said: dict[str, Any] = reply.json()
    return {name: said[name] for name in ("choices", "usage")}


@pytest.fixture
def worker(loopback: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker of the provider `acme`, whose hook is registered."""
    monkeypatch.setattr(HOOKS, "entries", {"acme": ProviderHook("acme", post)})
    monkeypatch.setattr(litellm(), "custom_provider_map", custom_providers(litellm()))
    return loopback.worker(model="acme/large", top_k=7, extra_body={"depth": 2}, retries=1)


def ask(client: Any, worker: Any) -> Any:
    return asyncio.run(client.complete(worker, ASK))


def test_settings_and_key_reach_it_and_the_answer_is_priced_and_cached(
    worker: Any, loopback: Any, make_client: Any
) -> None:
    client = make_client()
    assert unsent(worker, "pool.yaml") == []
    response = ask(client, worker)
    assert (response.text, response.finish_reason) == ("Answer: 4", "stop")
    assert response.cost_usd == pytest.approx((10 * 1.0 + 5 * 2.0) / 1e6) == client.ledger.spent("run")
    [sent] = loopback.requests
    assert {name: sent[name] for name in ("model", "top_k", "max_tokens", "temperature", "extra_body")} == {
        "model": "large", "top_k": 7, "max_tokens": 64, "temperature": 0.2, "extra_body": {"depth": 2},
    }  # fmt: skip
    assert "max_retries" not in sent and loopback.keys[0].startswith("sk-loopback")
    assert ask(client, worker).cached and len(loopback.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(status: int, worker: Any, loopback: Any, make_client: Any) -> None:
    loopback.plan = [status]
    assert (ask(make_client(), worker).retries, len(loopback.requests)) == (1, 2)


@pytest.mark.parametrize(
    ("status", "says", "error", "words"),
    [
        (401, "no such key", ConfigError, "refused the key in LOOPBACK_KEY"),
        (404, "no model large", ConfigError, "does not serve 'acme/large'"),
        (400, "content management policy", WorkerRefused, "refused the content"),
        (503, "away", WorkerUnreachable, "no response after 2 attempts"),
    ],
)
def test_a_lasting_failure_is_named_as_any_providers(
    status: int, says: str, error: type[Exception], words: str, worker: Any, loopback: Any, make_client: Any
) -> None:
    step = json.dumps({"status": status, "body": {"error": {"message": says}}, "headers": {}})
    loopback.plan = [step, step]
    with pytest.raises(error, match=words):
        ask(make_client(), worker)


def test_an_unknown_provider_is_refused_with_both_ways(loopback: Any, make_client: Any) -> None:
    with pytest.raises(ConfigError, match=r"does not begin with a provider that LiteLLM knows.*ops/workers/hooks"):
        ask(make_client(), loopback.worker(model="unheard-of/large"))
