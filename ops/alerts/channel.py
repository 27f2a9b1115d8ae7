"""What every channel is, and how often it tries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ops.alerts.notice import Notice
from ops.core.errors import PodiumError


class NotDelivered(PodiumError):
    """A channel did not take a notice: which, why, what to do. Holds no secret."""


class TryAgain(NotDelivered):
    """It may take it at the next attempt; `after_s` seconds, where the channel said so."""

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class Channel(Protocol):
    """One way to send a notice."""

    @property
    def name(self) -> str:
        """What its deliveries are called."""
        ...

    def deliver(self, notice: Notice) -> None:
        """One attempt. Raises `TryAgain` where another one may help, else `NotDelivered`."""
        ...


@dataclass(frozen=True)
class Delivery:
    """What became of a notice in one channel."""

    channel: str
    problem: str = ""
    """Empty: it was taken."""

    @property
    def taken(self) -> bool:
        return not self.problem


LONGEST_PAUSE_S = 30.0
"""However long a channel asks us to wait: a run waits for its notice."""


def attempt(send: Callable[[], None], attempts: int, first_pause_s: float = 1.0) -> None:
    """Call `send` until it does not raise `TryAgain`, at most so often. Raises what the last attempt raised."""
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
    """Meanwhile those loggers are silent: httpx writes every URL that it asks at INFO, and a webhook's is a secret."""
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
