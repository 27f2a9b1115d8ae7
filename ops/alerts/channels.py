"""Channels that send a notice: e-mail by the standard library, and Slack by one POST of JSON to an incoming webhook."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from ops.alerts.catalogue import Notice
from ops.config import Mail, Slack
from ops.core.errors import PodiumError

if TYPE_CHECKING:
    import smtplib


class NotDelivered(PodiumError):
    """A channel did not accept a notice; the message names channel, reason and remedy, and contains no secret."""


class TryAgain(NotDelivered):
    """A transient failure of delivery; `after_s`: the pause in seconds that the channel requested."""

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class Channel(Protocol):
    """One way to send a notice."""

    @property
    def name(self) -> str:
        """Name of the channel in its deliveries."""
        ...

    def deliver(self, notice: Notice) -> None:
        """Make one attempt. Raises `TryAgain` if another attempt may succeed, else `NotDelivered`."""
        ...


@dataclass(frozen=True)
class Delivery:
    """Result of sending a notice through one channel."""

    channel: str
    problem: str = ""
    """Reason of the failure; empty if the notice was accepted."""

    @property
    def taken(self) -> bool:
        return not self.problem


LONGEST_PAUSE_S = 30.0
"""Longest pause in seconds, even if a channel requests a longer one, because a run waits for its notice."""


def attempt(send: Callable[[], None], attempts: int, first_pause_s: float = 1.0) -> None:
    """Call `send` until it does not raise `TryAgain`, at most `attempts` times. Raises the error of the last
    attempt."""
    from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

    usual = wait_exponential_jitter(initial=first_pause_s, max=LONGEST_PAUSE_S, jitter=first_pause_s)

    def pause(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.after_s if isinstance(error, TryAgain) else 0.0
        return min(max(asked, usual(state)), LONGEST_PAUSE_S)

    again = retry_if_exception_type(TryAgain)
    Retrying(retry=again, stop=stop_after_attempt(attempts), wait=pause, reraise=True)(send)


@contextmanager
def unlogged(*names: str) -> Iterator[None]:
    """Silence these loggers inside the block: httpx logs every URL at INFO, and a webhook's URL is a secret."""
    import logging

    def silent(record: logging.LogRecord) -> bool:
        return False

    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(silent)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(silent)


@dataclass(frozen=True)
class MailChannel:
    """Sends one e-mail per notice. An attempt whose reply was lost is repeated: a mail may arrive twice, none is
    lost."""

    settings: Mail
    timeout_s: float
    name: str = "mail"

    def deliver(self, notice: Notice) -> None:
        """Send one e-mail. Raises `TryAgain` and `NotDelivered`, neither of which contains the password."""
        import smtplib

        server = f"{self.settings.host}:{self.settings.port}"
        password = os.environ.get(self.settings.password_env)
        if self.settings.user is not None and password is None:
            remedy = "Set it, or remove mail.user"
            raise NotDelivered(f"mail: the environment variable {self.settings.password_env} is not set. {remedy}")
        try:
            with self._connected() as smtp:
                if self.settings.user is not None and password is not None:
                    smtp.login(self.settings.user, password)
                smtp.send_message(self._message(notice))
        except smtplib.SMTPAuthenticationError as error:
            what = f"refused user {self.settings.user} ({error.smtp_code})"
            raise NotDelivered(f"mail: {server} {what}. Correct mail.user or {self.settings.password_env}") from None
        except smtplib.SMTPResponseException as error:
            kind = TryAgain if 400 <= error.smtp_code < 500 else NotDelivered
            raise kind(f"mail: {server} answered {error.smtp_code} {_words(error.smtp_error)}") from None
        except smtplib.SMTPRecipientsRefused as error:
            later = all(400 <= code < 500 for code, _ in error.recipients.values())
            kind = TryAgain if later else NotDelivered
            raise kind(f"mail: {server} refused {', '.join(error.recipients)}") from None
        except (smtplib.SMTPException, OSError) as error:
            kind = NotDelivered if isinstance(error, smtplib.SMTPNotSupportedError) else TryAgain
            raise kind(f"mail: {server}: {type(error).__name__}: {error}") from None

    def _connected(self) -> smtplib.SMTP:
        import smtplib
        import ssl

        settings, timeout = self.settings, self.timeout_s
        if settings.security == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(settings.host, settings.port, timeout=timeout, context=context)
        smtp = smtplib.SMTP(settings.host, settings.port, timeout=timeout)
        if settings.security == "starttls":
            try:
                smtp.starttls(context=ssl.create_default_context())
            except BaseException:
                smtp.close()
                raise
        return smtp

    def _message(self, notice: Notice) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self.settings.sender, ", ".join(self.settings.to)
        message["Subject"], message["Date"] = notice.heading, formatdate()
        message["Message-ID"] = make_msgid(domain=self.settings.sender.partition("@")[2])
        message["Auto-Submitted"] = "auto-generated"  # suppresses out-of-office replies
        message.set_content(notice.body or notice.heading)
        return message


def _words(answer: bytes | str) -> str:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


LONGEST_TEXT = 3000
"""Longest text in characters; Slack cuts or refuses longer messages."""


@dataclass(frozen=True)
class SlackChannel:
    """Posts to the webhook whose URL is in the environment."""

    settings: Slack
    timeout_s: float
    name: str = "slack"

    def deliver(self, notice: Notice) -> None:
        """Send one POST. Raises `TryAgain` and `NotDelivered`, neither of which contains the URL, which is a secret."""
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
        if not answer.is_success:  # also for a redirection: the message was not delivered
            remedy = f"Look whether the webhook in {variable} still exists"
            raise NotDelivered(f"slack: the webhook answered {answer.status_code}. {remedy}")


def text_of(notice: Notice) -> str:
    """Return the message in Slack's mark-up, in which &, < and > are escaped."""
    whole = f"*{_escaped(notice.heading)}*\n{_escaped(notice.body)}".strip()
    return whole if len(whole) <= LONGEST_TEXT else whole[: LONGEST_TEXT - 1] + "…"


def _is_url(text: str) -> bool:
    try:
        return urlsplit(text).scheme in ("http", "https")
    except ValueError:  # not a valid address, for example [::1
        return False


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _seconds(headers: object) -> float:
    try:
        return float(headers.get("retry-after", 0))  # type: ignore[attr-defined]
    except ValueError:  # a date, which is rare: use the usual pause
        return 0.0
