"""The budget of one request, over the client that all requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ops.config import Price, Worker
from ops.core.errors import OverBudget
from ops.core.messages import NO_PARAMETERS, Message, Parameters, Sample
from ops.core.response import Response
from ops.store import cache_key
from ops.workers.client import WorkerClient
from ops.workers.providers import max_call_usd
from ops.workers.replies import clean_stored_response
from ops.workers.scheduling import INDEPENDENT_CALL, Turn


class RequestBudgetExceededError(OverBudget):
    """The next call was not sent, because its worst case would exceed the budget of the request.

    `worst_usd` is that worst case in USD.
    """

    def __init__(self, worker: str, worst_usd: float, left_usd: float, budget_usd: float) -> None:
        super().__init__(
            f"worker {worker!r}: the next call may cost {worst_usd:.6f} USD, and {max(left_usd, 0.0):.6f} of the "
            f"request's {budget_usd:g} USD are left"
        )
        self.worst_usd = worst_usd


class RequestBudget:
    """Calls workers as long as the budget of the request (USD) lasts. The worst case of each call is reserved before it
    is sent.

    `prices` are the prices of the workers by name. Cached responses cost nothing.
    """

    def __init__(self, client: WorkerClient, budget_usd: float, prices: Mapping[str, Price]) -> None:
        self._client, self.budget_usd, self._prices = client, budget_usd, prices
        self._reserved_usd = 0.0
        self._returned = asyncio.Condition()
        self.paid_usd = 0.0
        """What the request's own calls have cost so far."""

    async def complete(
        self,
        worker: Worker,
        messages: Sequence[Message],
        *,
        sample: int | Sample = 0,
        turn: Turn = INDEPENDENT_CALL,
        parameters: Parameters = NO_PARAMETERS,
    ) -> Response:
        """Return a worker's response, as `Client.complete` does. Raises `RequestBudgetExceededError` as well."""
        worst = max_call_usd(worker, self._prices[worker.name], messages, parameters)
        if self._left_usd < worst:
            key = cache_key({**worker.identity, **parameters}, messages, sample)
            if (hit := self._client.cache.get(key)) is not None:
                return clean_stored_response(worker, hit)
            await self._wait_until_affordable(worst, worker)
        self._reserved_usd += worst
        try:
            response = await self._client.complete(worker, messages, sample=sample, turn=turn, parameters=parameters)
            self.paid_usd += 0.0 if response.cached else response.cost_usd
            return response
        finally:
            self._reserved_usd -= worst
            async with self._returned:
                self._returned.notify_all()

    @property
    def _left_usd(self) -> float:
        return self.budget_usd - self.paid_usd - self._reserved_usd

    async def _wait_until_affordable(self, worst_usd: float, worker: Worker) -> None:
        """Wait until calls in flight give back enough of what they reserved. Raises `RequestBudgetExceededError`."""
        async with self._returned:
            while self._left_usd < worst_usd:
                if self._reserved_usd <= 0:
                    raise RequestBudgetExceededError(worker.name, worst_usd, self._left_usd, self.budget_usd)
                await self._returned.wait()
