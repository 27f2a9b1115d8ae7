"""Clients that misbehave: bad text, huge questions, hang-ups, slow headers, wrong types."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from urllib.parse import urlsplit

import httpx


def body(content: str, **more: object) -> bytes:
    return json.dumps({"model": "conductor", "messages": [{"role": "user", "content": content}], **more}).encode()


def connected(url: str) -> socket.socket:
    place = urlsplit(url)
    return socket.create_connection((place.hostname or "", place.port or 0), timeout=60)


def request(content: bytes) -> bytes:
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


class Misbehaving:
    """Five clients, each of which repeats one fault until `stop`."""

    def __init__(self, url: str) -> None:
        self._url = url
        headers = {"content-type": "application/json"}
        self._http = httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=120)
        self.stop = threading.Event()
        self.seen: dict[str, set[str]] = {}
        faults = (self.lone_surrogate, self.huge, self.hang_up, self.slow_headers, self.wrong_types)
        self._threads = [threading.Thread(target=self._repeat, args=(fault,), daemon=True) for fault in faults]

    def __enter__(self) -> Misbehaving:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)
        self._http.close()

    def _repeat(self, fault: object) -> None:
        while True:
            name = fault.__name__  # type: ignore[attr-defined]
            self.seen.setdefault(name, set()).add(fault())  # type: ignore[operator]
            if self.stop.wait(0.05):
                return

    def _post(self, content: bytes) -> str:
        reply = self._http.post("/v1/chat/completions", content=content)
        error = reply.json()["error"]
        return f"{reply.status_code} {error['code']} {error['param']}"

    def lone_surrogate(self) -> str:
        return self._post(body("What is 1 + 1\ud83d?"))

    def huge(self) -> str:
        return self._post(body("What? " * 160_000))

    def hang_up(self) -> str:
        with connected(self._url) as client:
            client.sendall(request(body("What is 1 + 1?")))
        with connected(self._url) as client:
            client.sendall(request(body("What is 1 + 2?", stream=True)))
            client.recv(20)
        return "left"

    def slow_headers(self) -> str:
        with connected(self._url) as client, contextlib.suppress(OSError):
            for byte in b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-slow: " + b"." * 1000:
                client.sendall(bytes([byte]))
                if self.stop.wait(0.1):
                    break
        return "ended"

    def wrong_types(self) -> str:
        return self._post(body("What is 1 + 1?", podium={"budget_usd": True}))
