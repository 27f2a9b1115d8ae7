"""Read a provider's reply: the response, whether it is valid, and the usage to book.

The usage in a reply is a claim of the provider and is checked before it is booked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from ops.config import Worker
from ops.core.errors import ConfigError, WorkerRefused
from ops.core.response import Message, Response
from ops.workers.failures import Transient
from ops.workers.providers import cost_usd, litellm, most_tokens
from ops.workers.words import valid_text

LONGEST_TOKEN_CHARS = 128
"""No tokenizer in use has a longer token (runs of spaces are the longest)."""
HIDDEN_PROMPT_TOKENS = 2_048
"""Tokens that a provider may add before the messages: a chat template, its own system prompt."""
OVERRUN_TOKENS = 64
"""Tokens that a provider may count beyond `max_tokens`: marks of the end, of thinking, of a tool."""
COUNTED_CHARS = 100_000
"""The longest text that a tokenizer counts here, because its time grows with the square of a text without spaces."""
_COUNTS_DIFFER = 4
"""The largest ratio between two tokenizers' token counts of ASCII text."""
_CHARS_OF_MOST_TOKENS = 8
"""A claim of less than one token per this many characters is compared with our own count, because words are shorter."""


class BookedUsage(NamedTuple):
    """The booked usage of a reply (tokens)."""

    prompt_tokens: int
    completion_tokens: int
    impossible: str | None = None
    """The impossible claim with the possible range; then the worst case is booked."""


def usage_of(worker: Worker, messages: Sequence[Message], reply: Any, text: str, finish_reason: str) -> BookedUsage:
    """Return the provider's counts if they are possible, or our own if it gives none.

    An impossible count is replaced by the most that the request could use, or by the delivered amount if that is more:
    `impossible` then names it.
    """
    claim = getattr(reply, "usage", None)
    most = most_tokens(messages)
    prompt = _checked(
        "prompt", getattr(claim, "prompt_tokens", None),
        text="".join(message["content"] for message in messages), high=most + HIDDEN_PROMPT_TOKENS,
    )  # fmt: skip
    completion = _checked("completion", _completion(claim), text=text, high=worker.max_tokens + OVERRUN_TOKENS)
    impossible = [each for each in (prompt, completion) if isinstance(each, str)]
    if prompt is None:
        prompt = min(_counted(messages), most)
    if completion is None:
        counted = _counted(text)
        completion = max(worker.max_tokens if finish_reason == "length" else counted, _fewest(len(text)))
        if counted > _COUNTS_DIFFER * worker.max_tokens + OVERRUN_TOKENS:
            impossible.append(f"an answer of about {counted:,} tokens, and max_tokens allows {worker.max_tokens:,}")
            completion = max(counted, completion)
    return BookedUsage(
        prompt if isinstance(prompt, int) else most,
        completion if isinstance(completion, int) else _delivered(_completion(claim), text, worker.max_tokens),
        " and ".join(impossible) or None,
    )


def not_believed(worker: Worker, impossible: str, file: Path | str) -> ConfigError:
    """Return the error that stops further calls to a worker after an impossible claim."""
    return ConfigError(
        file, f"workers.{worker.name}",
        f"the usage that its provider reports is impossible, so no further call is made to {worker.model!r}: "
        f"{impossible}",
        "The call was recorded at its highest possible cost. Check with the provider whether the endpoint respects "
        "max_tokens and counts tokens, or take the worker out of the pool, then run the same command again: finished "
        "calls stay cached",
    )  # fmt: skip


def _completion(claim: Any) -> object:
    """Return completion tokens including those of thinking, which some providers count separately."""
    completion = getattr(claim, "completion_tokens", None)
    thought = getattr(getattr(claim, "completion_tokens_details", None), "reasoning_tokens", None)
    if _is_count(completion) and _is_count(thought) and thought > completion >= 0:
        return completion + thought
    return completion


def _is_count(claim: object) -> TypeGuard[int]:
    return isinstance(claim, int) and not isinstance(claim, bool)


def _checked(side: str, claim: object, *, text: str, high: int) -> int | str | None:
    """Return the claimed tokens of `text`; None without a claim (LiteLLM turns a missing one into 0); else why it is
    impossible."""
    if claim is None or (_is_count(claim) and claim == 0):
        return None
    low = _fewest(len(text))
    if _is_count(claim) and low <= claim < len(text) / _CHARS_OF_MOST_TOKENS:
        low = max(low, _counted(text[:COUNTED_CHARS].encode("ascii", "ignore").decode()) // _COUNTS_DIFFER)
    if _is_count(claim) and low <= claim <= high:
        return int(claim)
    shown = repr(claim)
    return f"{shown if len(shown) <= 24 else shown[:24] + '…'} {side} tokens, where {low:,} to {high:,} are possible"


def _delivered(claim: object, text: str, max_tokens: int) -> int:
    size = len(text.encode(errors="replace"))
    if _is_count(claim) and max_tokens < claim <= size:  # a provider that ignores max_tokens, and counts what it sends
        return max(int(claim), _fewest(len(text)))
    return max(max_tokens, _counted(text))


def _fewest(chars: int) -> int:
    return -(-chars // LONGEST_TOKEN_CHARS)


def _counted(what: str | Sequence[Message]) -> int:
    """Count tokens of a text or of messages with any tokenizer; of a very long text, by its bytes."""
    text = what if isinstance(what, str) else "".join(message["content"] for message in what)
    if not text:
        return 0
    if len(text) > COUNTED_CHARS:
        return -(-len(text.encode(errors="replace")) // 4)
    return int(litellm().token_counter(**({"text": what} if isinstance(what, str) else {"messages": list(what)})))


SHORTEST_BOUND_CHARS = 100_000
_DATED = re.compile(r"([-@:.]?(latest|\d{3,8}(-\d{2}){0,2}))?")
"""Suffixes with which providers mark a model's release."""
_BROKEN = ("error", "no_choices")
_WITHHELD = "content_filter"


def read_reply(
    worker: Worker, messages: Sequence[Message], reply: Any, elapsed_s: float, retries: int
) -> tuple[Response, BookedUsage]:
    """Return the response in LiteLLM's reply, priced by the booked usage."""
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
    """Return why a paid reply is not the worker's response; None if it is.

    A blank reply, one longer than its `max_tokens` allows, or one from another model is worth another attempt. A reply
    that was cut at `max_tokens` (finish_reason "length") is the response even if it is blank, because the next one
    would be cut too. `last`: no attempt follows; then a blank reply with paid tokens is the response as well.
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
    """Return a cached response.

    Raises `WorkerRefused` if the provider's content filter withheld the answer: that was paid for too, and is not
    requested again.
    """
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
    """Return the model that answered if it is not the requested one; releases of one model count as the same."""
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
        file, f"workers.{worker.name}.model", f"{worker.model!r} was requested, and {shown!r} answered",
        "Check model and api_base; if the endpoint uses that name for the model, set model_in_replies to it",
    )  # fmt: skip
