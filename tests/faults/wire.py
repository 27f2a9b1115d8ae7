"""Servers of one reply on loopback, for faults that the fault server does not have: bytes, TLS, a certificate."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path


def http(status: str, content: bytes | object, kind: str = "application/json", **headers: str) -> bytes:
    """Return an HTTP reply; `content` is JSON unless it is bytes."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    fields = {"content-type": kind, "content-length": str(len(body)), "connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def replying(
    reply: bytes | Callable[[socket.socket], None], tls: ssl.SSLContext | None = None
) -> Iterator[tuple[int, list[bytes]]]:
    """Serve `reply` to every request, or let it handle the connection; yield the port and the requests that came."""
    listening = socket.create_server(("127.0.0.1", 0))
    came: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        try:
            with connection, tls.wrap_socket(connection, server_side=True) if tls else connection as wire:
                came.append(_request(wire))
                if callable(reply):
                    reply(wire)
                else:
                    wire.sendall(reply)
        except OSError:
            pass  # the client gave up

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1], came
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _request(wire: socket.socket) -> bytes:
    wire.settimeout(20)
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := wire.recv(65_536)):
            return data
        if not data and not more[:4].isalpha():
            return more  # a TLS greeting
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
    while len(body) < length:
        body += wire.recv(65_536)
    return body


def certificate(folder: Path, name: str, days: int = 30) -> tuple[Path, ssl.SSLContext]:
    """Return the file of a certificate that signs itself, made out to host `name`, and a server's context with it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{name}, {days} days")])
    end = datetime.now(UTC) + timedelta(days=days)
    signed = (
        x509.CertificateBuilder()
        .subject_name(who).issuer_name(who).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=60)).not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, folder / f"{name}.key")
    return file, context
