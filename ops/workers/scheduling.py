"""What any client of workers offers, and what a call has to do with a scheduler outside it.

A client takes a turn only when it really calls: a response from the cache, and one that another task is asking for,
need none. It also states when it waits for others, since a deadline counts a workflow's own work alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from ops.config import Worker
from ops.core.response import Message, Response, Sample


class Client(Protocol):
    """Anything that gets responses out of workers."""

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
"""Gives what is held during one attempt at a call."""
Wait = Callable[[], AbstractContextManager[None]]
"""Gives what is held while a call waits for others: for a slot, a pace, a pause that its provider asked for."""

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
    """Let what is called inside, in this task and those it starts, hold a `wait` while it only waits."""
    token = _WAIT.set(wait)
    try:
        yield
    finally:
        _WAIT.reset(token)


def my_turn() -> AbstractAsyncContextManager[None]:
    """What a client holds around one attempt: the turn that was set for this task, or nothing."""
    turn = _TURN.get()
    return nullcontext() if turn is None else turn()


def waiting() -> AbstractContextManager[None]:
    """What is held while a call waits for others and does nothing of its own."""
    wait = _WAIT.get()
    return nullcontext() if wait is None else wait()
