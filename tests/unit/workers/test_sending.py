"""A call is marked as sent when its connection stands, before its request is written, at every named provider."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ops.workers.litellm_private import SESSION_PROVIDERS, can_take_session
from ops.workers.providers import import_litellm, provider_error
from ops.workers.session import run_before_sending, session_arguments

BEDROCKS = "anthropic.claude-3-haiku-20240307-v1:0"
MODELS = {"bedrock": BEDROCKS, "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}


@pytest.fixture(scope="module")
def provider() -> Iterator[tuple[str, list[str]]]:
    """A server that answers any request, and the events so far."""
    events: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            events.append("came")
            raw = json.dumps({"error": {"message": "no"}}).encode()
            self.send_response(400)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", events
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", sorted(SESSION_PROVIDERS))
def test_a_call_goes_through_our_session(
    provider: tuple[str, list[str]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, events = provider
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "none")
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")
    model = f"{name}/{MODELS.get(name, 'some-model')}"
    events.clear()

    async def mark() -> None:
        await asyncio.sleep(0.01)
        events.append("marked")

    async def call() -> None:
        way = await session_arguments(model)
        with run_before_sending(mark), suppress(provider_error()):
            await import_litellm().acompletion(
                model=model, messages=[{"role": "user", "content": "hi"}], max_retries=0, api_base=url, api_key="k",
                **way,
            )  # fmt: skip

    asyncio.run(call())
    assert can_take_session(model)
    assert events[:2] == ["marked", "came"]


@pytest.mark.parametrize("model", ["azure/gpt-4o", "vertex_ai/gemini-2.5-pro", "nobody/knows", "openai/gpt-5-codex"])
def test_other_calls_are_marked_before_litellm_prepares_them(model: str) -> None:
    assert not can_take_session(model)
