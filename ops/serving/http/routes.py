"""OpenAI's routes: read, admit, answer whole or as a stream, and keep a trace."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response, StreamingResponse

from ops.core.errors import PodiumError
from ops.serving.answer import Answer, Fallback
from ops.serving.engine import Engine
from ops.serving.http.admission import Admission
from ops.serving.http.metrics import Metrics
from ops.serving.http.middleware import request_id
from ops.serving.openai import chat, responses
from ops.serving.openai.api_request import MODEL, ApiRequest
from ops.serving.openai.errors import Failure, of_answer, of_error
from ops.serving.request import ServedRequest
from ops.serving.request_options import RequestError
from ops.workflow.trace import StepTrace

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

ENDS = ("answered", "not_run")
"""Statuses with an answer."""


class Record(NamedTuple):
    """A request that was answered, for whoever keeps traces."""

    request: str
    """Its id."""
    route: str
    answer: Answer
    texts: bool
    """False: its user wants nothing of it stored."""


class Traces(Protocol):
    """Where the steps of answers are kept, to be looked at."""

    def keep(self, record: Record) -> None:
        """Keep a trace of it, sooner or later; takes no time."""
        ...

    def below(self, request: str, answer: Answer) -> None:
        """Add the steps to the trace that the caller has open for the request."""
        ...


class Shape(Protocol):
    """How a route writes its responses."""

    @property
    def done(self) -> str | None: ...

    def whole(self, answer: Answer) -> dict[str, Any]: ...
    def begin(self, version: str) -> Iterator[dict[str, Any]]: ...
    def news(self, version: str, item: StepTrace | Fallback) -> Iterator[dict[str, Any]]: ...
    def end(self, answer: Answer) -> Iterator[dict[str, Any]]: ...
    def broken(self, error: dict[str, Any]) -> Iterator[dict[str, Any]]: ...


@dataclass
class Routes:
    """The endpoints over one engine. `traces`: None where nobody keeps any."""

    engine: Engine
    admission: Admission
    metrics: Metrics
    traces: Traces | None

    async def chat_completions(self, request: Request) -> Response:
        body = await _body(request)
        api_request = chat.read(body)
        return await self._respond(request, api_request, chat.ChatShape(api_request))

    async def responses(self, request: Request) -> Response:
        body = await _body(request)
        api_request = responses.read(body)
        return await self._respond(request, api_request, responses.ResponseShape(api_request))

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        if request.path_params["name"] != MODEL:
            words = f"{request.path_params['name']!r} is not served here"
            raise Failure(404, "invalid_request_error", "model_not_found", words, "model")
        return JSONResponse(self._model())

    async def health(self, request: Request) -> Response:
        """200 when questions are answered, else 503."""
        ready = self.engine.loaded is not None and not self.admission.closing
        state = "ready" if ready else "ending" if self.admission.closing else "loading"
        return JSONResponse({"status": state}, 200 if ready else 503, headers=None if ready else {"retry-after": "2"})

    async def prometheus(self, request: Request) -> Response:
        page, kind = self.metrics.page()
        return Response(page, headers={"content-type": kind})

    # ── inside ───────────────────────────────────────────────────────────────

    def _model(self) -> dict[str, Any]:
        loaded = self.engine.loaded
        told = {} if loaded is None else {"version": loaded.version, "workers": list(loaded.names)}
        return {"id": MODEL, "object": "model", "created": 0, "owned_by": "podium", "podium": told}

    async def _respond(self, request: Request, api_request: ApiRequest, shape: Shape) -> Response:
        news: asyncio.Queue[StepTrace | Fallback] = asyncio.Queue()
        served = self.engine.request(
            api_request.problem, api_request.options, news.put_nowait if api_request.stream else None
        )
        work = _Work(self, served, request.url.path, api_request)
        if not api_request.stream:
            answer = await _unless_gone(request, work.answer())
            return JSONResponse(shape.whole(answer))
        return _Stream(work.stream(shape, news), self.admission, served)

    def _keep(self, record: Record) -> None:
        if self.traces is not None and random.random() < self.engine.settings.traced_share:
            self.traces.keep(record)


@dataclass
class _Work:
    """One request that is being answered."""

    routes: Routes
    served: ServedRequest
    route: str
    api_request: ApiRequest

    async def answer(self) -> Answer:
        """Its answer. Raises `Failure` where there is none."""
        async with self.routes.admission.place() as waited_s:
            self.served.answer.waited_s = waited_s
            return await self._go()

    async def stream(self, shape: Shape, news: asyncio.Queue[StepTrace | Fallback]) -> AsyncGenerator[str, None]:
        """Server-sent events; closed, it stops the work."""
        version = self.served.loaded.version
        going = asyncio.create_task(self._go())
        try:
            for event in shape.begin(version):
                yield _event(event)
            async for item in _until(going, news, self.routes.engine.settings.keep_alive_s):
                if item is None:
                    yield ": keep-alive\n\n"
                    continue
                for event in shape.news(version, item):
                    yield _event(event)
            try:
                answer = going.result()
            except (Failure, PodiumError) as error:
                failure = error if isinstance(error, Failure) else of_error(error)
                for event in shape.broken(failure.error):
                    yield _event(event)
                return
            for event in shape.end(answer):
                yield _event(event)
            if shape.done is not None:
                yield f"data: {shape.done}\n\n"
        finally:
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)

    async def _go(self) -> Answer:
        routes, own = self.routes, request_id.get()
        routes.metrics.waited(self.served.answer.waited_s)
        try:
            answer = await routes.engine.answer(self.served)
        finally:
            routes._keep(Record(own, self.route, self.served.answer, self.api_request.store))
        if answer.status not in ENDS:
            raise of_answer(answer, texts=self.api_request.options.workflow)
        return answer


class _Stream(StreamingResponse):
    """A stream that holds a place to its end, also where its listener leaves before the first event."""

    def __init__(self, events: AsyncGenerator[str, None], admission: Admission, served: ServedRequest) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._events, self._admission, self._served = events, admission, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._admission.place() as waited_s:  # refused, it is an error and no stream
            self._served.answer.waited_s = waited_s
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._events.aclose()


async def _until(
    going: asyncio.Task[Answer], news: asyncio.Queue[StepTrace | Fallback], keep_alive_s: float
) -> AsyncIterator[StepTrace | Fallback | None]:
    """News as they come, None after every silence, until `going` has ended and all is told."""
    while not going.done() or not news.empty():
        coming = asyncio.ensure_future(news.get())
        done, _ = await asyncio.wait({going, coming}, timeout=keep_alive_s, return_when=asyncio.FIRST_COMPLETED)
        if coming in done:
            yield coming.result()
        else:
            coming.cancel()
            if not done:
                yield None


async def _unless_gone(request: Request, work: Any) -> Answer:
    """What the work gives; it is cancelled when its asker hangs up."""
    going: asyncio.Task[Answer] = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({going, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not going.done():
            raise ClientDisconnect
        return going.result()
    finally:
        for task in (going, leaving):
            task.cancel()
        await asyncio.gather(going, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> Mapping[str, Any]:
    """The JSON object of a request. Raises `Failure`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # what a page's form could send without a preflight request has another one
        words = f"the content type is {kind or 'missing'}: send application/json"
        raise Failure(415, "invalid_request_error", "unsupported_media_type", words)
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise Failure(400, "invalid_request_error", "invalid_json", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise RequestError("(body)", "is not an object", "Send a JSON object")
    return body


def _event(event: Mapping[str, Any]) -> str:
    head = f"event: {event['type']}\n" if "type" in event else ""
    return f"{head}data: {json.dumps(event)}\n\n"
