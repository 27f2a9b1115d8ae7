"""A pool as a table, the difference of two pools, and the cost of recorded responses at a pool's prices.

Retraining does the least work that a difference requires. A new price, for example, changes only costs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, NamedTuple

from ops.config import Pool, Price, Worker
from ops.core.response_rows import ResponseRow


class SettingChange(NamedTuple):
    """The old and the new value of a setting."""

    old: Any
    new: Any


@dataclass(frozen=True)
class PoolDifference:
    """The differences of two pools by the workers' names: `added`, `removed` and `changed` workers.

    `changed` holds every setting that differs. `affects_answers` and `affects_price` state which of these changes
    retraining must consider. Tags, limits and time-outs affect neither.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: dict[str, dict[str, SettingChange]]
    affects_answers: tuple[str, ...] = ()
    """Changed workers whose stored responses cannot be used any more."""
    affects_price: tuple[str, ...] = ()
    """Changed workers whose price may differ but whose answers do not."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        if not self:
            return "no difference"
        lines = [f"+ {name}" for name in self.added] + [f"- {name}" for name in self.removed]
        for name, fields in self.changed.items():
            changes = ", ".join(f"{key}: {_format_value(c.old)} → {_format_value(c.new)}" for key, c in fields.items())
            lines.append(f"~ {name}: {changes}")
        return "\n".join(lines)


def compare_pools(old: Pool, new: Pool) -> PoolDifference:
    """Return what has to be changed in `old` to obtain `new`, worker by worker. The order of the workers does not
    matter."""
    before, after = ({worker.name: worker for worker in pool.workers} for pool in (old, new))
    changed = {
        name: fields for name in before if name in after and (fields := _find_changes(before[name], after[name]))
    }
    answers = tuple(name for name in changed if before[name].identity != after[name].identity)
    return PoolDifference(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=changed,
        affects_answers=answers,
        affects_price=tuple(name for name in changed if name not in answers and "price" in changed[name]),
    )


def _find_changes(old: Worker, new: Worker) -> dict[str, SettingChange]:
    before, after = old.model_dump(), new.model_dump()
    return {key: SettingChange(before[key], after[key]) for key in before if before[key] != after[key]}


def _list_rates(price: Price) -> list[str]:
    later = (f"{rates} from {rates.since}" for rates in price.later)
    return [str(price.model_copy(update={"tiers": ()})), *map(str, price.tiers), *later]


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        if value.keys() >= {"input", "output"}:
            return f"{', '.join(_list_rates(Price(**value)))} USD per million tokens"
        return json.dumps(value, ensure_ascii=False) if value else "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, date):
        return value.isoformat()
    return "none" if value is None else repr(value)


POOL_TABLE_HEAD = ("worker", "model", "sampling", "tokens", "USD per million", "limits", "tags")
"""The column headings of `build_pool_table`."""


def build_pool_table(pool: Pool) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return a table of the pool: its column headings, and a row of texts for each worker. Its prices are today's for
    input and output; `list_special_prices` has the others."""
    return POOL_TABLE_HEAD, [_worker_row(worker) for worker in pool.workers]


def list_special_prices(pool: Pool) -> list[str]:
    """Return a line for each price of the workers that have more prices than one for input and one for output."""
    rates = {worker.name: _list_rates(worker.price) for worker in pool.workers if worker.price}
    return [f"{name}: {each}" for name, own in rates.items() if len(own) > 1 or "," in own[0] for each in own]


def _worker_row(worker: Worker) -> tuple[str, ...]:
    sampling = {
        "temperature": worker.temperature, "top-p": worker.top_p, "top-k": worker.top_k,
        "presence": worker.presence_penalty,
    }  # fmt: skip
    tokens = {"": worker.max_tokens, "thinking": worker.thinking_budget, "effort": worker.reasoning_effort}
    limits = {
        "": f"{worker.concurrency} at once",
        "requests/min": worker.requests_per_minute,
        "tokens/min": worker.tokens_per_minute,
    }
    today = worker.price.rates_on() if worker.price else None
    price = f"{today.input:g} / {today.output:g}" if today else "LiteLLM's"
    tags = [*worker.tags, *([f"retired {worker.retired}"] if worker.retired else [])]
    return (
        worker.name, worker.model, _format_facts(sampling), _format_facts(tokens), price, _format_facts(limits),
        ", ".join(tags),
    )  # fmt: skip


def _format_facts(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}".strip() for name, value in facts.items() if value is not None) or "none"


def reprice_responses(rows: Iterable[ResponseRow], pool: Pool) -> list[ResponseRow]:
    """Return the rows with their cost in USD recomputed at the pool's prices.

    A row keeps its recorded cost if its worker is not in the pool or has no price there, in which case LiteLLM's price
    table was used.
    """
    prices = {worker.name: worker.price for worker in pool.workers}
    return [_reprice_row(row, prices.get(row.worker)) for row in rows]


def _reprice_row(row: ResponseRow, price: Price | None) -> ResponseRow:
    if price is None:
        return row
    return replace(row, response=replace(row.response, cost_usd=price.compute_usd(row.response.usage)))
