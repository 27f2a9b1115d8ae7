"""Settings of `config/alerts.yaml`: the channels of alerts, each of which is one URL of Apprise."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import quote, unquote, urlsplit

from pydantic import Field, model_validator

from ops.config.base import KEY_SHAPE, HttpUrl, Settings

if TYPE_CHECKING:
    from apprise import AppriseAsset, NotifyBase

AlertKind = Literal["failure", "budget", "drift", "decision", "promotion"]
ALERT_KINDS: tuple[AlertKind, ...] = get_args(AlertKind)
_VARIABLE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
_SEPARATORS = re.compile(r"[\s/?&=@:;,#]+")
_PLACEHOLDER = "A1b2C3d4E5f6G7h8I9j0K1l2"
"""A value for a variable that is not set. Its form is that of the tokens of most services."""
_LONGEST_URL = 4000


class Channel(Settings):
    """One destination of alerts: a service with an account, a room or an address."""

    url: str
    """A URL of Apprise, such as `slack://…`, `mailtos://…` or `json://…` (github.com/caronc/apprise lists all
    services). `${NAME}` stands for the value of an environment variable, which may be the whole URL. Write secrets only
    in this way, never into the file."""
    kinds: tuple[AlertKind, ...] = ALERT_KINDS
    """The kinds of alerts that are sent to this channel."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that the URL names."""
        return tuple(_VARIABLE.findall(self.url))

    def fill_variables(self) -> str:
        """Return the URL with the values of its variables. Raises `ValueError`, without any value, if one is not
        set."""
        for name in self.variables:
            if not os.environ.get(name):
                raise ValueError(f"the environment variable {name} is not set. Set it, or remove the channel")
        return self._substitute({name: os.environ[name] for name in self.variables})

    def _substitute(self, values: dict[str, str]) -> str:
        if _VARIABLE.fullmatch(self.url):
            return values[self.variables[0]].strip()
        return _VARIABLE.sub(lambda match: quote(values[match[1]], safe=""), self.url)

    # A validator of the whole section, because the message of a field's validator would repeat the URL.
    @model_validator(mode="after")
    def _is_known_and_has_no_secret(self) -> Channel:
        if _VARIABLE.fullmatch(self.url):
            return self
        if not re.match(r"[a-z0-9]+://", self.url) or len(self.url) > _LONGEST_URL or not self.url.isprintable():
            raise ValueError("url: is not a URL: write SERVICE://…, or ${NAME} of a variable that holds one")
        service_name = self.url.partition(":")[0]
        if not is_service(service_name):
            raise ValueError(f"url: {service_name}:// is no service that Apprise knows")
        service = parse_service(self._substitute(dict.fromkeys(self.variables, _PLACEHOLDER)))
        if service is None and not self.variables:
            raise ValueError(f"url: Apprise cannot read this {service_name}:// URL: a part is missing or misspelt")
        written = _VARIABLE.sub("\0", self.url)
        if (
            _has_password(written)
            or KEY_SHAPE.search(written)
            or (service and _masked_parts(service) & _split_url(written))
        ):
            raise ValueError("url: holds a secret. Put it into an environment variable and write ${NAME} in its place")
        if service is not None and has_clear_text_password(service):
            raise ValueError(f"url: the password would be sent in the clear. Write {service_name}s:// instead")
        return self


class Alerts(Settings):
    """Where alerts are sent. They are also recorded in `.podium/alerts.jsonl`."""

    channels: dict[str, Channel] = Field(default_factory=dict)
    """The channels, each with a name. Without channels, alerts are only recorded."""
    timeout_s: float = Field(default=10.0, gt=0, le=60)
    """The time in seconds that a channel may take to connect, and to answer, in one attempt."""
    attempts: int = Field(default=3, ge=1, le=10)
    """The number of attempts to send an alert to a channel. Between them is a pause of two seconds."""
    ui_url: HttpUrl | None = None
    """The base URL of Dagster's web interface for links in alerts, for example `https://dagster.example.org`."""

    @model_validator(mode="after")
    def _names_are_plain(self) -> Alerts:
        if not all(re.fullmatch(r"\w[\w.-]{0,63}", name) for name in self.channels):
            raise ValueError("channels: the name of a channel has 1 to 64 letters, digits, '-', '_' and '.'")
        return self


def is_service(name: str) -> bool:
    """Return whether Apprise has a service of this name; `https` counts, as it reads the webhooks of some services."""
    from apprise import NotificationManager

    return name in ("http", "https") or name in NotificationManager()


def parse_service(url: str, asset: AppriseAsset | None = None) -> NotifyBase | None:
    """Return Apprise's sender for a URL, None if it cannot read it. It logs nothing, since a URL can hold a secret."""
    import apprise

    apprise.logger.disabled, before = True, apprise.logger.disabled
    try:
        service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    finally:
        apprise.logger.disabled = before
    return service if isinstance(service, apprise.NotifyBase) else None


def has_clear_text_password(service: NotifyBase) -> bool:
    """Return whether the URL has a password and names the protocol without encryption."""
    return bool(service.password and service.protocol and not service.secure)


def list_secrets(channel: Channel, service: NotifyBase | None) -> list[str]:
    """Return the texts that no message may repeat, longest first: the values of the variables, their parts behind the
    host, and what Apprise itself masks."""
    found = _masked_parts(service) if service is not None else set()
    for value in (os.environ.get(name, "") for name in channel.variables):
        behind = value.partition("://")[2].partition("/")[2] if "://" in value else value
        found |= {value, quote(value, safe=""), behind, *_split_url(behind), *_userinfo(value)}
    return sorted((text for text in found if len(text) > 3), key=len, reverse=True)


def _masked_parts(service: NotifyBase) -> set[str]:
    """Return the parts of a service's URL that Apprise leaves out where a URL is shown."""
    return _split_url(service.url(privacy=False)) - _split_url(service.url(privacy=True))


def _split_url(url: str) -> set[str]:
    """Return the pieces of a URL between its separators, unquoted; a piece with a variable in it (NUL) is none."""
    pieces = (unquote(piece) for piece in _SEPARATORS.split(url))
    return {piece for piece in pieces if piece and "\0" not in piece}


def _userinfo(url: str) -> set[str]:
    try:
        parts = urlsplit(url)
    except ValueError:  # of an IPv6 address
        return set()
    return {unquote(text) for text in (parts.username, parts.password) if text}


def _has_password(url: str) -> bool:
    try:
        password = urlsplit(url).password
    except ValueError:  # of an IPv6 address
        return False
    return bool(password) and password != "\0"
