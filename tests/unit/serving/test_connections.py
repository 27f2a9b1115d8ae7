"""Connections: the time limits of clients and the maximum number; uvicorn in this process, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest
import uvicorn

from ops.config import Serving
from ops.serving.http.connections import MIN_OPEN_FILES, ConnectionLimits, LimitedConnection

pytestmark = [pytest.mark.timeout(120), pytest.mark.anyio]
HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n"
WHOLE = HEAD + b"\r\nbody"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[bytes], Awaitable[Client]]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers when the body is complete."""
    assert scope["type"] == "http"
    while (message := await receive())["type"] == "http.request" and message["more_body"]:
        pass
    if message["type"] == "http.disconnect":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def serving(settings: Serving) -> AsyncIterator[tuple[Connect, ConnectionLimits]]:
    limits = ConnectionLimits(settings, 1000)
    config = uvicorn.Config(app, http=cast("Any", partial(LimitedConnection, limits)), lifespan="off",
                            log_level="error", timeout_keep_alive=1)  # fmt: skip
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    writers: list[asyncio.StreamWriter] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = asyncio.create_task(server.serve([listening]))
        while not server.started:  # noqa: ASYNC110  (uvicorn sets a flag)
            await asyncio.sleep(0.01)

        async def connect(data: bytes) -> Client:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writers.append(writer)
            writer.write(data)
            await writer.drain()
            return reader, writer

        try:
            yield connect, limits
        finally:
            for writer in writers:
                writer.close()
            server.should_exit = True
            await task


async def response(reader: asyncio.StreamReader) -> int:
    """The status of one whole response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(head.lower().partition("content-length: ")[2].split()[0])
    await reader.readexactly(length)
    return int(head.split()[1])


@pytest.mark.parametrize("first", [b"", WHOLE])
@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"\r\nbo"])
async def test_a_request_that_does_not_arrive_in_time_ends_its_connection(first: bytes, sent: bytes) -> None:
    async with serving(Serving(head_s=0.3, body_s=0.3)) as (connect, _):
        reader, writer = await connect(first)
        if first:
            assert await response(reader) == 200
        writer.write(sent)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")  # to the end of the connection
    if first and not sent:
        assert head == b"", "an idle connection ends without a response"
    else:
        assert head.startswith(b"HTTP/1.1 408 ") and json.loads(body)["error"]["code"] == "request_timeout"


async def test_slow_requests_that_keep_to_the_limits_are_answered_on_a_kept_connection() -> None:
    async with serving(Serving(head_s=60, body_s=60)) as (connect, _):
        reader, writer = await connect(b"")
        for _ in range(3):
            for part in (HEAD, b"\r\nbo", b"dy"):
                writer.write(part)
                await asyncio.sleep(0.05)
            assert await response(reader) == 200


async def test_idle_connections_make_room_for_new_ones_and_those_without_a_request_go_first() -> None:
    async with serving(Serving(connections=8)) as (connect, limits):
        kept, writer = await connect(WHOLE)
        assert await response(kept) == 200
        slow = [await connect(HEAD) for _ in range(20)]
        late, _ = await connect(WHOLE)
        assert await response(late) == 200
        assert [await asyncio.wait_for(reader.read(), 60) for reader, _ in slow[:14]] == [b""] * 14
        assert limits.open_count == 8
        writer.write(WHOLE)  # the kept connection is still open
        assert await response(kept) == 200


async def test_a_connection_beyond_the_busy_maximum_is_refused_with_retry_after(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Serving(connections=2)) as (connect, limits):
        for _ in range(2):
            await connect(WHOLE)
        while len(limits._phases["working"]) < 2:  # simulates that both took long
            for each in [*limits._phases["new"], *limits._phases["idle"], *limits._phases["body"]]:
                limits.change_phase(each, each._phase, "working")
                each._phase = "working"
            await asyncio.sleep(0.01)
        assert [await response((await connect(WHOLE))[0]) for _ in range(30)] == [503] * 30
    assert len([record for record in caplog.records if "more than 2 connections" in record.message]) == 1


async def test_responses_leave_at_once() -> None:
    async with serving(Serving()) as (connect, limits):
        reader, _ = await connect(WHOLE)
        await response(reader)
        [connection] = limits._phases["idle"]
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_the_limit_of_open_files_bounds_connections() -> None:
    assert ConnectionLimits(Serving(), 1024).most == 768
    assert ConnectionLimits(Serving(), 65_536).most == 20_000
    assert ConnectionLimits(Serving(connections=100), 65_536).most == 100
    assert ConnectionLimits(Serving(connections=100), MIN_OPEN_FILES).most == 86
