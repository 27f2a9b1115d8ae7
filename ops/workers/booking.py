"""Group commit: calls that leave together, and replies that arrive together, cost one transaction each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ops.cache import ClaimLost, ResponseCache
from ops.core.response import Response
from ops.core.together import Together
from ops.spending.ledger import Bill, Departure, Ledger, Reservation


class _Reply(NamedTuple):
    bill: Bill
    key: str
    material: str
    response: Response
    keep: bool


class BookingDesk:
    """Mark calls as sent, and store and book their replies, in one transaction per turn of the event loop.

    Responses are stored before they are booked: a kill -9 between the two leaves a call that
    the ledger counts as lost rather than one paid for twice.
    """

    def __init__(self, cache: ResponseCache, ledger: Ledger) -> None:
        self._cache, self._ledger = cache, ledger
        self._departures = Together(self._mark_sent, undo=ledger.recall)
        self._replies = Together(self._book)

    async def depart(self, departure: Departure, timeout_s: float) -> Reservation:
        """Return the reservation of a call that may leave now, when that is on disk: in the claims and in the books.

        Raises `ClaimLost` when its claim is another's by now: then the call must not be made.
        """
        return await self._departures.do((departure, timeout_s))

    async def book(self, bill: Bill, key: str, material: str, response: Response, *, keep: bool) -> None:
        """Return when the bill, and the response if it is one to `keep`, are on disk.

        A caller that is cancelled meanwhile loses neither.
        """
        await self._replies.do(_Reply(bill, key, material, response, keep))

    def measure_lost(self) -> bool:
        """Count lost calls whose questions the cache can answer at what the answers cost; whether there were any.

        A process that was killed between the two, for one, has stored its response and not booked it.
        """
        costs = {key: hit.cost_usd for key in self._ledger.unmeasured() if (hit := self._cache.get(key)) is not None}
        self._ledger.measure(costs)
        return bool(costs)

    def _mark_sent(self, leaving: Sequence[tuple[Departure, float]]) -> list[Reservation | Exception]:
        ours = self._cache.mark_sent({call.key: timeout_s for call, timeout_s in leaving})
        marked = iter(self._ledger.mark_sent(*(call for call, _ in leaving if call.key in ours)))
        return [next(marked) if call.key in ours else ClaimLost() for call, _ in leaving]

    def _book(self, replies: Sequence[_Reply]) -> Sequence[None]:
        try:
            self._cache.put_many([(reply.key, reply.material, reply.response) for reply in replies if reply.keep])
        finally:
            self._ledger.settle(*(reply.bill for reply in replies))
        return [None] * len(replies)
