"""Many connections that each send half of a request's headers: `python -m tests.serving.slow_clients URL COUNT`.

A process of its own, for its limit of open files. It says when all were opened, and holds them until its stdin ends.
"""

from __future__ import annotations

import resource
import socket
import sys
from urllib.parse import urlsplit


def main(url: str, count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 100), hard))
    place = urlsplit(url)
    clients = []
    for _ in range(count):
        clients.append(socket.create_connection((place.hostname or "", place.port or 0), timeout=60))
        clients[-1].sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: local")
    print(f"{count} were opened", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
