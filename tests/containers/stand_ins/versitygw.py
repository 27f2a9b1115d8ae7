#!/usr/bin/env python3
"""A small S3 server, `versitygw --port :7070 posix FOLDER`: buckets are folders, objects are files.

It serves what MLflow and DVC ask for (put, get with a range, head, delete, list), and no upload in parts. It checks no
signature, so it is for tests alone.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

ROOT = Path(sys.argv[-1])
_CHANGED = "2026-01-01T00:00:00.000Z"


class S3(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        file, query = self._asked()
        if query:
            return self._reply(501)
        part = file.with_name(f".{file.name}.{os.urandom(4).hex()}")
        part.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.md5()
        with part.open("wb") as out:
            for piece in self._body():
                digest.update(piece)
                out.write(piece)
        part.replace(file)
        return self._reply(200, headers={"ETag": f'"{digest.hexdigest()}"'})

    def do_GET(self) -> None:
        file, query = self._asked()
        if file.is_dir():
            return self._reply(200, self._listed(file, query))
        if not file.is_file():
            return self._reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
        content = file.read_bytes()
        headers = {"Last-Modified": formatdate(file.stat().st_mtime, usegmt=True), "ETag": '"none"'}
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(content) - 1), len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            return self._reply(206, content[start : end + 1], headers)
        return self._reply(200, content, headers)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self._asked()[0].unlink(missing_ok=True)
        self._reply(204)

    def _asked(self) -> tuple[Path, dict[str, list[str]]]:
        address = urlsplit(self.path)
        query = parse_qs(address.query, keep_blank_values=True)
        query.pop("x-id", None)
        return ROOT / unquote(address.path).strip("/"), query

    def _body(self) -> Iterator[bytes]:
        """Give the object's bytes, also those of boto's chunks, each of which has a line with its size."""
        body: BinaryIO = self.rfile
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            while size := int(body.readline().partition(b";")[0], 16):
                yield body.read(size)
                body.readline()
            while body.readline().strip():
                pass
            return
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = body.read(min(left, 1 << 20))
            left -= len(piece)
            yield piece

    def _listed(self, bucket: Path, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        files = {str(file.relative_to(bucket)): file for file in sorted(bucket.rglob("*")) if file.is_file()}
        found, folders = [], set()
        for key, file in files.items():
            if not key.startswith(prefix):
                continue
            head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if cut:
                folders.add(f"{prefix}{head}{cut}")
                continue
            size = f"<Size>{file.stat().st_size}</Size><ETag>none</ETag>"
            found.append(f"<Contents><Key>{escape(key)}</Key>{size}<LastModified>{_CHANGED}</LastModified></Contents>")
        found += [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)]
        whole = f"<KeyCount>{len(found)}</KeyCount><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{whole}{''.join(found)}</ListBucketResult>".encode()

    def _reply(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


ThreadingHTTPServer(("0.0.0.0", int(sys.argv[sys.argv.index("--port") + 1].lstrip(":"))), S3).serve_forever()
