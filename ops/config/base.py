"""The base of every settings model, the digest used in keys, and the difference between a setting and a provider's key.

No file holds a key and no message repeats one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}"
"""Regular expression of names that may become part of a file name."""
Name = Annotated[str, Field(pattern=f"^{NAME}$")]
PoolName = Annotated[str, Field(pattern=f"^{NAME}(:{NAME})?$")]
"""`NAME` of a file in config/pools, or `NAME:VARIANT`."""
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]


DAY_S = 86_400.0
"""Seconds of a day: the longest time-out or pause that a file may set."""


class Settings(BaseModel):
    """Base of every model here: unknown keys are errors and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def from_file_values(cls, values: Any) -> Self:
        """Validate settings written by a person.

        A text or a truth value is not accepted as a number, nor a number as a text. Raises `ValidationError`.
        """
        return cls.model_validate_json(json.dumps(values), strict=True)


def digest(value: object) -> str:
    """Return twelve hex digits of the SHA-256 of `value`'s canonical JSON, for content keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


KEY_SHAPE = re.compile(
    r"\b(sk|pk|xai|gsk|r8|nvapi|pplx|fw|tgp)[-_][-_A-Za-z0-9]{20,}|\bhf_[A-Za-z0-9]{20,}"  # most providers
    r"|\bAIza[-_A-Za-z0-9]{20,}"  # Google
    r"|\bAKIA[A-Z0-9]{16}\b"  # AWS
    r"|\bBearer\s+[-_.A-Za-z0-9]{12,}"
)
"""The form of keys. A text that matches very likely contains one."""
_KEY_NAME = re.compile(
    r"(^|.*[-_])(api[-_]?key|(access|private|secret|subscription)[-_]key|secret|password|authorization|auth[-_]token)"
    r"|key|token",
    re.IGNORECASE,
)
_KEY_CHARACTERS = re.compile(r"[!-~]+")
_REMEDY = "put it into an environment variable and name that in api_key_env"


def is_key_name(name: str) -> bool:
    """Return whether a setting of that name can only hold a key (`max_tokens` cannot, `x-api-key` can)."""
    return _KEY_NAME.fullmatch(name) is not None


def key_problem(variable: str) -> str | None:
    """Return why the environment variable holds no usable key, without its value."""
    key = os.environ.get(variable)
    if not key:
        return "is not set"
    if any(character.isspace() for character in key):
        return "holds white space, a line break for example"
    return None if _KEY_CHARACTERS.fullmatch(key) else "holds characters that no key has"


_HUB_TIMEOUT_S = 10.0
"""Seconds for the question to the hub."""


def has_hub_token() -> bool:
    """Return whether this machine has a token of the Hugging Face hub, in HF_TOKEN or as `hf auth login` stores it."""
    if os.environ.get("HF_TOKEN"):
        return True
    from huggingface_hub import get_token

    return get_token() is not None


def is_refused_by_hub(dataset: str) -> bool:
    """Return whether the hub says that the token's account has not accepted a gated dataset's terms.

    One small request. A hub that does not answer refuses nothing: the loading of the rows reports it.
    """
    import httpx
    from huggingface_hub import get_token

    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    if os.environ.get("HF_HUB_OFFLINE"):
        return False
    headers = {"authorization": f"Bearer {os.environ.get('HF_TOKEN') or get_token()}"}
    try:
        reply = httpx.get(f"{hub}/api/datasets/{dataset}/auth-check", headers=headers, timeout=_HUB_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    return reply.status_code in (401, 403) and reply.headers.get("x-error-code") == "GatedRepo"


def find_key_in_url(url: str) -> str | None:
    """Return what part of a URL is a key, in words; None if there is none."""
    parts = urlsplit(url)
    if parts.username or parts.password:
        return f"holds a user or a password: {_REMEDY}"
    for name, value in parse_qsl(parts.query):
        if is_key_name(name) or KEY_SHAPE.search(value):
            return f"holds a key in its query ({name}=…): {_REMEDY}"
    return None


def check_http_url(url: str) -> str:
    """Return the URL. Raises `ValueError` unless it is the address of an HTTP server and contains no key."""
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port or of an IPv6 address
        is_http = False
    if is_http and (secret := find_key_in_url(url)):
        raise ValueError(secret)
    if not is_http or any(character <= " " for character in url):
        raise ValueError("is not the URL of an HTTP server: write http://HOST:PORT/v1 or https://HOST, with its path")
    return url


HttpUrl = Annotated[str, AfterValidator(check_http_url)]
"""The address of an HTTP server, without a key."""


def find_key(values: Mapping[str, Any]) -> str | None:
    """Return what in a nested mapping is a key, in words, with its path; None if there is none."""
    for path, value in _iterate_leaves(values, ()):
        if any(is_key_name(part) for part in path) or (isinstance(value, str) and KEY_SHAPE.search(value)):
            return f"holds a key at {'.'.join(path)}: {_REMEDY}"
    return None


def _iterate_leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _iterate_leaves(inner, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _iterate_leaves(inner, (*path, str(index)))
    else:
        yield path, value
