"""The interface of worker clients, and the connection of calls to an outside scheduler.

A client takes a turn only for a real call: a cached response, or one that another task is requesting, needs none. It
also reports when it waits for others, because a deadline counts only a workflow's own work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from ops.config import Worker
from ops.core.response import Message, Response, Sample


class Client(Protocol):
    """Anything that returns workers' responses."""

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0) -> Response:
        """Give the worker's response to the messages.

        ``sample`` identifies repeated answers to the same messages; a number is a sample index.

        Raises:
            WorkerUnreachable: there is no response; the answer is unknown.
            WorkerRefused: the worker will not answer these messages.
            OverBudget: the call could pass the cap on spending.
            ConfigError: the worker is configured wrongly, its key missing for one.
        """
        ...


Turn = Callable[[], AbstractAsyncContextManager[None]]
"""A function that returns the context that one attempt of a call holds."""
Wait = Callable[[], AbstractContextManager[None]]
"""A function that returns the context of a call that waits for others: for a slot, a pace, or a pause requested by its
provider."""

_TURN: ContextVar[Turn | None] = ContextVar("turn", default=None)
_WAIT: ContextVar[Wait | None] = ContextVar("wait", default=None)


@contextmanager
def turns_from(turn: Turn) -> Iterator[None]:
    """Let calls made inside, in this task and those it starts, take their turns from `turn`."""
    token = _TURN.set(turn)
    try:
        yield
    finally:
        _TURN.reset(token)


@contextmanager
def waits_told_to(wait: Wait) -> Iterator[None]:
    """Let calls made inside, in this task and those it starts, hold a `wait` while they only wait."""
    token = _WAIT.set(wait)
    try:
        yield
    finally:
        _WAIT.reset(token)


def my_turn() -> AbstractAsyncContextManager[None]:
    """Return the context of one attempt: the turn set for this task, or none."""
    turn = _TURN.get()
    return nullcontext() if turn is None else turn()


def waiting() -> AbstractContextManager[None]:
    """Return the context of a call that waits for others."""
    wait = _WAIT.get()
    return nullcontext() if wait is None else wait()
