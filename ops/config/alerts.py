"""Who is told what has happened: `config/alerts.yaml`. Secrets are named there and lie in the environment."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, model_validator

from ops.config.base import Settings

AlertKind = Literal["failure", "budget", "drift", "decision", "promotion"]
KINDS: tuple[AlertKind, ...] = get_args(AlertKind)
_VARIABLE = r"^[A-Z][A-Z0-9_]*$"


class Slack(Settings):
    """An incoming webhook of Slack, or of whatever takes its JSON (Mattermost, a relay of one's own)."""

    webhook_env: str = Field(default="PODIUM_SLACK_WEBHOOK", pattern=_VARIABLE)
    """The environment variable that holds the webhook's URL, which is a secret."""
    kinds: tuple[AlertKind, ...] = KINDS
    """Kinds of notices that are posted."""


class Mail(Settings):
    """A mail server that takes our messages."""

    host: str = Field(min_length=1)
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    """"none" sends in the clear: for a relay on this machine."""
    user: str | None = None
    """None: the server asks for no password."""
    password_env: str = Field(default="PODIUM_SMTP_PASSWORD", pattern=_VARIABLE)
    """The environment variable that holds the user's password."""
    sender: str = Field(min_length=3, pattern=r"^[^\s@]+@[^\s@]+$")
    to: tuple[str, ...] = Field(min_length=1)
    kinds: tuple[AlertKind, ...] = KINDS
    """Kinds of notices that are sent."""

    @model_validator(mode="after")
    def _a_password_is_not_sent_in_the_clear(self) -> Mail:
        if self.user is not None and self.security == "none":
            raise ValueError("user: a password would be sent in the clear. Set security to starttls or tls")
        return self


class Alerts(Settings):
    """Where notices go. They are always kept in `.podium/alerts.jsonl`."""

    slack: Slack | None = None
    """None: nothing is posted."""
    mail: Mail | None = None
    """None: nothing is sent."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Seconds for one attempt of a channel."""
    attempts: int = Field(default=3, ge=1)
    """Attempts after a time-out, a lost connection, 429 or 5xx, with pauses."""
    ui_url: str | None = None
    """Base URL of the Dagster UI for links in notices: `https://dagster.example.org`."""
