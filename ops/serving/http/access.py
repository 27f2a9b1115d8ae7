"""Access control by tokens from the environment. Without tokens, only requests from this machine are answered."""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ops.core.errors import ConfigError
from ops.serving.openai.errors import ApiError

TOKENS_VARIABLE = "PODIUM_SERVE_TOKENS"
"""The environment variable that holds the tokens, separated by commas. Several tokens allow one to be replaced without
an interruption."""
MIN_TOKEN_LENGTH = 16
"""The minimum length of a token in characters."""


@dataclass(frozen=True)
class AccessControl:
    """The tokens, of which a request must have one. Without any token, only requests from this machine are allowed."""

    tokens: tuple[bytes, ...]

    @classmethod
    def from_environment(cls, host: str) -> AccessControl:
        """Read the tokens from the environment, for a server that listens on `host`.

        Raises `ConfigError` for a token that is too short, and for a server without tokens that other machines can
        reach.
        """
        tokens = tuple(
            token.encode() for part in os.environ.get(TOKENS_VARIABLE, "").split(",") if (token := part.strip())
        )
        make = f"Set it to a secret: export {TOKENS_VARIABLE}=$(openssl rand -hex 32)"
        if any(len(token) < MIN_TOKEN_LENGTH for token in tokens):
            raise ConfigError(
                "environment", TOKENS_VARIABLE, f"holds a token of fewer than {MIN_TOKEN_LENGTH} characters", make
            )
        if not tokens and not is_loopback(host):
            problem = f"is not set, and {host} can be reached from other machines"
            raise ConfigError("environment", TOKENS_VARIABLE, problem, f"{make}, or listen on 127.0.0.1")
        return cls(tokens)

    def check_request(self, headers: Mapping[str, str]) -> None:
        """Raise `ApiError` unless the request is allowed."""
        if self.tokens:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            brought = token.strip().encode() if scheme.lower() == "bearer" else b""
            right = [
                hmac.compare_digest(brought, known) for known in self.tokens
            ]  # every token is compared, so that the time does not depend on which one matches
            if not any(right):
                words = f"no valid token: send `Authorization: Bearer …` with one of the server's {TOKENS_VARIABLE}"
                raise ApiError(
                    401, "invalid_request_error", "invalid_api_key", words, headers={"www-authenticate": "Bearer"}
                )
            return
        # Without tokens, a page in a browser on this machine could send requests, under a host name that resolves to
        # 127.0.0.1.
        origin = headers.get("origin")
        if not is_loopback(_host_name(headers.get("host", ""))) or (origin and not is_loopback(_host_name(origin))):
            words = f"without {TOKENS_VARIABLE} only programs on this machine are answered"
            raise ApiError(403, "invalid_request_error", "forbidden", words)


def is_loopback(host: str) -> bool:
    """Return whether the address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _host_name(value: str) -> str:
    return urlsplit(value if "//" in value else f"//{value}").hostname or ""
