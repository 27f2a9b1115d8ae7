"""Messages to a worker, its response, and what any client of workers offers.

Retrying, caching and counting money live beside this file (client, cache,
ledger); this file has types only.
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

        ``sample`` identifies repeated answers to the same messages; a number is a sample index.

        Raises:
            WorkerUnreachable: there is no response; the answer is unknown.
            WorkerRefused: the worker will not answer these messages.
            OverBudget: the call could pass the cap on spending.
            ConfigError: the worker is configured wrongly, its key missing for one.
        """
        ...
