"""Read the body of a request, which must be valid JSON in valid Unicode, and notice when its client disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from starlette.requests import ClientDisconnect

from ops.serving.openai.errors import ApiError
from ops.serving.request_options import RequestError, check_encodable

if TYPE_CHECKING:
    from starlette.requests import Request


async def read_body(request: Request) -> Mapping[str, Any]:
    """Return the JSON object in the body of a request. Raises `ApiError` and `RequestError`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page of another origin cannot send it without a preflight request
        words = f"the content type is {kind or 'missing'}: send application/json"
        raise ApiError(415, "invalid_request_error", "unsupported_media_type", words)
    raw = await request.body()
    try:
        text = raw.decode()
        body = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text or "\\uD" in text:  # only an escape sequence can produce half of a surrogate pair
            check_encodable(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "invalid_request_error", "invalid_json", "the body is not JSON in UTF-8") from None
    if not isinstance(body, dict):
        raise RequestError("(body)", "is not an object", "Send a JSON object")
    return body


@asynccontextmanager
async def cancel_on_disconnect(request: Request) -> AsyncIterator[None]:
    """Cancel the block when the client disconnects. Raises `ClientDisconnect`.

    The body must have been read before, so that the next event of the connection is its end.
    """
    scope = asyncio.timeout(None)  # the scope expires when the client disconnects

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        scope.reschedule(0.0)

    try:
        async with scope:
            watching = asyncio.create_task(watch())
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
    except TimeoutError:
        if not scope.expired():
            raise
        raise ClientDisconnect from None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
