"""Messages to a worker, its response, and what any client of workers offers.

Retrying, caching and counting money live beside this file (client, cache,
ledger); nothing here does any work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ops.config import Worker
from ops.core.response import Message, Response, Sample


class Client(Protocol):
    """Anything that gets responses out of workers."""

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int | Sample = 0) -> Response:
        """Give the worker's response to the messages.

        ``sample`` tells repeated answers to the same messages apart; a number is the index of a first answer.

        Raises:
            WorkerUnreachable: no response could be had; nothing is known of the answer.
            WorkerRefused: the worker will not answer these messages.
            OverBudget: the call could pass the cap on spending.
            ConfigError: the worker is configured wrongly, its key missing for one.
        """
        ...
