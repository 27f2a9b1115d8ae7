"""The application: its middleware, OpenAI's routes and MLflow's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.routing import Route

from ops.config import Serving
from ops.core.workspace import Workspace
from ops.serving.answer import Answer
from ops.serving.engine import ServingEngine
from ops.serving.follow import Follower, Source
from ops.serving.http.access import Access
from ops.serving.http.admission import Admission
from ops.serving.http.agent_server import PATHS, AgentServerApp
from ops.serving.http.metrics import Metrics
from ops.serving.http.middleware import ERROR_HANDLERS, RequestMiddleware
from ops.serving.http.routes import Routes, Traces


class ServingApp:
    """The parts of one server; uvicorn runs `asgi`."""

    def __init__(
        self, workspace: Workspace, settings: Serving, source: Source, access: Access, *, traces: Traces | None = None
    ) -> None:
        self.metrics = Metrics()
        self.admission = Admission(settings.at_once, settings.waiting)
        self.engine = ServingEngine(workspace, settings, on_answer=self._answered)
        self.follower = Follower(self.engine, source, on_batch=self.metrics.written, on_attempt=self.metrics.swapped)
        self.metrics.watch(lambda: self.admission.in_flight, lambda: self.admission.waiting)
        self.broken = ""
        """Why no version could be loaded at the start."""
        self._on_first: Callable[[str], None] = lambda version: None
        self._on_broken: Callable[[str], None] = lambda problem: None
        routes = Routes(self.engine, self.admission, self.metrics, traces)
        self.asgi = RequestMiddleware(self._application(routes), access, self.metrics, settings)

    def on_first(self, call: Callable[[str], None]) -> None:
        """Call with the first version when it is in service."""
        self._on_first = call

    def on_broken(self, call: Callable[[str], None]) -> None:
        """Call with the reason if no version can be loaded at the start."""
        self._on_broken = call

    def _application(self, routes: Routes) -> Starlette:
        agents = AgentServerApp(routes)
        return Starlette(
            routes=[
                Route("/v1/chat/completions", routes.chat_completions, methods=["POST"]),
                Route("/v1/responses", routes.responses, methods=["POST"]),
                Route("/v1/models", routes.models),
                Route("/v1/models/{name}", routes.model),
                Route("/health", routes.health),
                Route("/metrics", routes.prometheus),
                *(Route(path, agents) for path in PATHS),
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
        await self.follower.look()
        if self.engine.loaded is None:
            self.broken = self.follower.problem
            self._on_broken(self.broken)
            return
        self._on_first(self.engine.loaded.version)
        await asyncio.sleep(self.engine.settings.follow_s)
        await self.follower.run()

    def _answered(self, answer: Answer) -> None:
        self.metrics.answered(answer)
