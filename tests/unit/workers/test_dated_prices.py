"""An announced change of a price: the plan names it, and calls are booked at the price of their day."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ops.config import Pool, Price, Worker
from ops.workers.pool import difference, pool_rows
from ops.workers.providers import worst_price

TODAY = datetime.now(UTC).date()
DAY = timedelta(days=2)
BEFORE, DOUBLED = {"input": 2.0, "output": 10.0}, {"input": 4.0, "output": 20.0}


def price(since: date) -> dict[str, Any]:
    return BEFORE | {"later": [{"since": since.isoformat(), **DOUBLED}]}


def worker(cost: dict[str, Any]) -> Worker:
    return Worker.model_validate({"name": "a", "model": "openai/x", "price": cost})


def pool(cost: dict[str, Any]) -> Pool:
    return Pool(name="p", workers=(worker(cost),))


def test_the_price_of_a_day() -> None:
    dated = Price.model_validate(BEFORE | {"later": [
        {"since": "2026-12-01", **DOUBLED}, {"since": "2027-03-01", "input": 1, "output": 1},
    ]})  # fmt: skip
    days = (date(2026, 11, 30), date(2026, 12, 1), date(2027, 2, 28), date(2027, 3, 1))
    assert [dated.usd(1_000_000, 1_000_000, day) for day in days] == [12.0, 24.0, 24.0, 2.0]
    assert Price.model_validate_json(dated.model_dump_json()) == dated


def test_today_decides_what_a_call_costs_and_what_the_prices_key_is() -> None:
    past, coming = worker(price(TODAY - DAY)), worker(price(TODAY + DAY))
    assert worst_price(past, "") == (4e-6, 20e-6) and worst_price(coming, "") == (2e-6, 10e-6)
    assert pool(price(TODAY - DAY)).prices_key == pool(DOUBLED).prices_key
    assert pool(price(TODAY + DAY)).prices_key == pool(BEFORE).prices_key
    assert pool(price(TODAY + DAY)).answers_key == pool(BEFORE).answers_key


@pytest.mark.parametrize("days", [["2026-12-01", "2026-12-01"], ["2026-12-02", "2026-12-01"]])
def test_dates_stand_in_their_order(days: list[str]) -> None:
    with pytest.raises(ValueError, match="dates must be different"):
        Price.model_validate(BEFORE | {"later": [{"since": day, **DOUBLED} for day in days]})


def test_it_is_shown_and_compared() -> None:
    dated = pool(price(date(2030, 1, 1)))
    assert "2 / 10, 4 / 20 from 2030-01-01" in pool_rows(dated)[1][0]
    assert str(difference(pool(BEFORE), dated)) == (
        "~ a: price: 2 / 10 USD per million tokens → 2 / 10, 4 / 20 from 2030-01-01 USD per million tokens"
    )


def test_a_call_is_booked_at_the_price_of_its_day(loopback: Any, make_client: Any) -> None:
    client, asked = make_client(), [{"role": "user", "content": "2+2?"}]
    for sample, (since, usd) in enumerate({TODAY - DAY: 140e-6, TODAY + DAY: 70e-6}.items()):
        paid = loopback.worker(name=f"w{sample}", price=price(since))
        response = asyncio.run(client.complete(paid, asked, sample=sample))
        assert response.cost_usd == pytest.approx(usd)
    assert client.ledger.spent("run") == pytest.approx(210e-6)


def test_the_projects_pool_states_the_price_that_is_announced() -> None:
    from ops.config import load_pool

    argon = load_pool(Path(__file__).parents[3] / "config", "frontier").worker("gemini-4-argon")
    assert argon.price is not None
    assert [argon.price.usd(10**6, 10**6, date(2026, month, 30)) for month in (11, 12)] == [12.0, 24.0]
