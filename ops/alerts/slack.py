"""Slack: one POST of JSON to an incoming webhook."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from ops.alerts.channel import NotDelivered, TryAgain, unlogged
from ops.alerts.notice import Notice
from ops.config import Slack

LONGEST_TEXT = 3000
"""Characters: longer messages Slack cuts or refuses."""


@dataclass(frozen=True)
class SlackChannel:
    """Posts to the webhook whose URL the environment holds."""

    settings: Slack
    timeout_s: float
    name: str = "slack"

    def deliver(self, notice: Notice) -> None:
        """One POST. Raises `TryAgain`, `NotDelivered`; neither repeats the URL, which is a secret."""
        import httpx

        variable = self.settings.webhook_env
        url = os.environ.get(variable, "")
        if not _is_url(url):
            what = "is not a URL" if url else "is not set"
            raise NotDelivered(f"slack: the environment variable {variable} {what}. Put the webhook's URL there")
        try:
            with unlogged("httpx", "httpcore"):
                answer = httpx.post(url, json={"text": text_of(notice)}, timeout=self.timeout_s)
        except (httpx.TimeoutException, httpx.TransportError) as error:
            raise TryAgain(f"slack: the webhook in {variable} does not answer ({type(error).__name__})") from None
        except (httpx.InvalidURL, ValueError):
            raise NotDelivered(f"slack: the URL in {variable} cannot be read. Copy it again") from None
        if answer.status_code == 429 or answer.status_code >= 500:
            raise TryAgain(f"slack: the webhook answered {answer.status_code}", _seconds(answer.headers))
        if not answer.is_success:  # a redirection, too: nobody has read it
            remedy = f"Look whether the webhook in {variable} still exists"
            raise NotDelivered(f"slack: the webhook answered {answer.status_code}. {remedy}")


def text_of(notice: Notice) -> str:
    """The message in Slack's own mark-up, in which &, < and > mean something else."""
    whole = f"*{_escaped(notice.heading)}*\n{_escaped(notice.body)}".strip()
    return whole if len(whole) <= LONGEST_TEXT else whole[: LONGEST_TEXT - 1] + "…"


def _is_url(text: str) -> bool:
    try:
        return urlsplit(text).scheme in ("http", "https")
    except ValueError:  # an address that is none: [::1
        return False


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _seconds(headers: object) -> float:
    try:
        return float(headers.get("retry-after", 0))  # type: ignore[attr-defined]
    except ValueError:  # a date: rare, and the usual pause does
        return 0.0
