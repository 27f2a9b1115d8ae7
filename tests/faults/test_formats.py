"""A reply of each provider's format that is not what it seems: status, reward, USD and the cache."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from ops.core.errors import PodiumError
from tests.faults.clients import MakeClient
from tests.faults.remote import ask, remote_worker
from tests.faults.wire import http, replying

pytestmark = pytest.mark.usefixtures("litellm_at_hand")
PAID_USD = (10 * 1.0 + 5 * 2.0) / 1e6


def anthropic(blocks: list[Any], reason: str | None) -> dict[str, Any]:
    return {
        "id": "x", "type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": reason,
        "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip


def gemini(parts: list[Any], reason: str | None) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    ended = {} if reason is None else {"finishReason": reason}
    return {"candidates": [candidate | ended], "usageMetadata": usage, "modelVersion": "m", "responseId": "x"}


def ollama(message: dict[str, Any], reason: str | None, *, done: bool = True) -> dict[str, Any]:
    return {
        "model": "m", "created_at": "2026-11-01T00:00:00Z", "done": done, "done_reason": reason,
        "message": {"role": "assistant", **message}, "prompt_eval_count": 10, "eval_count": 5,
    }  # fmt: skip


def openai(message: dict[str, Any], reason: object) -> dict[str, Any]:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


TEXT, HALF = {"type": "text", "text": "It is 4."}, {"type": "text", "text": "It is"}
PARTS: list[Any] = [{"type": "text", "text": "It is "}, {"type": "text", "text": "4."}]
TOOL = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
THOUGHT = {"type": "thinking", "thinking": "4?", "signature": "x"}
CALLS = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


class Case(NamedTuple):
    model: str
    reply: dict[str, Any]
    ends: str
    """The response's status, or a part of the error."""
    cached: bool = True


BROKEN = "broke off"
CASES = {
    "anthropic whole": Case("anthropic/m", anthropic([TEXT], "end_turn"), "answered"),
    "anthropic parts": Case("anthropic/m", anthropic(PARTS, "end_turn"), "answered"),
    "anthropic cut": Case("anthropic/m", anthropic([HALF], "max_tokens"), "cut"),
    "anthropic window": Case("anthropic/m", anthropic([HALF], "model_context_window_exceeded"), "cut"),
    "anthropic refusal": Case("anthropic/m", anthropic([], "refusal"), "declined"),
    "anthropic refusal, half a text": Case("anthropic/m", anthropic([HALF], "refusal"), "declined"),
    "anthropic tool": Case("anthropic/m", anthropic([TOOL], "tool_use"), "tool_calls"),
    "anthropic thought": Case("anthropic/m", anthropic([THOUGHT], "end_turn"), "reasoning"),
    "anthropic thought, cut": Case("anthropic/m", anthropic([THOUGHT], "max_tokens"), "cut"),
    "anthropic pause": Case("anthropic/m", anthropic([HALF], "pause_turn"), BROKEN, cached=False),
    "anthropic error": Case("anthropic/m", anthropic([HALF], "error"), BROKEN, cached=False),
    "anthropic no reason": Case("anthropic/m", anthropic([HALF], None), BROKEN, cached=False),
    "gemini whole": Case("gemini/m", gemini([{"text": "It is "}, {"text": "4."}], "STOP"), "answered"),
    "gemini cut": Case("gemini/m", gemini([{"text": "It is"}], "MAX_TOKENS"), "cut"),
    "gemini tool": Case("gemini/m", gemini([{"functionCall": {"name": "f", "args": {}}}], "STOP"), "tool_calls"),
    "gemini unexpected tool": Case("gemini/m", gemini([], "UNEXPECTED_TOOL_CALL"), "tool_calls"),
    "gemini thought": Case("gemini/m", gemini([{"text": "4?", "thought": True}], "STOP"), "reasoning"),
    "gemini safety": Case("gemini/m", gemini([{"text": "It is"}], "SAFETY"), "content filter"),
    "gemini other": Case("gemini/m", gemini([{"text": "It is"}], "OTHER"), BROKEN, cached=False),
    "gemini malformed": Case("gemini/m", gemini([{"text": "It is"}], "MALFORMED_RESPONSE"), BROKEN, cached=False),
    "gemini unspecified": Case("gemini/m", gemini([HALF], "FINISH_REASON_UNSPECIFIED"), BROKEN, cached=False),
    "gemini no reason": Case("gemini/m", gemini([{"text": "It is"}], None), BROKEN, cached=False),
    "ollama whole": Case("ollama_chat/m", ollama({"content": "It is 4."}, "stop"), "answered"),
    "ollama thought": Case("ollama_chat/m", ollama({"content": "", "thinking": "4?"}, "stop"), "reasoning"),
    "ollama marks": Case("ollama_chat/m", ollama({"content": "4?</think>It is 4.<|im_end|>"}, "stop"), "answered"),
    "ollama not done": Case("ollama_chat/m", ollama({"content": "It is"}, None, done=False), BROKEN, cached=False),
    "ollama abort": Case("ollama_chat/m", ollama({"content": "It is"}, "abort"), BROKEN, cached=False),
    "mistral parts": Case("mistral/m", openai({"content": PARTS}, "stop"), "answered"),
    "vllm parts": Case("hosted_vllm/m", openai({"content": [*PARTS[:1], "4."]}, "stop"), "answered"),
    "vllm abort": Case("hosted_vllm/m", openai({"content": "It is"}, "abort"), BROKEN, cached=False),
    "vllm refusal": Case("hosted_vllm/m", openai({"content": None, "refusal": "No."}, "stop"), "declined"),
    "vllm reason as an object": Case("hosted_vllm/m", openai({"content": "It is 4."}, {"type": "stop"}), "answered"),
    "groq abort": Case("groq/m", openai({"content": "It is"}, "abort"), BROKEN, cached=False),
    "openrouter tools": Case("openrouter/m", openai({"content": None, "tool_calls": CALLS}, "stop"), "tool_calls"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_status_usd_and_cache_of_a_reply(make_client: MakeClient, name: str) -> None:
    case, client = CASES[name], make_client(cap_usd=1.0)
    with replying(http("200 OK", case.reply)) as (port, came):
        base = f"http://127.0.0.1:{port}{'' if case.model.startswith(('anthropic', 'gemini', 'ollama')) else '/v1'}"
        worker = remote_worker("http://unused", model=case.model, api_base=base, retries=0, breaker_failures=9)
        for _ in range(2):
            try:
                response = ask(client, worker)
            except PodiumError as error:
                assert case.ends in str(error)
            else:
                assert response.status == case.ends
                assert response.text == ("It is 4." if case.ends == "answered" else response.text)
                assert response.is_blank == (case.ends in ("declined", "tool_calls", "reasoning") or "thought" in name)
        calls = sum(b"messages" in request or b"contents" in request for request in came)
    assert (calls, len(client.cache)) == ((1, 1) if case.cached else (2, 0))
    assert client.ledger.total_usd("run") == pytest.approx(PAID_USD * calls)
    assert client.ledger.count_in_flight("run") == 0
