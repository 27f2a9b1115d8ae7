"""Reading LiteLLM's errors: is it worth trying again, the provider's last word, or our configuration?

A status says little: providers send 400 for an empty account, a wrong parameter, a long context and a refusal alike,
so their words are read too. What no row of the table knows stops the run, since a policy would learn from it that the
worker is wrong.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path
from typing import Any

from ops.config import Worker
from ops.core.errors import AccountError, ConfigError, ContextTooLong, WorkerError, WorkerRefused
from ops.core.response import Message
from ops.workers.providers import litellm
from ops.workers.words import Words, words_of

LONGEST_WAIT_S = 300.0
"""A provider's Retry-After is honoured up to here (seconds)."""
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_CODE = re.compile(r"[A-Za-z][A-Za-z_]{1,60}")
_AGAIN = (408, 409, 425)
_SPENT = re.compile(
    r"insufficient[ _](quota|balance|credit|fund)|billing_(hard_limit|not_active)|exceeded_current_quota_error"
    r"|credit balance is too low|(used all|run out of|out of) (available )?credits?|account is (suspended|not active)"
)
"""An account without money, in words that no limit per minute shares (Google says "quota … billing" for those)."""
_ACCOUNT = re.compile(
    _SPENT.pattern
    + r"|payment[ _]required|billing|arrearage|overdue|spending limit|credit limit|api usage limits?|purchase credits"
    r"|account (has been |is |was )?(deactivated|disabled|closed|in arrears)|good standing"
    r"|(location|country|region|territory)[a-z, ]* (is )?not supported"
)
"""Anthropic, Google, xAI and DashScope among others send these with 400 or 403."""
_TOO_LONG = re.compile(
    r"context[ _](length|window|limit|size)|maximum context|(prompt|input|messages?) (is|are) too long|too many tokens"
    r"|input token count|exceeds the maximum number of tokens|prompt: length|longer than the maximum model length"
    r"|maximum (input|prompt) length|request_too_large"
)
"""OpenAI, vLLM, Anthropic, Google, Together (403), DeepSeek, llama.cpp."""
_CONTEXT = re.compile(r"(?:context|model) (?:length|window) (?:is|of) ([0-9][0-9,]*)")
_CONTENT = re.compile(
    r"content[ _-]?(policy|filter|management|exists risk)|usage polic(y|ies)|safety (system|filter|setting|polic)"
    r"|responsibleai|prohibited[ _]content|inappropriate content|data_?inspection|(was|been|is) flagged|moderation"
    r"|(prompt|response|content|input) was blocked|sensitive (content|information|words?)"
)
"""OpenAI, Azure, Anthropic, Google, DeepSeek, DashScope, OpenRouter (403)."""
_KEY = re.compile(r"api[ _]key (not valid|not found|expired|is invalid)|(invalid|incorrect|expired) api[ _]key")
"""Google sends these with 400."""


class Transient(Exception):
    """An attempt that may go better next time.

    `retry_after_s` is the provider's own wish, `crowded` says that it met a rate limit, and
    `in_the_end` is what it means if no further attempt goes better (None: unreachable).
    """

    def __init__(
        self,
        what: str,
        retry_after_s: float | None = None,
        *,
        crowded: bool = False,
        in_the_end: ConfigError | None = None,
    ) -> None:
        super().__init__(what)
        self.retry_after_s, self.crowded, self.in_the_end = retry_after_s, crowded, in_the_end


def read_failure(
    error: Exception,
    worker: Worker,
    file: Path | str,
    *,
    messages: Sequence[Message] = (),
    key: str | None = None,
    worked: bool = False,
) -> Transient | WorkerError | ConfigError:
    """What a failed LiteLLM call means. Give it only errors of LiteLLM's own hierarchy.

    `messages` and `key` are what was sent: where the provider quotes them they are neither read as its words
    nor shown. `worked`: the worker has answered before. A key that was right a minute ago is hardly wrong now:
    providers do send a 401 in the midst of an outage, and one is worth another try.
    """
    what, status = describe(error), _status(error)
    if status is None or status in _AGAIN or not 400 <= status < 500:
        return Transient(what, _retry_after(error), crowded=status == 529)
    words = words_of(error, messages, key)
    if status == 429 and not _SPENT.search(words.text):
        return Transient(what, _retry_after(error), crowded=True)
    kinds = litellm().exceptions
    own = () if words.quoted else type(error).__mro__  # LiteLLM reads what is quoted as well
    if _ACCOUNT.search(words.text) or status in (402, 429):
        return AccountError(
            file, f"workers.{worker.name}",
            f"the provider of {worker.model!r} says that its account cannot be used ({what}: {words.shown!r})",
            "Settle it with the provider (credit, billing, spending limits), then run the same command again: "
            "what is done stays cached",
        )  # fmt: skip
    if status == 413 or kinds.ContextWindowExceededError in own or _TOO_LONG.search(words.text):
        return _too_long(worker, file, words, what)
    if kinds.ContentPolicyViolationError in own or _CONTENT.search(words.text) or _named(worker, words):
        return WorkerRefused(f"worker {worker.name!r} refused the content ({what})")
    if status in (401, 403) or _KEY.search(words.text):
        refused = ConfigError(
            file, f"workers.{worker.name}.api_key_env",
            f"the provider refused the key in {worker.api_key_env or 'use'} ({what})",
            "Check that the key is right, may use this model and has credit",
        )  # fmt: skip
        return Transient(what, in_the_end=refused) if worked and status == 401 else refused
    if status == 404 or isinstance(error, kinds.NotFoundError):
        return ConfigError(
            file, f"workers.{worker.name}.model", f"the endpoint does not know {worker.model!r} ({what})",
            "Check model and api_base",
        )  # fmt: skip
    return ConfigError(
        file, f"workers.{worker.name}",
        f"the provider of {worker.model!r} does not take the request ({what}: {words.shown!r})",
        "Mend or remove the setting that it names (top_k, presence_penalty, max_tokens for example); if these are "
        "the words in which it refuses a question's content, add some of them to the worker's refuses_with",
    )  # fmt: skip


def _too_long(worker: Worker, file: Path | str, words: Words, what: str) -> WorkerError | ConfigError:
    """The messages are too long, or `max_tokens` alone leaves no room for any."""
    limit = _CONTEXT.search(words.text)
    if limit and worker.max_tokens >= int(limit[1].replace(",", "")):
        return ConfigError(
            file, f"workers.{worker.name}.max_tokens",
            f"{worker.max_tokens} leaves nothing of the model's {limit[1]} tokens for a prompt ({what})",
            "Lower it",
        )  # fmt: skip
    return ContextTooLong(f"worker {worker.name!r}: the messages do not fit into its context ({what})")


def _named(worker: Worker, words: Words) -> bool:
    """Whether the provider refused in words that the pool names."""
    return any(phrase.lower() in words.text for phrase in worker.refuses_with)


def _status(error: BaseException) -> int | None:
    """The provider's own HTTP status: LiteLLM's class may stand for another one, which it read out of a text."""
    status = None
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(code := getattr(reason, "status_code", None), int):
            status = code
        reason = reason.__cause__ or reason.__context__
    return status


def describe(error: Exception) -> str:
    """Class, status and the provider's error code: enough to look it up, nothing that is secret."""
    parts = [type(error).__name__]
    if isinstance(status := getattr(error, "status_code", None), int):
        parts.append(str(status))
    if isinstance(code := getattr(error, "code", None), str) and _CODE.fullmatch(code):
        parts.append(code)
    cause = error.__cause__ or error.__context__
    if cause is not None:
        parts.append(f"from {type(cause).__name__}")
    return " ".join(parts)


def _retry_after(error: Any) -> float | None:
    """Seconds to wait; the header holds seconds or a date (RFC 9110, section 10.2.3)."""
    response = getattr(error, "response", None)
    for headers in (getattr(error, "litellm_response_headers", None), getattr(response, "headers", None)):
        value = str(headers.get("retry-after") or "") if headers else ""
        if _SECONDS.fullmatch(value):
            return min(float(value), LONGEST_WAIT_S)
        if (date := parsedate_tz(value)) is not None:
            return min(max(mktime_tz(date) - time.time(), 0.0), LONGEST_WAIT_S)
    return None
