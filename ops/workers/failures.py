"""Classify LiteLLM's errors as transient, as a final refusal of the provider, or as an error of our configuration.

The HTTP status is not sufficient: providers send 400 for an account without credit, an unknown model, a context that is
too long and a refusal alike, so their messages are interpreted too. An error of the account, the key or the model name
stops the run. A request that is rejected for any other reason fails individually; `Caller` stops the run if a worker
rejects many requests in a row. A call that ended without an answer may be billed.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path
from typing import Any

from ops.config import Worker
from ops.core.errors import (
    AccountError,
    ConfigError,
    ContextTooLong,
    RequestRejected,
    WorkerError,
    WorkerRefused,
    iterate_causes,
)
from ops.core.messages import Message
from ops.core.reply_text import replace_surrogates
from ops.workers.litellm_private import custom_provider_error
from ops.workers.network import find_network_fault
from ops.workers.provider_messages import ProviderMessage, read_provider_message
from ops.workers.providers import import_litellm
from ops.workers.reply_body import ReplyBody

MAX_WAIT_S = 300.0
"""A provider's Retry-After is respected up to this number of seconds."""
UNREADABLE_WAIT_S = 30.0
"""The wait in seconds after a Retry-After that is neither a non-negative number nor a date."""
_HEADER_CHARS = 64
_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_RETRY_DELAY = re.compile(r"[\"']retryDelay\\*[\"']\s*:\s*\\*[\"']([0-9]{1,12}(?:\.[0-9]{1,12})?)s")
_CODE = re.compile(r"[A-Za-z][A-Za-z_]{1,60}")
_AGAIN = (408, 409, 425)
_NO_MONEY = re.compile(
    r"insufficient[ _](account[ _])?(quota|balance|credit|fund)|billing_(hard_limit|not_active)"
    r"|exceeded_current_quota_error|balance (is |was )?(insufficient|not enough|not sufficient|exhausted|depleted)"
    r"|not enough (account )?(balance|credits?\b|funds\b)|(top[ -]?up|recharge) your (account|balance)"
    r"|credit balance is too low|(used all|run out of|out of) (available )?credits?|account is (suspended|not active)"
)
"""Phrases for an account without credit that do not occur in messages about rate limits (Google's contain "quota …
billing")."""
_ACCOUNT = re.compile(
    _NO_MONEY.pattern
    + r"|payment[ _]required|billing|arrearage|overdue|spending limit|credit limit|api usage limits?|purchase credits"
    r"|account (has been |is |was )?(deactivated|disabled|closed|in arrears)|good standing"
)
"""Anthropic, Google, xAI, DashScope and others send these with status 400 or 403."""
_REGION = re.compile(
    r"(location|country|region|territory)[a-z, ]* (is )?not supported|unsupported_country|request not allowed"
)
"""OpenAI and Anthropic send these with status 403, and Google with 400."""
_TOO_LONG = re.compile(
    r"context[ _](length|window|limit|size)|maximum context|(prompt|input|messages?) (is|are) too long|too many tokens"
    r"|input token count|exceeds the maximum number of tokens|prompt: length|longer than the maximum model length"
    r"|maximum (input|prompt) length|request_too_large"
)
"""Messages of OpenAI, vLLM, Anthropic, Google, Together (status 403), DeepSeek and llama.cpp."""
_CONTEXT = re.compile(r"(?:context|model) (?:length|window) (?:is|of) ([0-9][0-9,]*)")
_CONTENT = re.compile(
    r"content[ _-]?(policy|filter|management|exists risk)|usage polic(y|ies)|safety (system|filter|setting|polic)"
    r"|responsibleai|prohibited[ _]content|inappropriate content|data_?inspection|(was|been|is) flagged|moderation"
    r"|(prompt|response|content|input) was blocked|sensitive (content|information|words?)"
)
"""Messages of OpenAI, Azure, Anthropic, Google, DeepSeek, DashScope and OpenRouter (status 403)."""
_KEY = re.compile(r"api[ _]key (not valid|not found|expired|is invalid)|(invalid|incorrect|expired) api[ _]key")
"""Google sends these with status 400."""
_MODEL = re.compile(
    r"model_(not_found|not_exist|decommissioned|deprecated)|modelnotfound|invalid_model|is not a valid model"
    r"|(invalid|unknown|no such) model( name| id| identifier)?\s*([:,.;'\"`(=]|\w+_|[\w./:@-]*[0-9/])|model not exist"
    r"|model (id |identifier |name )?(([`'\"][\w./:@-]+[`'\"]|[\w./:@-]*[0-9/:-][\w./:@-]*) )?(does not exist|not found"
    r"|is not found|is invalid\b|(has been|is) (deprecated|decommissioned|retired)|is no longer available)"
)
"""DeepSeek, Groq, Mistral, OpenRouter and Bedrock send these with status 400. The model's name is in quotes or contains
a digit."""
_WRONG_ENDPOINT = (404, 405, 410, 415)
_NO_CREDENTIALS = re.compile(
    r"missing (\w+ ){0,3}(credentials|(api|jwt|access|auth) (key|token))\b|default credentials|api_base is required"
)
"""Messages of LiteLLM and the OpenAI library that are raised before anything is sent."""
_CREDENTIAL_ERRORS = {
    "DefaultCredentialsError", "RefreshError", "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound",
    "NoRegionError", "CredentialRetrievalError", "TokenRetrievalError", "UnauthorizedSSOTokenError",
    "SSOTokenLoadError",
}  # fmt: skip
"""Names of exceptions of google.auth and botocore, which may not be installed."""
_LATER = "Wait, and run the same command again; see the provider's status page if it goes on"
_SLOWER = "Lower concurrency or requests_per_minute to what the account may send, and run the same command again"
_LOG_IN = {
    "vertex_ai": "Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file",
    "bedrock": "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION_NAME, or AWS_PROFILE",
    "sagemaker": "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION_NAME, or AWS_PROFILE",
}


class TransientFailure(Exception):
    """A failed attempt that is worth repeating.

    `retry_after_s` is the pause in seconds that the provider requests, and `is_rate_limit` marks a rate limit.
    `final_error` is the error to raise if no further attempt succeeds; with None, the worker is unreachable. `remedy`
    tells the user what to do, and `is_unbilled` marks a call that no provider can have worked on.
    """

    def __init__(
        self,
        what: str,
        retry_after_s: float | None = None,
        *,
        is_rate_limit: bool = False,
        final_error: ConfigError | None = None,
        remedy: str = "",
        is_unbilled: bool = False,
    ) -> None:
        super().__init__(what)
        self.retry_after_s, self.is_rate_limit, self.final_error = retry_after_s, is_rate_limit, final_error
        self.remedy, self.is_unbilled = remedy, is_unbilled


def classify_failure(
    error: Exception,
    worker: Worker,
    file: Path | str,
    *,
    messages: Sequence[Message] = (),
    key: str | None = None,
    has_answered: bool = False,
    body: ReplyBody | None = None,
) -> TransientFailure | WorkerError | ConfigError:
    """Return what a failed LiteLLM call means. Only errors of LiteLLM's own hierarchy are accepted.

    `messages` and `key` are what was sent; the provider's quotations of them are neither interpreted nor shown.
    `has_answered` says that the worker has answered before. Its key is then probably right, and because providers do
    send a 401 during an outage, another attempt is made. `body` is what came with status 200, if LiteLLM could not read
    it.
    """
    what, status = describe_error(error), _read_status(error)
    if (lacking := _missing_requirement(error, worker, file)) is not None:
        return TransientFailure(what, final_error=lacking) if has_answered else lacking
    if (fault := find_network_fault(error, worker, body or ReplyBody())) is not None:
        return TransientFailure(f"{fault.what} ({what})", remedy=fault.remedy, is_unbilled=fault.is_unbilled)
    if status is None or status in _AGAIN or not 400 <= status < 500:
        return TransientFailure(what, _read_retry_after(error), is_rate_limit=status == 529, remedy=_LATER)
    message = read_provider_message(error, messages, key)
    if status == 429 and not _NO_MONEY.search(message.text):
        return TransientFailure(what, _read_retry_after(error), is_rate_limit=True, remedy=_SLOWER)
    kinds = import_litellm().exceptions
    error_classes = () if message.quoted else type(error).__mro__  # LiteLLM classifies by quoted text as well
    if _REGION.search(message.text):
        return AccountError(
            file, f"workers.{worker.name}",
            f"the provider of {worker.model!r} does not serve the place from which it is called ({what}: "
            f"{message.shown!r})",
            "Run it where the provider offers its service, or take another provider's pool",
        )  # fmt: skip
    if _ACCOUNT.search(message.text) or status in (402, 429):
        return AccountError(
            file, f"workers.{worker.name}",
            f"the provider of {worker.model!r} says that its account cannot be used ({what}: {message.shown!r})",
            "Check credit, billing and spending limits with the provider, then run the same command again: "
            "finished calls stay cached",
        )  # fmt: skip
    if status == 413 or kinds.ContextWindowExceededError in error_classes or _TOO_LONG.search(message.text):
        return _too_long(worker, file, message, what)
    if (
        kinds.ContentPolicyViolationError in error_classes
        or _CONTENT.search(message.text)
        or _is_listed_refusal(worker, message)
    ):
        return WorkerRefused(f"worker {worker.name!r} refused the content ({what})")
    if status in (401, 403) or _KEY.search(message.text):
        refused = ConfigError(
            file, f"workers.{worker.name}.api_key_env",
            f"the provider refused the key in {worker.api_key_env or 'use'} ({what})",
            "Check that the key is right, may use this model and has credit",
        )  # fmt: skip
        return TransientFailure(what, final_error=refused) if has_answered and status == 401 else refused
    if status in _WRONG_ENDPOINT or kinds.NotFoundError in error_classes or _MODEL.search(message.text):
        return ConfigError(
            file, f"workers.{worker.name}.model",
            f"the endpoint does not serve {worker.model!r} ({what}: {message.shown!r})", "Check model and api_base",
        )  # fmt: skip
    if not _has_provider_status(error) and (body is None or body.read() is None):
        return ConfigError(
            file, f"workers.{worker.name}", f"LiteLLM does not send the request ({what}: {message.shown!r})",
            "Correct or remove the setting that it names",
        )  # fmt: skip
    return RequestRejected(f"worker {worker.name!r}: the provider rejected the request ({what}: {message.shown!r})")


def all_rejected_error(worker: Worker, file: Path | str, number: int, last: RequestRejected) -> ConfigError:
    """Return the error for a worker that rejected `number` requests in a row, of which `last` is the last one."""
    return ConfigError(
        file, f"workers.{worker.name}", f"{number} requests in a row were rejected and none answered, at last: {last}",
        "Correct or remove the setting that the provider names (temperature, top_k, presence_penalty, max_tokens, "
        "extra_body for example); if the provider refuses a question's content in these words, add some of them "
        "to the worker's refuses_with",
    )  # fmt: skip


def _missing_requirement(error: Exception, worker: Worker, file: Path | str) -> ConfigError | None:
    """Return the error of a call that could not be made because credentials or a package are missing; None for other
    errors."""
    reasons = list(iterate_causes(error))
    root_cause = reasons[-1]
    if isinstance(root_cause, ImportError):
        return ConfigError(
            file, f"workers.{worker.name}.model",
            f"{worker.model!r} needs a Python package that is not installed "
            f"({replace_surrogates(str(root_cause))[:120]})",
            "Install it, or take the worker out of the pool",
        )  # fmt: skip
    missing = [reason for reason in reasons if _is_credential_error(reason)]
    if not _has_provider_status(error) and _NO_CREDENTIALS.search(str(root_cause).lower()):
        missing.append(root_cause)
    if not missing:
        return None
    log_in = (words for provider, words in _LOG_IN.items() if worker.model.startswith(provider))
    return ConfigError(
        file, f"workers.{worker.name}.api_key_env",
        f"there are no usable credentials for {worker.model!r} ({type(missing[0]).__name__})",
        next(log_in, "Name the environment variable that holds the key"),
    )  # fmt: skip


def _has_provider_status(error: BaseException) -> bool:
    """Return whether the provider sent an error status, rather than LiteLLM refusing the call on this machine."""
    import httpx

    return any(isinstance(reason, (httpx.HTTPStatusError, custom_provider_error())) for reason in iterate_causes(error))


def _is_credential_error(error: BaseException) -> bool:
    """Return whether google.auth or botocore found no usable credentials."""
    library = type(error).__module__.partition(".")[0]
    known = library in ("google", "botocore") and type(error).__name__ in _CREDENTIAL_ERRORS
    return known and not getattr(error, "retryable", False)


def _too_long(worker: Worker, file: Path | str, words: ProviderMessage, what: str) -> WorkerError | ConfigError:
    """Return the error for messages that are too long, or for a `max_tokens` that leaves no room for any message."""
    limit = _CONTEXT.search(words.text)
    if limit and worker.max_tokens >= int(limit[1].replace(",", "")):
        return ConfigError(
            file, f"workers.{worker.name}.max_tokens",
            f"{worker.max_tokens} leaves nothing of the model's {limit[1]} tokens for a prompt ({what})",
            "Lower it",
        )  # fmt: skip
    return ContextTooLong(f"worker {worker.name!r}: the messages do not fit into its context ({what})")


def _is_listed_refusal(worker: Worker, words: ProviderMessage) -> bool:
    """Return whether the provider refused in words that the pool lists (`refuses_with`)."""
    return any(phrase.lower() in words.text for phrase in worker.refuses_with)


def _read_status(error: BaseException) -> int | None:
    """Return the HTTP status that the provider sent; None if there is none.

    The status of LiteLLM's own error may be another one, which LiteLLM derived from the message.
    """
    codes = (getattr(reason, "status_code", None) for reason in iterate_causes(error))
    return next((code for code in reversed(list(codes)) if isinstance(code, int)), None)


def describe_error(error: Exception) -> str:
    """Return the class, status and the provider's error code, which suffice for a search and contain no secrets."""
    parts = [type(error).__name__]
    if isinstance(status := getattr(error, "status_code", None), int):
        parts.append(str(status))
    if isinstance(code := getattr(error, "code", None), str) and _CODE.fullmatch(code):
        parts.append(code)
    cause = error.__cause__ or error.__context__
    if cause is not None:
        parts.append(f"from {type(cause).__name__}")
    return " ".join(parts)


def parse_retry_after(value: str, now: float) -> float:
    """Return the wait in seconds of a Retry-After header, from 0 to `MAX_WAIT_S` for any content.

    The header contains seconds or a date (RFC 9110, section 10.2.3). `now` is in seconds since the epoch. A past date
    means a wait of 0, and a date beyond the end of the calendar the longest wait.
    """
    value = value.strip()[:_HEADER_CHARS]
    try:
        seconds = float(value)
    except ValueError:
        date = _parse_date(value)
        if date is None:
            return UNREADABLE_WAIT_S
        return min(max(date - now, 0.0), MAX_WAIT_S)
    return min(seconds, MAX_WAIT_S) if seconds >= 0 else UNREADABLE_WAIT_S  # NaN is not >= 0


def _parse_date(value: str) -> float | None:
    """Return a date in seconds since the epoch, infinity for a year beyond the clock's range, and None if it is not a
    date."""
    try:
        parsed = parsedate_tz(value)
        return None if parsed is None else float(mktime_tz(parsed))
    except (ValueError, OverflowError, IndexError):
        return math.inf if re.search(r"[0-9]{5}", value) else None


def _read_retry_after(error: Any) -> float | None:
    response = getattr(error, "response", None)
    for headers in (getattr(error, "litellm_response_headers", None), getattr(response, "headers", None)):
        if not headers:
            continue
        if value := str(headers.get("retry-after") or "").strip():
            return parse_retry_after(value, time.time())
        if _SECONDS.fullmatch(value := str(headers.get("retry-after-ms") or "").strip()):  # OpenAI, Azure
            return min(float(value) / 1000, MAX_WAIT_S)
    return _read_retry_info(error, response)


def _read_retry_info(error: Exception, response: Any) -> float | None:
    """Return the wait that Google requests in the body of an error (`error.details[].retryDelay`, for example
    "17s")."""
    texts = [str(getattr(cause, "message", "") or cause) for cause in iterate_causes(error)]
    if getattr(response, "is_stream_consumed", False):
        texts.append(response.text)
    found = next((match for text in texts if (match := _RETRY_DELAY.search(text)) is not None), None)
    return None if found is None else parse_retry_after(found[1], time.time())


def may_be_billed(error: BaseException) -> bool:
    """Return whether the provider may bill a call that was sent and ended in this error.

    It does not bill a call that it answered with an error status, or that never left this machine because a connection,
    credentials or a package were missing. It may bill a call after a time-out, a cancellation or a broken connection.
    """
    import aiohttp
    import httpx

    if isinstance(error, ConfigError) or getattr(error, "final_error", None) is not None:
        return False
    if getattr(error, "is_unbilled", False):
        return False
    unserved = (httpx.ConnectTimeout, aiohttp.ClientConnectorError)
    return not _has_provider_status(error) and not any(isinstance(cause, unserved) for cause in iterate_causes(error))
