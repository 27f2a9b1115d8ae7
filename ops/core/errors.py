"""The exception hierarchy, and counted nouns for messages.

Every error that a user may meet derives from `PodiumError`, whose text names what is
wrong, where, and what to do. Errors that only a bug can cause stay Python's own.
"""

from __future__ import annotations

from pathlib import Path


class PodiumError(Exception):
    """Base of every error that carries a message meant for the user."""


class ConfigError(PodiumError):
    """A setting is wrong: names the file, the field and the remedy."""

    def __init__(self, file: Path | str, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{file}: {field}: {problem}. {remedy}")
        self.file, self.field, self.problem, self.remedy = str(file), field, problem, remedy


class AccountError(ConfigError):
    """A provider's account cannot pay or is closed: nothing is known of the worker's answers, and the run stops."""


class DataError(PodiumError):
    """A data file or a row of it cannot be used: names the file, the row or column and the remedy."""

    def __init__(self, file: Path | str, where: str, problem: str, remedy: str) -> None:
        super().__init__(f"{file}: {where}: {problem}. {remedy}")
        self.file, self.where, self.problem, self.remedy = str(file), where, problem, remedy


class WorkerError(PodiumError):
    """Base of what can go wrong with one call to a worker."""


class WorkerUnreachable(WorkerError):
    """Infrastructure failed (time-out, 429, 5xx, connection) after every retry: the rollout is unscorable."""


class ReplayMiss(WorkerUnreachable):
    """A rehearsal was asked for a response that was never recorded: unscorable, like an outage."""


class WorkerRefused(WorkerError):
    """The provider will not answer these messages, however often it is asked (a content filter): not retried."""


class ContextTooLong(WorkerRefused):
    """The messages and the answer together are longer than the worker's context: not retried."""


class RequestRejected(WorkerRefused):
    """The provider rejects this request for another reason than key, account or model name: not retried."""


class OverBudget(WorkerError):
    """The next call's worst case would pass the cap: nothing was sent."""


class LedgerUnavailable(PodiumError):
    """The shared ledger does not answer: nothing may be spent that could not be counted."""


class LimitsUnavailable(PodiumError):
    """The server of a team's shared worker limits does not answer; no worker is called without it."""


class CacheUnavailable(PodiumError):
    """The shared response cache does not answer: nothing may be paid for that could not be kept."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """“1 process”, “1,200 processes”; `plural` where it is not the noun with an s (or es after s, x, ch)."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "ch")) else "s"
    return f"{number:,} {plural or noun + ending}"
