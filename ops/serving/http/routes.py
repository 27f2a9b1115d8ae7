"""The routes of OpenAI's API: read a request, admit it, answer it at once or as a stream, and store a trace."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from starlette.responses import JSONResponse, Response, StreamingResponse

from ops.core.status import Status
from ops.serving.answer import Answer, Fallback
from ops.serving.engine import ServingEngine
from ops.serving.http.admission import AdmissionControl
from ops.serving.http.body import cancel_on_disconnect, read_body
from ops.serving.http.metrics import Metrics
from ops.serving.http.middleware import arrival_time, request_id
from ops.serving.loaded_version import LoadedVersion
from ops.serving.openai import chat, responses
from ops.serving.openai.api_request import MODEL_NAME, ApiRequest
from ops.serving.openai.errors import ApiError, convert_exception, make_answer_error
from ops.serving.request import ServedRequest
from ops.serving.request_options import RequestError
from ops.workflow.trace import StepTrace

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

Work = Callable[[], Coroutine[Any, Any, Answer]]
"""Computes the answer to a request."""


class RequestRecord(NamedTuple):
    """A finished request, as it is traced. Times are seconds since the epoch."""

    request_id: str
    """The id of the request."""
    route: str
    answer: Answer
    texts: bool
    """Whether the trace may hold the texts of the request; False if the client does not want them stored."""
    arrived: float
    ended: float


class TraceSink(Protocol):
    """A destination of traces."""

    def enqueue(self, record: RequestRecord) -> None:
        """Store a trace of the request later, without waiting for the store."""
        ...


class ResponseWriter(Protocol):
    """Writes the responses of one route in OpenAI's format, whole or as the events of a stream."""

    @property
    def end_marker(self) -> str | None: ...

    def write_response(self, answer: Answer) -> dict[str, Any]: ...
    def write_start(self, version: str) -> Iterator[dict[str, Any]]: ...
    def write_progress(self, version: str, item: StepTrace | Fallback) -> Iterator[dict[str, Any]]: ...
    def write_end(self, answer: Answer) -> Iterator[dict[str, Any]]: ...
    def write_error(self, error: dict[str, Any]) -> Iterator[dict[str, Any]]: ...


@dataclass
class Routes:
    """The endpoints of one engine. `traces` is None if no traces are stored."""

    engine: ServingEngine
    admission: AdmissionControl
    metrics: Metrics
    traces: TraceSink | None

    async def chat_completions(self, request: Request) -> Response:
        """Answer `POST /v1/chat/completions`."""
        api_request = chat.read_request(await read_body(request))
        return await self._respond(request, api_request, chat.ChatWriter(api_request))

    async def responses(self, request: Request) -> Response:
        """Answer `POST /v1/responses`."""
        api_request = responses.read_request(await read_body(request))
        return await self._respond(request, api_request, responses.ResponsesWriter(api_request))

    async def models(self, request: Request) -> Response:
        """Answer `GET /v1/models`, the list with the one model."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """Answer `GET /v1/models/NAME`."""
        if request.path_params["name"] != MODEL_NAME:
            words = f"{request.path_params['name']!r} is not served here"
            raise ApiError(404, "invalid_request_error", "model_not_found", words, "model")
        return JSONResponse(self._model())

    async def health(self, request: Request) -> Response:
        """Return status 200 if requests are answered, otherwise 503 with the reason."""
        status = "ready"
        if self.admission.closing:
            status = "ending"
        elif self.engine.loaded is None:
            status = "loading"
        elif self.engine.is_stalled:
            status = "stalled"
        ready = status == "ready"
        return JSONResponse({"status": status}, 200 if ready else 503, headers=None if ready else {"retry-after": "2"})

    async def prometheus(self, request: Request) -> Response:
        """Answer `GET /metrics`."""
        page, kind = self.metrics.render_page()
        return Response(page, headers={"content-type": kind})

    # ── inside ───────────────────────────────────────────────────────────────

    def _model(self) -> dict[str, Any]:
        loaded = self.engine.loaded
        podium = {} if loaded is None else {"version": loaded.version, "workers": list(loaded.worker_names)}
        return {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "podium", "podium": podium}

    async def _respond(self, request: Request, api_request: ApiRequest, shape: ResponseWriter) -> Response:
        progress: asyncio.Queue[StepTrace | Fallback] = asyncio.Queue()
        served = await self.engine.make_request(
            api_request.problem, api_request.options, progress.put_nowait if api_request.stream else None,
            api_request.field,
        )  # fmt: skip
        _check_token_bound(api_request, served.loaded)
        work = partial(self._answer, served, api_request, request.url.path)
        if not api_request.stream:
            async with cancel_on_disconnect(request), self.admission.admit() as waited_s:
                served.answer.waited_s = waited_s
                return JSONResponse(shape.write_response(await work()))
        events = _stream_events(served, work, shape, progress, self.engine.settings.keep_alive_s)
        return _Stream(events, self.admission, served)

    def trace_request(self, route: str, answer: Answer, *, texts: bool) -> None:
        """Store a trace of the finished request of this task, unless its client has switched traces off."""
        if self.traces is not None and random.random() < self.engine.settings.traced_share:
            self.traces.enqueue(RequestRecord(request_id.get(), route, answer, texts, arrival_time.get(), time.time()))

    async def _answer(self, served: ServedRequest, api_request: ApiRequest, route: str) -> Answer:
        """Return the answer. Raises `ApiError` if there is none."""
        self.metrics.record_wait(served.answer.waited_s)
        try:
            with self.engine.hold_version(served):
                answer = await served.run()
        finally:
            self.trace_request(route, served.answer, texts=api_request.store)
        if answer.status not in (Status.ANSWERED, Status.NOT_RUN):
            raise make_answer_error(answer, api_request.options)
        return answer


async def _stream_events(
    served: ServedRequest,
    work: Work,
    shape: ResponseWriter,
    progress: asyncio.Queue[StepTrace | Fallback],
    keep_alive_s: float,
) -> AsyncGenerator[str, None]:
    """Give server-sent events; closing the generator cancels the work."""
    version = served.loaded.version
    task = asyncio.create_task(work())
    try:
        for event in shape.write_start(version):
            yield _format_event(event)
        async for item in _yield_progress(task, progress, keep_alive_s):
            if item is None:
                yield ": keep-alive\n\n"
                continue
            for event in shape.write_progress(version, item):
                yield _format_event(event)
        try:
            answer = task.result()
        except Exception as error:  # noqa: BLE001  (the stream has begun: its last event is the error)
            for event in shape.write_error(convert_exception(error, request_id.get()).error):
                yield _format_event(event)
            return
        for event in shape.write_end(answer):
            yield _format_event(event)
        if shape.end_marker is not None:
            yield f"data: {shape.end_marker}\n\n"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Stream(StreamingResponse):
    """A stream that holds a place to its end, also if the client disconnects before the first event."""

    def __init__(self, events: AsyncGenerator[str, None], admission: AdmissionControl, served: ServedRequest) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._events, self._admission, self._served = events, admission, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._admission.admit() as waited_s:  # a refusal is an error response, not a stream
            self._served.answer.waited_s = waited_s
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._events.aclose()


async def _yield_progress(
    task: asyncio.Task[Answer], progress: asyncio.Queue[StepTrace | Fallback], keep_alive_s: float
) -> AsyncIterator[StepTrace | Fallback | None]:
    """Give progress as it arrives, and None after every silence, until the task has ended and all progress was
    given."""
    while not task.done() or not progress.empty():
        coming = asyncio.ensure_future(progress.get())
        try:
            done, _ = await asyncio.wait({task, coming}, timeout=keep_alive_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            coming.cancel()  # this has no effect if it is done
        if coming in done:
            yield coming.result()
        elif not done:
            yield None


def _check_token_bound(api_request: ApiRequest, loaded: LoadedVersion) -> None:
    """Raise `RequestError` if the client's token bound is below the number that a worker may generate."""
    if api_request.answer_tokens is None:
        return
    field, bound = api_request.answer_tokens
    names = set(loaded.worker_names)
    longest = max(worker.max_tokens for worker in loaded.team.workers if worker.name in names)
    if bound < longest:
        problem = f"is {bound:,}, and the pool lets a worker answer with {longest:,} tokens"
        raise RequestError(field, problem, "Leave it out, or send at least that")


def _format_event(event: Mapping[str, Any]) -> str:
    head = f"event: {event['type']}\n" if "type" in event else ""
    return f"{head}data: {json.dumps(event)}\n\n"
