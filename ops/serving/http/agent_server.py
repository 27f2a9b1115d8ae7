"""MLflow's own agent server, in the same application: `/invocations`, `/responses`, `/agent/info`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from ops.core.errors import PodiumError
from ops.serving.http.middleware import request_id
from ops.serving.openai.agent import Exchange
from ops.serving.openai.errors import Failure, not_ready, of_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from ops.serving.http.routes import Routes

_routes: ContextVar[Routes] = ContextVar("routes")
ASKING = ("/invocations", "/responses")


class AgentServerApp:
    """MLflow's application, made when it is first asked for: its import takes a second that OpenAI's routes do not
    wait for."""

    def __init__(self, routes: Routes) -> None:
        self._own = routes
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in ASKING and self._own.engine.loaded is None:
            raise not_ready("the champion is being loaded: ask again in a few seconds", 2)
        async with self._lock:
            if self._app is None:
                self._app = await asyncio.to_thread(_agent_server)
        _routes.set(self._own)
        await self._app(scope, receive, send)


def _agent_server() -> ASGIApp:
    from mlflow.genai import agent_server
    from mlflow.genai.agent_server import server

    if cast("Any", server).get_invoke_function() is None:  # once a process
        agent_server.invoke()(_invoke)
        agent_server.stream()(_stream)
    app: ASGIApp = agent_server.AgentServer("ResponsesAgent").app
    return app


async def _invoke(request: Any) -> Any:
    from mlflow.types.responses import ResponsesAgentResponse

    return ResponsesAgentResponse(**await _exchanged(request))


async def _exchanged(request: Any) -> dict[str, Any]:
    routes, exchange = _routes.get(), None
    try:
        exchange = Exchange(request.model_dump())
        served = routes.engine.request(exchange.problem, exchange.options)
        async with routes.admission.place() as waited_s:
            served.answer.waited_s = waited_s
            routes.metrics.waited(waited_s)
            answer = await routes.engine.answer(served)
            if routes.traces is not None:
                routes.traces.below(request_id.get(), answer)
        return exchange.whole(answer)
    except Failure as error:
        return Exchange.failed(error.message, error.code)
    except PodiumError as error:
        return Exchange.failed(str(error), of_error(error).code)


async def _stream(request: Any) -> AsyncIterator[Any]:
    # MLflow's stream: each item as it is done. The steps are told once the answer is there: it takes whole items.
    whole = await _exchanged(request)
    for index, item in enumerate(whole["output"]):
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": whole, "custom_outputs": whole.get("custom_outputs")}
