"""E-mail by the standard library."""

from __future__ import annotations

import os
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING

from ops.alerts.channel import NotDelivered, TryAgain
from ops.alerts.notice import Notice
from ops.config import Mail

if TYPE_CHECKING:
    import smtplib


@dataclass(frozen=True)
class MailChannel:
    """One message a notice. An attempt whose answer was lost is made again: a mail may come twice, none is lost."""

    settings: Mail
    timeout_s: float
    name: str = "mail"

    def deliver(self, notice: Notice) -> None:
        """Raises `TryAgain`, `NotDelivered`; neither holds the password."""
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
            raise NotDelivered(f"mail: {server} {what}. Mend mail.user or {self.settings.password_env}") from None
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
        message["Auto-Submitted"] = "auto-generated"  # no out-of-office reply
        message.set_content(notice.body or notice.heading)
        return message


def _words(answer: bytes | str) -> str:
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
