"""A price multiplies once: by the rates that a provider bills, from the pool or from LiteLLM's table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.config import Price, RatesOfTier, Worker
from ops.core.response import Response
from ops.core.usage import TOKEN_PARTS, TokenPart, Usage
from ops.results.outcome_rows import CallUsage
from ops.serving.answer import Answer
from ops.serving.openai.responses import describe_usage
from ops.store.entries import Entry, StoredValue, decode_response
from ops.workers.litellm_private import read_model_table
from ops.workers.price_table import read_price
from ops.workers.providers import import_litellm, max_prompt_tokens
from ops.workers.usage import check_usage
from ops.workflow.trace import StepTrace
from tests.builders import make_problem
from tests.faults.remote import user

RATE = st.one_of(st.just(0.0), st.floats(0.001, 100.0))
MAYBE = st.none() | RATE
TIER = st.builds(
    RatesOfTier, input=RATE, output=RATE, cached_input=MAYBE, cache_write=MAYBE, reasoning=MAYBE,
    above_prompt_tokens=st.integers(1, 3000), service_tier=st.sampled_from([None, "priority", "flex"]),
)  # fmt: skip
PRICES = st.builds(
    Price, input=RATE, output=RATE, cached_input=MAYBE, cache_write=MAYBE, reasoning=MAYBE,
    tiers=st.lists(TIER, max_size=3, unique_by=lambda tier: (tier.service_tier, tier.above_prompt_tokens)).map(tuple),
)  # fmt: skip
PART = st.floats(0, 1)


def billed(price: Price, usage: Usage) -> float:
    """Return the bill in USD, written out: the rates of the tier, each with the tokens that only it bills."""
    fit = [t for t in price.tiers if usage.prompt_tokens > (t.above_prompt_tokens or 0)]
    own = [t for t in fit if (t.service_tier or "") == usage.service_tier] or [t for t in fit if not t.service_tier]
    rates = sorted(own, key=lambda t: t.above_prompt_tokens or 0)[-1] if own else price
    cached = rates.input if rates.cached_input is None else rates.cached_input
    write = rates.input if rates.cache_write is None else rates.cache_write
    reasoning = rates.output if rates.reasoning is None else rates.reasoning
    fresh = usage.prompt_tokens - usage.cached_prompt_tokens - usage.cache_write_tokens
    text = usage.completion_tokens - usage.reasoning_tokens
    prompt = fresh * rates.input + usage.cached_prompt_tokens * cached + usage.cache_write_tokens * write
    return (prompt + text * rates.output + usage.reasoning_tokens * reasoning) / 1e6


@st.composite
def usages(draw: st.DrawFn, most_prompt: int = 4000, most_completion: int = 2000) -> Usage:
    prompt, completion = draw(st.integers(0, most_prompt)), draw(st.integers(0, most_completion))
    cached = int(prompt * draw(PART))
    written = int((prompt - cached) * draw(PART))
    tier = draw(st.sampled_from(["", "priority", "flex", "another"]))
    return Usage(
        prompt, completion, cached_prompt_tokens=cached, cache_write_tokens=written,
        reasoning_tokens=int(completion * draw(PART)), service_tier=tier,
    )  # fmt: skip


@settings(max_examples=300)
@given(price=PRICES, usage=usages(), stated=st.none() | st.floats(0, 10))
def test_what_is_booked_is_never_below_the_bill_nor_below_a_stated_cost(
    price: Price, usage: Usage, stated: float | None
) -> None:
    bill = billed(price, usage)
    assert price.compute_usd(usage) == pytest.approx(bill)
    claimed = Usage(**{**usage.as_dict(), "stated_usd": stated})
    assert price.compute_usd(claimed) == pytest.approx(max(bill, stated or 0.0))
    assert price.compute_usd(claimed) >= price.compute_usd(usage)


@settings(max_examples=300)
@given(price=PRICES, usage=usages(), more=st.tuples(st.integers(0, 500), st.integers(0, 500)))
def test_the_worst_case_is_never_below_a_possible_usage(price: Price, usage: Usage, more: tuple[int, int]) -> None:
    prompt, completion = usage.prompt_tokens + more[0], usage.completion_tokens + more[1]
    named = usage.service_tier if usage.service_tier != "priority" else None
    assert price.compute_max_usd(prompt, completion, named) >= price.compute_usd(usage) - 1e-12
    if usage.service_tier in ("", "priority"):
        assert price.compute_max_usd(prompt, completion) >= price.compute_usd(usage) - 1e-12


@given(price=PRICES, prompt=st.integers(0, 4000), completion=st.integers(0, 2000))
def test_two_rates_and_two_counts_cost_what_they_always_did(price: Price, prompt: int, completion: int) -> None:
    plain = Price(input=price.input, output=price.output)
    assert plain.compute_usd(Usage(prompt, completion)) == (prompt * price.input + completion * price.output) / 1e6
    assert plain.compute_usd(Usage(prompt, completion)) == plain.compute_usd(Usage(prompt, completion))


ASK = user("What is 2+2? " * 40)
WORKER = Worker(name="w", model="openai/x", max_tokens=1000, price=Price(input=1, output=1))
TEXT = "word " * 30


@settings(max_examples=300)
@given(
    price=PRICES, usage=usages(300, 900).filter(lambda used: min(used.prompt_tokens - 30, used.completion_tokens) > 30),
    inside=st.tuples(st.booleans(), st.booleans(), st.booleans()), has_total=st.booleans(),
)  # fmt: skip
def test_a_claim_is_booked_at_no_less_than_its_bill_however_its_parts_add_up(
    price: Price, usage: Usage, inside: tuple[bool, bool, bool], has_total: bool
) -> None:
    """A provider that lists a part beside the whole, and not inside it, states a total."""
    has_total = has_total or not all(inside)
    parts = (usage.cached_prompt_tokens, usage.cache_write_tokens, usage.reasoning_tokens)
    cached, written, reasoning = parts
    prompt = usage.prompt_tokens - (0 if inside[0] else cached) - (0 if inside[1] else written)
    claim = SimpleNamespace(
        prompt_tokens=prompt,
        completion_tokens=usage.completion_tokens - (0 if inside[2] else reasoning),
        prompt_tokens_details=SimpleNamespace(cached_tokens=cached, cache_write_tokens=written),
        completion_tokens_details={"reasoning_tokens": reasoning},
        total_tokens=usage.tokens if has_total else None,
    )
    reply = SimpleNamespace(usage=claim)
    booked, impossible = check_usage(WORKER, price, ASK, reply, TEXT, "stop", {"service_tier": usage.service_tier})
    if impossible is None:
        assert booked.tokens >= usage.tokens, "no token is left out"
        if all(inside):
            assert price.compute_usd(booked) >= billed(price, usage) - 1e-12


@pytest.mark.parametrize(("claim", "prompt", "completion"), [
    ({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150, "reasoning_tokens": 40}, 100, 50),
    ({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 190, "reasoning_tokens": 40}, 100, 90),
    ({"prompt_tokens": 100, "completion_tokens": 50, "reasoning_tokens": 60}, 100, 110),
    ({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 450}, 100, 350),  # thinking that is not listed
    ({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 10**9}, 100, 50),  # no sum of anything
    ({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 350, "prompt_tokens_details": {
        "cached_tokens": 200}}, 300, 50),
    ({"prompt_tokens": 100, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 200}}, 300, 50),
    ({"prompt_tokens": 100, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 10**9}}, 100, 50),
    ({"prompt_tokens": 100, "completion_tokens": 900, "total_tokens": 1900, "reasoning_tokens": 900}, 100, 1800),
])  # fmt: skip
def test_the_total_says_how_the_parts_add_up(claim: dict[str, Any], prompt: int, completion: int) -> None:
    price = Price(input=1, output=2, cached_input=0.1)
    usage, impossible = check_usage(WORKER, price, ASK, SimpleNamespace(usage=SimpleNamespace(**claim)), TEXT, "stop")
    assert (usage.prompt_tokens, usage.completion_tokens, impossible) == (prompt, completion, None)


def test_a_schema_of_the_answer_counts_as_a_part_of_the_prompt() -> None:
    schema = {"type": "object", "properties": {f"field_{number}": {"type": "string"} for number in range(300)}}
    asked = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    schema_tokens = max_prompt_tokens(WORKER, ASK, {"response_format": asked}) - max_prompt_tokens(WORKER, ASK)
    assert schema_tokens > 4_000
    formed = WORKER.model_copy(update={"response_format": asked})
    assert max_prompt_tokens(formed, ASK) - max_prompt_tokens(WORKER, ASK) == schema_tokens
    assert max_prompt_tokens(formed, ASK, {"response_format": asked}) == max_prompt_tokens(formed, ASK)


@pytest.mark.parametrize(("stated", "usd", "believed"), [
    ({"cost": 0.5}, 0.5, True), ({"cost": {"total_cost": 0.25}}, 0.25, True), ({"estimated_cost": 0.5}, 0.5, True),
    ({"cost_in_usd_ticks": 5e9}, 0.5, True), ({"cost": 1e-9}, 180e-6, True), ({"cost": -1.0}, 180e-6, True),
    ({"cost": float("nan")}, 180e-6, True), ({"cost": "0.5"}, 180e-6, True), ({"cost": 1e6}, None, False),
    ({"cost": float("inf")}, None, False),
])  # fmt: skip
def test_a_stated_cost_raises_what_is_booked_and_never_lowers_it(
    stated: dict[str, Any], usd: float | None, believed: bool
) -> None:
    price = Price(input=1, output=2)
    claim = SimpleNamespace(prompt_tokens=100, completion_tokens=40, **stated)
    usage, impossible = check_usage(WORKER, price, ASK, SimpleNamespace(usage=claim), TEXT, "stop")
    assert (impossible is None) == believed
    assert price.compute_usd(usage) == pytest.approx(
        price.compute_max_usd(max_prompt_tokens(WORKER, ASK), 1000) if usd is None else usd
    )


def nest(path: str, value: object) -> dict[str, Any]:
    """Return the value at a path such as `prompt_tokens_details.cached_tokens`."""
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("part", "path"), [(part, path) for part in TOKEN_PARTS for path in part.reply_fields], ids=lambda one: str(one)
)
def test_each_part_follows_from_its_description(part: TokenPart, path: str) -> None:
    """A part is read from each of its fields, billed at its rate, reserved, and listed in a served answer's usage."""
    price = Price.model_validate({"input": 1, "output": 1, part.rate: 3})
    reply = SimpleNamespace(usage={"prompt_tokens": 100, "completion_tokens": 50, **nest(path, 20)})
    usage, impossible = check_usage(WORKER, price, ASK, reply, TEXT, "stop")
    assert (getattr(usage, part.name), usage.tokens, impossible) == (20, 150, None)
    assert price.compute_usd(usage) == pytest.approx((130 + 20 * 3) / 1e6)
    assert price.compute_max_usd(100, 100) == pytest.approx((100 + 100 * 3) / 1e6)
    table = {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6, part.litellm_key: 3e-6}
    assert read_price(table, "openai") == price
    answer = Answer(make_problem(), "1")
    answer.steps.append(StepTrace(0, "w", 0, "Add.", (), "ok", Response(TEXT, usage, 0.0, 0.0, "stop")))
    described = describe_usage(answer)
    details = described["input_tokens_details"] | described["output_tokens_details"]
    assert set(details) >= {"cached_tokens", "cache_write_tokens", "reasoning_tokens"}
    assert sum(details.values()) == details[part.reply_fields[0].rpartition(".")[2]] == 20


def priced() -> list[str]:
    table = read_model_table()
    chat = (name for name, entry in table.items() if entry.get("mode") == "chat" and "/" not in name)
    own = [name for name in chat if read_price(table[name], table[name]["litellm_provider"]) is not None]
    keys = ("output_cost_per_reasoning_token", "tiered_pricing")
    special = [name for name, entry in table.items() if any(entry.get(key) for key in keys)]
    return [*own[::12], *(name for name in special if table[name].get("mode") == "chat")][:120]


def test_a_price_of_the_table_books_no_less_than_litellm_counts() -> None:
    """LiteLLM's own calculation is the reference, at each service tier, below and above each length."""
    library, table = import_litellm(), read_model_table()
    for name in priced():
        entry = table[name]
        provider = entry["litellm_provider"]
        price = read_price(entry, provider)
        if price is None or entry.get("off_peak_pricing"):
            continue
        limits = {tier.above_prompt_tokens for tier in price.tiers if tier.above_prompt_tokens}
        for tier in {"", *(each.service_tier for each in price.tiers if each.service_tier in ("priority", "flex"))}:
            for prompt in {1000, *(limit + 1 for limit in limits)}:
                usage = Usage(prompt, 500, cached_prompt_tokens=300, reasoning_tokens=100, service_tier=tier)
                counted = library.Usage(
                    prompt_tokens=prompt, completion_tokens=500, total_tokens=prompt + 500,
                    prompt_tokens_details={"cached_tokens": 300},
                    completion_tokens_details={"reasoning_tokens": 100, "text_tokens": 400},
                )  # fmt: skip
                try:
                    both = library.cost_per_token(
                        model=name, custom_llm_provider=provider, usage_object=counted, service_tier=tier or None
                    )
                except Exception:  # noqa: BLE001, S112  (it has no calculation for every entry)
                    continue
                assert price.compute_usd(usage) >= sum(both) * (1 - 1e-9), (name, tier, prompt)


PLAIN = b'["Answer: 4",10,5,2e-05,0.25,"stop"]'


def restored(response: Response) -> Response | None:
    entry = Entry.from_response("key", "{}", response, 0.0)
    return decode_response("key", StoredValue(entry.body, entry.checksum))


def test_a_stored_response_keeps_its_form_and_special_parts_follow_it() -> None:
    plain = Response("Answer: 4", Usage(10, 5), 2e-5, 0.25, "stop", cached=True)
    assert Entry.from_response("key", "{}", plain, 0.0).body == PLAIN and restored(plain) == plain
    usage = Usage(10, 5, 4, 3, reasoning_tokens=2, service_tier="flex", stated_usd=0.5)
    special = Response("Answer: 4", usage, 0.5, 0.25, "stop", cached=True)
    assert restored(special) == special
    assert CallUsage.from_columns(CallUsage("w", usage).as_columns()) == CallUsage("w", usage)
    earlier = {"worker": "w", "prompt_tokens": 10, "completion_tokens": 5}
    assert CallUsage.from_columns(earlier) == CallUsage("w", Usage(10, 5))


@pytest.mark.parametrize(("price", "said"), [
    ({"cached_input": -1}, "greater than or equal to 0"),
    ({"cache_write": "1"}, "number"),
    ({"tiers": [{"input": 1, "output": 1}]}, "a tier needs above_prompt_tokens, service_tier, or both"),
    ({"tiers": [{"input": 1, "output": 1, "above_prompt_tokens": 5}] * 2}, "two tiers have the same"),
    ({"tiers": [{"input": 1, "output": 1, "service_tier": "default"}]}, "'default' is the standard tier"),
    ({"cachedinput": 1}, "Extra inputs are not permitted"),
])  # fmt: skip
def test_an_impossible_price_is_told(price: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Worker.from_file_values({"name": "a", "model": "openai/m", "price": {"input": 1, "output": 1} | price})


def test_special_rates_are_shown_and_are_part_of_the_prices_key_only_if_stated() -> None:
    tiers = (
        RatesOfTier(input=4, output=15, above_prompt_tokens=200_000),
        RatesOfTier(input=4, output=20, service_tier="Priority"),
    )
    price = Price(input=2, output=10, cached_input=0.2, cache_write=2.5, reasoning=12, tiers=tiers)
    special = "cached input 0.2, cache write 2.5, reasoning 12"
    assert str(price) == f"2 / 10, {special}, 4 / 15 above 200,000 prompt tokens, 4 / 20 at priority"
    assert Price(input=2, output=10).as_stated() == {"input": 2.0, "output": 10.0}
    assert price.as_stated()["tiers"][1] == {"input": 4.0, "output": 20.0, "service_tier": "priority"}
    assert Price.model_validate_json(price.model_dump_json()) == price
