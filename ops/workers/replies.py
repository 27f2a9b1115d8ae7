"""Reading a provider's reply: the response in it, and whether it is one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.config import Worker
from ops.core.errors import ConfigError, WorkerRefused
from ops.core.response import Message, Response
from ops.workers.failures import Transient
from ops.workers.providers import cost_usd
from ops.workers.usage import LONGEST_TOKEN_CHARS, BookedUsage, usage_of
from ops.workers.words import valid_text

SHORTEST_BOUND_CHARS = 100_000
_DATED = re.compile(r"([-@:.]?(latest|\d{3,8}(-\d{2}){0,2}))?")
"""What providers put behind a model's name: a release."""
_BROKEN = ("error", "no_choices")
_WITHHELD = "content_filter"


def read_reply(
    worker: Worker, messages: Sequence[Message], reply: Any, elapsed_s: float, retries: int
) -> tuple[Response, BookedUsage]:
    """The response in LiteLLM's reply, priced by the usage that stands beside it."""
    text, reason = _content(reply)
    usage = usage_of(worker, messages, reply, text, reason)
    response = Response(
        text=text,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=cost_usd(worker, usage.prompt_tokens, usage.completion_tokens),
        latency_s=elapsed_s if worker.latency_s is None else worker.latency_s,
        finish_reason=reason,
        retries=retries,
    )
    return response, usage


def judge(
    worker: Worker, reply: Any, response: Response, *, worked: bool, file: Path | str, last: bool = False
) -> Transient | WorkerRefused | ConfigError | None:
    """Why a reply that was paid for is not the worker's response; None when it is.

    Blank, longer than its `max_tokens` can be, or from another model: worth another try. A reply that was cut off at
    `max_tokens` (finish_reason "length") is the response even where it is blank: the next one would be cut off too.
    `last`: no attempt follows. Then a blank reply for which tokens were made is the response as well.
    """
    if response.finish_reason == _WITHHELD:
        return _withheld(worker)
    if (other := _other_model(worker, reply)) is not None:
        return _impostor(worker, other, worked, file)
    is_final = response.finish_reason == "length" or (last and response.completion_tokens > 0)
    if response.finish_reason in _BROKEN or (response.is_blank and not is_final):
        return Transient(f"an empty reply ({response.finish_reason})")
    if len(response.text) > _most_chars(worker):
        return Transient(f"a reply of {len(response.text)} characters, more than max_tokens can make")
    return None


def stored(worker: Worker, response: Response) -> Response:
    """A response from the cache. Raises `WorkerRefused` where the provider's content filter withheld the answer: that
    was paid for as well, and is not asked again."""
    if response.finish_reason == _WITHHELD:
        raise _withheld(worker)
    return response


def _withheld(worker: Worker) -> WorkerRefused:
    return WorkerRefused(f"worker {worker.name!r}: the provider's content filter withheld the answer")


def _content(reply: Any) -> tuple[str, str]:
    if not reply.choices:
        return "", "no_choices"
    choice = reply.choices[0]
    return valid_text(choice.message.content or ""), valid_text(str(choice.finish_reason or "stop"))


def _most_chars(worker: Worker) -> int:
    return max(worker.max_tokens * LONGEST_TOKEN_CHARS, SHORTEST_BOUND_CHARS)


def _other_model(worker: Worker, reply: Any) -> str | None:
    """The model that answered, if it is not the one that was asked; releases of one model are the same."""
    answered = str(getattr(reply, "model", None) or "")
    model = worker.model_in_replies or worker.model
    if not answered or answered == model or model.endswith(answered):
        return None
    names = (name.lower().rpartition("/")[2].removesuffix("-latest") for name in (model, answered))
    shorter, longer = sorted(names, key=len)
    same = longer.startswith(shorter) and _DATED.fullmatch(longer[len(shorter) :])
    return None if same else answered


def _impostor(worker: Worker, answered: str, worked: bool, file: Path | str) -> Transient | ConfigError:
    shown = answered[:80] if re.fullmatch(r"[-\w./:@ ]+", answered[:80]) else "an unreadable name"
    if worked:  # for example a gateway that falls back to another model because the requested one is unavailable
        return Transient(f"the answer of another model ({shown})")
    return ConfigError(
        file, f"workers.{worker.name}.model", f"{worker.model!r} was asked and {shown!r} answered",
        "Check model and api_base; if the endpoint calls the model so, write it as model_in_replies",
    )  # fmt: skip
