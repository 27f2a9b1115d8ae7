"""Run uvicorn with the application until Ctrl-C or SIGTERM, then complete the requests in flight."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import uvicorn

from ops.core.errors import PodiumError
from ops.core.processes import raise_open_files
from ops.serving.http.app import ServingApp
from ops.serving.http.connections import (
    ACCEPTED_TOGETHER,
    KEEP_ALIVE_S,
    LEAST_FILES,
    QUEUED,
    ConnectionLimits,
    LimitedConnection,
)

GRACE_S = 5
"""Seconds after the drain until the remaining requests are cut off."""


class _Server(uvicorn.Server):
    """Completes requests in flight before the sockets close; a second signal does not wait."""

    def __init__(self, config: uvicorn.Config, app: ServingApp) -> None:
        super().__init__(config)
        self._serving = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUED)  # asyncio uses one number for this queue and for the sockets accepted together

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        emptying = asyncio.ensure_future(self._serving.admission.empty(self._serving.engine.settings.drain_s))
        while not emptying.done() and not self.force_exit:  # noqa: ASYNC110  (uvicorn's second signal sets a flag)
            await asyncio.sleep(0.05)
        emptying.cancel()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own handler raises the signal again at the end, as if the stopped server had failed.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for ending in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(ending, self.handle_exit, ending, None)
        try:
            yield
        finally:
            for ending in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(ending)


def run(app: ServingApp, host: str, port: int, when_loaded: Callable[[], None] = lambda: None) -> None:
    """Answer until a signal. `port` 0: any that is free. `when_loaded` is called once, with the first version.

    Raises `PodiumError` where the process may open too few files or the port is taken, and where the champion cannot be
    loaded at the start.
    """
    if (open_files := raise_open_files()) < LEAST_FILES:
        problem = f"this process may open {open_files} files, and serving needs {LEAST_FILES}"
        raise PodiumError(f"{problem}. Raise the limit: `ulimit -Hn` shows it")
    try:
        listening = socket.create_server((host, port), family=_family(host))
    except OSError as error:
        raise PodiumError(f"{host}:{port}: {error.strerror}. Choose another with --port") from None
    place = f"http://{host}:{listening.getsockname()[1]}"

    def loaded(version: str) -> None:
        when_loaded()
        print(f"conductor {version} at {place}/v1, Ctrl-C ends it", flush=True)

    app.on_first(loaded)
    print(f"loading the champion; {place}/health says when it is ready", flush=True)
    limits = ConnectionLimits(app.engine.settings, open_files)
    config = uvicorn.Config(
        app.asgi,
        http=cast("Any", partial(LimitedConnection, limits)),
        backlog=ACCEPTED_TOGETHER,
        log_level="error",  # a client that sends no HTTP causes no warning
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config, app)

    def give_up(problem: str) -> None:
        server.should_exit = True

    app.on_broken(give_up)
    with listening:
        asyncio.run(_serve(server, listening, limits))
    if app.broken:
        raise PodiumError(app.broken)


async def _serve(server: uvicorn.Server, listening: socket.socket, limits: ConnectionLimits) -> None:
    asyncio.get_running_loop().set_exception_handler(limits.on_loop_error)
    await server.serve([listening])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
