"""The application (the middleware and OpenAI's routes) and its server, which finishes requests in flight before it
ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from ops.config import Serving
from ops.core.async_run import collect_garbage_rarely
from ops.core.errors import PodiumError
from ops.core.processes import raise_open_file_limit
from ops.core.workspace import Workspace
from ops.serving.champion_follower import VersionFollower, VersionSource
from ops.serving.engine import ServingEngine
from ops.serving.http.access import AccessControl
from ops.serving.http.admission import AdmissionControl
from ops.serving.http.connections import (
    ACCEPT_BATCH,
    ACCEPT_QUEUE,
    KEEP_ALIVE_S,
    MIN_OPEN_FILES,
    ConnectionLimits,
    LimitedConnection,
)
from ops.serving.http.metrics import Metrics
from ops.serving.http.middleware import ERROR_HANDLERS, RequestMiddleware
from ops.serving.http.routes import Routes, TraceSink

SHUTDOWN_GRACE_S = 5
"""The seconds after which requests that are still in flight are cut off, counted from the end of the drain time."""


class ServingApp:
    """The parts of one server. uvicorn runs its attribute `asgi`."""

    def __init__(
        self,
        workspace: Workspace,
        settings: Serving,
        source: VersionSource,
        access: AccessControl,
        *,
        traces: TraceSink | None = None,
    ) -> None:
        self.metrics = Metrics()
        self.admission = AdmissionControl(settings.at_once, settings.waiting)
        self.engine = ServingEngine(workspace, settings, on_answer=self.metrics.count_answer)
        self.follower = VersionFollower(
            self.engine, source, on_batch=self.metrics.record_batch, on_attempt=self.metrics.count_swap
        )
        self.metrics.watch_gauges(lambda: self.admission.in_flight, lambda: self.admission.waiting)
        self.broken = ""
        """Why no version could be loaded at the start."""
        self.on_first: Callable[[str], None] = lambda version: None
        """Called with the first version when it is in service."""
        self.on_broken: Callable[[str], None] = lambda problem: None
        """Called with the reason if no version can be loaded at the start."""
        routes = Routes(self.engine, self.admission, self.metrics, traces)
        self.asgi = RequestMiddleware(self._application(routes), access, self.metrics, settings)

    def _application(self, routes: Routes) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", routes.chat_completions, methods=["POST"]),
                Route("/v1/responses", routes.responses, methods=["POST"]),
                Route("/v1/models", routes.models),
                Route("/v1/models/{name}", routes.model),
                Route("/health", routes.health),
                Route("/metrics", routes.prometheus),
            ],
            exception_handlers=ERROR_HANDLERS,
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            self.engine.close()

    async def _follow(self) -> None:
        await self.follower.check_version()
        if self.engine.loaded is None:
            self.broken = self.follower.problem
            self.on_broken(self.broken)
            return
        self.on_first(self.engine.loaded.version)
        await asyncio.sleep(self.engine.settings.follow_s)
        await self.follower.run()


class _Server(uvicorn.Server):
    """Completes requests in flight before the sockets close; a second signal does not wait."""

    def __init__(self, config: uvicorn.Config, app: ServingApp) -> None:
        super().__init__(config)
        self._serving = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(
                ACCEPT_QUEUE
            )  # asyncio uses one number for this queue and for the sockets accepted together

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        emptying = asyncio.ensure_future(self._serving.admission.drain(self._serving.engine.settings.drain_s))
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


def run_server(app: ServingApp, host: str, port: int, on_loaded: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal arrives. With `port` 0, any free port is used. `on_loaded` is called once, with the first
    version.

    Raises `PodiumError` if the process may open too few files, if the port is in use, or if the champion cannot be
    loaded at the start.
    """
    if (open_files := raise_open_file_limit()) < MIN_OPEN_FILES:
        problem = f"this process may open {open_files} files, and serving needs {MIN_OPEN_FILES}"
        raise PodiumError(f"{problem}. Raise the limit: `ulimit -Hn` shows it")
    try:
        listening = socket.create_server((host, port), family=_address_family(host))
    except OSError as error:
        raise PodiumError(f"{host}:{port}: {error.strerror}. Choose another with --port") from None
    place = f"http://{host}:{listening.getsockname()[1]}"

    def loaded(version: str) -> None:
        on_loaded()
        print(f"conductor {version} at {place}/v1, Ctrl-C ends it", flush=True)

    app.on_first = loaded
    print(f"loading the champion; {place}/health says when it is ready", flush=True)
    limits = ConnectionLimits(app.engine.settings, open_files)
    config = uvicorn.Config(
        app.asgi,
        http=cast("Any", partial(LimitedConnection, limits)),
        backlog=ACCEPT_BATCH,
        log_level="error",  # so that a client that does not speak HTTP causes no warning
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
    )
    server = _Server(config, app)

    def give_up(problem: str) -> None:
        server.should_exit = True

    app.on_broken = give_up
    with listening, collect_garbage_rarely():
        asyncio.run(_serve(server, listening, limits))  # noqa: TID251  (uvicorn handles signals)
    if app.broken:
        raise PodiumError(app.broken)


async def _serve(server: uvicorn.Server, listening: socket.socket, limits: ConnectionLimits) -> None:
    asyncio.get_running_loop().set_exception_handler(limits.handle_loop_error)
    await server.serve([listening])


def _address_family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
