"""MLflow's own agent server, in the same application: `/invocations`, `/responses`, `/agent/info`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from starlette.requests import Request

from ops.core.errors import PodiumError
from ops.serving.http.body import cancelled_if_gone, read_body
from ops.serving.http.middleware import ERROR_HANDLERS
from ops.serving.openai.agent import Exchange
from ops.serving.openai.errors import ApiError, of_error
from ops.serving.request import ServedRequest

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ops.serving.http.routes import Routes

QUESTIONS = ("/invocations", "/responses")
PATHS = (*QUESTIONS, "/agent/info")
"""The served paths; MLflow's application also has documentation pages, which are not served."""


class _Call(NamedTuple):
    """A valid request to MLflow's routes."""

    routes: Routes
    route: str
    exchange: Exchange
    served: ServedRequest


_call: ContextVar[_Call] = ContextVar("call")


class AgentServerApp:
    """MLflow's application, made at its first request because its import takes a second, which OpenAI's routes do not
    need.

    A request is checked before MLflow receives it, so that errors have OpenAI's shape, and is cancelled when the client
    disconnects, which MLflow does not detect.
    """

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._lock:
            if self._app is None:
                self._app = await asyncio.to_thread(_agent_server)
        request = Request(scope, receive)
        if scope["path"] not in QUESTIONS or request.method != "POST":
            await self._app(scope, receive, send)
            return
        body = await read_body(request)
        exchange = Exchange(body)
        served = await self._routes.engine.request(exchange.problem, exchange.options, field="input")
        _call.set(_Call(self._routes, scope["path"], exchange, served))
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()  # the code below watches for the disconnection
            sent = True
            return {"type": "http.request", "body": await request.body(), "more_body": False}

        async def answer(app: ASGIApp) -> None:
            await app(scope, replay, send)

        async with cancelled_if_gone(request):
            await answer(self._app)


def _agent_server() -> ASGIApp:
    import mlflow
    from mlflow.genai import agent_server

    mlflow.tracing.disable()  # `Routes.keep` traces these requests

    if cast("Any", agent_server).get_invoke_function() is None:  # once per process
        agent_server.invoke()(_invoke)
        agent_server.stream()(_stream)
    app = agent_server.AgentServer("ResponsesAgent").app
    for kind, handler in ERROR_HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return cast("ASGIApp", app)


async def _invoke(request: Any) -> Any:
    from mlflow.types.responses import ResponsesAgentResponse

    return ResponsesAgentResponse(**await _answer())


async def _answer() -> dict[str, Any]:
    routes, route, exchange, served = _call.get()
    try:
        async with routes.admission.place() as waited_s:
            served.answer.waited_s = waited_s
            routes.metrics.waited(waited_s)
            try:
                with routes.engine.answering(served):
                    answer = await served.run()
            finally:
                routes.keep(route, served.answer, texts=True)
        return exchange.whole(answer)
    except ApiError as error:
        return Exchange.failed(error.message, error.code)
    except PodiumError as error:
        return Exchange.failed(str(error), of_error(error).code)


async def _stream(request: Any) -> AsyncIterator[Any]:
    # MLflow's stream accepts only whole items, so it begins when the answer is complete.
    whole = await _answer()
    for index, item in enumerate(whole["output"]):
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": whole, "custom_outputs": whole.get("custom_outputs")}
