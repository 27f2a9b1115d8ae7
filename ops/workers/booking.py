"""Group commit: replies that arrive together are stored and booked in one transaction.

What belongs here: the moment between a reply and its being safe on disk. What does
not: the tables (cache, ledger) and the calls (client).
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import NamedTuple

from ops.errors import CacheUnavailable
from ops.workers.cache import ResponseCache
from ops.workers.ledger import Bill, Ledger
from ops.workers.types import Response


class _Entry(NamedTuple):
    bill: Bill
    key: str
    material: str
    response: Response
    keep: bool
    done: asyncio.Future[None]


class BookingDesk:
    """Stores and books the replies of one turn of the event loop together.

    A commit costs a tool worker's call as much as the call; shared by those that are
    in flight it costs next to nothing. Responses are stored before they are booked: a
    kill -9 between the two leaves a call that the ledger counts as lost rather than one paid for twice.
    """

    def __init__(self, cache: ResponseCache, ledger: Ledger) -> None:
        self._cache, self._ledger = cache, ledger
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Entry]] = {}

    async def book(self, bill: Bill, key: str, material: str, response: Response, *, keep: bool) -> None:
        """Return when the bill, and the response if it is one to `keep`, are on disk.

        A caller that is cancelled meanwhile loses neither.
        """
        loop = asyncio.get_running_loop()
        entry = _Entry(bill, key, material, response, keep, loop.create_future())
        waiting = self._waiting.get(loop)
        if waiting is None:
            self._waiting[loop] = [entry]
            loop.call_soon(self._flush, loop)
        else:
            waiting.append(entry)
        await entry.done

    def measure_lost(self) -> bool:
        """Count lost calls whose questions the cache can answer at what the answers cost; whether there were any.

        A process that was killed between the two, for one, has stored its response and not booked it.
        """
        costs = {key: hit.cost_usd for key in self._ledger.unmeasured() if (hit := self._cache.get(key)) is not None}
        self._ledger.measure(costs)
        return bool(costs)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        entries = self._waiting.pop(loop)
        failure: sqlite3.Error | OSError | CacheUnavailable | None = None
        try:
            try:
                self._cache.put_many([(e.key, e.material, e.response) for e in entries if e.keep])
            finally:
                self._ledger.settle(*(entry.bill for entry in entries))
        except (sqlite3.Error, OSError, CacheUnavailable) as error:
            failure = error
        for entry in entries:
            if entry.done.cancelled():
                continue
            if failure is None:
                entry.done.set_result(None)
            else:
                entry.done.set_exception(failure)
