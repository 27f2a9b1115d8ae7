"""An OpenAI-compatible worker on loopback whose answers take a stated mean latency and hardly any CPU time.

A benchmark of callers on the same cores would otherwise measure the worker.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_RANDOM = random.Random(0)


@contextmanager
def fast_worker(latency_s: float, prompt_tokens: int = 10) -> Iterator[str]:
    """Start the worker in a process of its own; give its URL. Latencies are uniform between half and one and a half of
    `latency_s`; each prompt is billed as `prompt_tokens`."""
    command = [sys.executable, "-m", "tests.bench.fast_worker", str(latency_s), str(prompt_tokens)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate(timeout=60)


def _answer(prompt_tokens: int) -> bytes:
    body = json.dumps(
        {
            "id": "a", "object": "chat.completion", "created": 0, "model": "some-model",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}}],
            "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 5, "total_tokens": prompt_tokens + 5},
        }
    ).encode()  # fmt: skip
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


class _Connection(asyncio.Protocol):
    """Answers each request of a connection with `answer`, about `latency_s` after its last byte."""

    def __init__(self, latency_s: float, answer: bytes) -> None:
        self._latency_s, self._answer, self._received = latency_s, answer, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]):
            self._received = b""
            asyncio.get_running_loop().call_later(self._latency_s * _RANDOM.uniform(0.5, 1.5), self._reply)

    def _reply(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._answer)  # type: ignore[attr-defined]


async def main(latency_s: float, prompt_tokens: int) -> None:
    answer = _answer(prompt_tokens)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(latency_s, answer), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), int(sys.argv[2])))
