"""An OpenAI-compatible server on loopback that fails on command and keeps its own log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import struct
import sys
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

FAULTS = (
    "429", "429 after", "500", "503", "hang", "reset", "reset mid-body", "truncated JSON", "empty choices",
    "empty text", "trickle", "wrong model", "401", "huge", "huge in chunks",
)  # fmt: skip
"""Its possible behaviours, besides a status of three digits and JSON: of a `status`, a `body` and `headers`, or of
`says`, a message's `content` and other fields with its `finish_reason`, and `choice`, further fields of its choice.
Anything else, for example "ok", is a whole answer ("echo": one that quotes all messages)."""
RETRY_AFTER_S = 0.3
HANG_S = 30.0
HUGE_BYTES = 50_000_000
PROMPT_TOKENS, COMPLETION_TOKENS = 10, 5
"""Token counts of short texts."""
_BLANK = "* GenerateContentRequest.contents[1].parts[0].data: required oneof field 'data' must have one initialized"
_ERROR = {"code": 400, "message": f"{_BLANK} field", "status": "INVALID_ARGUMENT"}
BLANK_REJECTED = json.dumps({"status": 400, "body": {"error": _ERROR}})
"""Gemini's reply to an empty message; the server sends it with `rejects_blank`."""

Reply = tuple[int, dict[str, str], bytes]


class Server:
    """Its state: the next behaviours, the rate of spontaneous failures, and the log."""

    def __init__(self, log: Path) -> None:
        self.plan: list[str] = []
        self.rate, self.faults, self.latency_s, self.status_s = 0.0, list(FAULTS), 0.0, 0.0
        self.rejects_blank = False
        self.random = random.Random(0)
        self.busy = self.most_busy = 0
        self.log = log.open("a", encoding="utf-8", buffering=1)

    def control(self, values: dict[str, Any]) -> dict[str, Any]:
        """Accept new orders (`plan`, `rate`, `faults`, `latency_s`, `seed`, `rejects_blank`); return the state."""
        if "seed" in values:
            self.random = random.Random(values.pop("seed"))
        for name, value in values.items():
            setattr(self, name, value)
        return {"busy": self.busy, "most_busy": self.most_busy, "planned": len(self.plan)}

    def next_step(self) -> str:
        if self.plan:
            return self.plan.pop(0)
        return self.random.choice(self.faults) if self.random.random() < self.rate else "ok"

    def note(self, event: str, body: dict[str, Any], step: str, key: str) -> None:
        """Write one line of the log: `came` before an answer begins, `served` when all of it was sent."""
        prompt = body["messages"][-1]["content"]
        entry = {"event": event, "prompt": prompt, "step": step, "key": key, "time": time.time()}
        if "response_format" in body:
            entry["response_format"] = body["response_format"]
        self.log.write(json.dumps(entry) + "\n")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, request after request."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1]
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                body = json.loads(await reader.readexactly(length))
                if path == b"/control":
                    await send(writer, reply(200, self.control(body)))
                    continue
                self.busy += 1
                self.most_busy = max(self.most_busy, self.busy)
                try:
                    await self.answer(body, key_in(head), writer)
                finally:
                    self.busy -= 1
        writer.close()

    async def answer(self, body: dict[str, Any], key: str, writer: asyncio.StreamWriter) -> None:
        """Apply the next behaviour to this request. Raises `ConnectionError` if the connection is to end."""
        step = self.next_step()
        if self.rejects_blank and not all(message["content"].strip() for message in body["messages"]):
            step = BLANK_REJECTED
        self.note("came", body, step, key)
        await asyncio.sleep(self.latency_s)
        if step == "hang":
            await asyncio.sleep(HANG_S)
        if step == "reset":
            await reset(writer)
        whole = answer(step, body, key)
        if step in ("huge", "huge in chunks"):
            await send_huge(writer, whole, chunked=step != "huge")
        elif step == "truncated JSON":
            await send(writer, (whole[0], whole[1], whole[2][: len(whole[2]) // 2]))
        elif step in ("reset mid-body", "trickle"):
            await send_slowly(writer, packed(whole), cut=step == "reset mid-body")
        else:
            await send(writer, whole)
            if whole[0] == 200 and step not in FAULTS:
                self.note("served", body, step, key)


def key_in(head: bytes) -> str:
    """Return the key of a request's `Authorization: Bearer …`; "" without one."""
    return head.lower().partition(b"authorization: bearer ")[2].split(b"\r\n", 1)[0].decode()


def answer(step: str, body: dict[str, Any], key: str) -> Reply:
    """Return the final reply of `step`. An error quotes prompt and key, as providers' errors do."""
    if step.startswith("{"):
        order = json.loads(step)
        if "says" not in order:
            return reply(order["status"], order["body"], order.get("headers"))
        reason = order["says"].pop("finish_reason", "stop")
        return completion(body, [choice_of(order["says"], reason) | order.get("choice", {})])
    if step[:3].isdigit():
        said = f"no, and you said {json.dumps(body['messages'])} with the key {key}"
        error = {"message": said, "type": "x", "code": "some_code"}
        headers = {}
        if step == "429 after":
            headers = {"retry-after": str(RETRY_AFTER_S)}
        elif step == "429 date":
            headers = {"retry-after": formatdate(time.time() + 2, usegmt=True)}
        return reply(int(step[:3]), {"error": error}, headers)
    texts = [message["content"] for message in body["messages"]]
    text = {"empty text": "", "echo": "\n".join(["You asked:", *texts])}.get(step, f"Answer: {len(texts[-1])}")
    choices = [] if step == "empty choices" else [choice_of({"content": text}, "stop")]
    return completion(body, choices, model="another-model" if step == "wrong model" else body["model"])


def choice_of(fields: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", **fields}, "finish_reason": finish_reason}


def completion(body: dict[str, Any], choices: list[dict[str, Any]], model: str = "") -> Reply:
    """A whole answer to the request in `body`; its usage is plausible for the texts."""
    prompt_chars = sum(len(message["content"]) for message in body["messages"])
    written = sum(len(choice["message"].get("content") or "") for choice in choices)
    counts = {
        "prompt_tokens": max(PROMPT_TOKENS, prompt_chars // 10),
        "completion_tokens": max(COMPLETION_TOKENS, written // 8),
    }
    usage = counts | {"total_tokens": sum(counts.values())}
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": model or body["model"]}
    return reply(200, head | {"choices": choices, "usage": usage})


def reply(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> Reply:
    return status, headers or {}, json.dumps(body).encode()


def packed(whole: Reply) -> bytes:
    """A reply as it goes over the wire."""
    status, headers, content = whole
    fields = {"content-type": "application/json", "content-length": str(len(content)), **headers}
    lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


async def send(writer: asyncio.StreamWriter, whole: Reply) -> None:
    writer.write(packed(whole))
    await writer.drain()


async def send_slowly(writer: asyncio.StreamWriter, content: bytes, *, cut: bool) -> None:
    """Send half of it at once, and then either nothing more or byte by byte."""
    half = len(content) // 2
    writer.write(content[:half])
    await writer.drain()
    if cut:
        await asyncio.sleep(0.01)
        await reset(writer)
    for byte in content[half:]:
        await asyncio.sleep(0.2)
        writer.write(bytes([byte]))
        await writer.drain()


async def send_huge(writer: asyncio.StreamWriter, whole: Reply, *, chunked: bool) -> None:
    """Send the same reply with a text of `HUGE_BYTES`, piece by piece, because the client may not want all of it.

    `chunked`: without its length in advance.
    """
    before, text, after = whole[2].partition(b"Answer")
    piece = b"x" * 100_000
    pieces = [before + text, *[piece] * (HUGE_BYTES // len(piece)), after]
    if chunked:
        writer.write(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        pieces = [b"%x\r\n%s\r\n" % (len(part), part) for part in [*pieces, b""]]
    else:
        writer.write(packed((whole[0], {"content-length": str(sum(map(len, pieces)))}, b"")))
    for part in pieces:
        writer.write(part)
        await writer.drain()


async def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with RST. Raises `ConnectionError`, always."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    raise ConnectionError


async def main(log: Path) -> None:
    server = Server(log)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 20, backlog=2048)
    print(os.getpid(), listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


def fork() -> None:
    """`start FILE` forks a server that logs into the file and prints its process and its port; `kill PROCESS` ends it.

    At the end of the input all of them are killed.
    """
    running: set[int] = set()
    for line in sys.stdin:
        word, value = line.rstrip("\n").split(" ", 1)
        if word == "start":
            if not (pid := os.fork()):
                os.close(0)
                asyncio.run(main(Path(value)))
            running.add(pid)
        else:
            end(int(value))
            running.remove(int(value))
            print(value, flush=True)
    for pid in running:
        end(pid)


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    fork()
