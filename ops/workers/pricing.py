"""What recorded responses cost at the pool's prices: another price changes costs, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ops.config import Pool, Price
from ops.core.rows import ResponseRow


def at_prices(rows: Iterable[ResponseRow], pool: Pool) -> list[ResponseRow]:
    """The rows as they would have cost at the pool's prices.

    A worker that the pool lacks, or that LiteLLM's own table prices, keeps what its responses were paid with.
    """
    prices = {worker.name: worker.price for worker in pool.workers}
    return [_at(row, prices.get(row.worker)) for row in rows]


def _at(row: ResponseRow, price: Price | None) -> ResponseRow:
    if price is None:
        return row
    cost_usd = price.usd(row.response.prompt_tokens, row.response.completion_tokens)
    return replace(row, response=replace(row.response, cost_usd=cost_usd))
