"""A provider's usage is checked: impossible counts are not booked, and the worker stops at the first one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ops.config import Worker
from ops.core.errors import ConfigError, OverBudget, WorkerUnreachable
from ops.core.usage import Usage
from ops.workers.client import WorkerClient
from ops.workers.providers import find_price
from ops.workers.usage import HIDDEN_PROMPT_TOKENS, LONGEST_TOKEN_CHARS, OVERRUN_TOKENS, check_usage
from tests.faults.claims import ANSWER, ASK, IMPOSSIBLE, MOST, counts, reply
from tests.faults.remote import FaultServer
from tests.unit.workers.conftest import together


@pytest.fixture
def client(make_client: Any) -> WorkerClient:
    made: WorkerClient = make_client(cap_usd=0.01, pool_file="pool.yaml")
    return made


def ask(client: WorkerClient, asked: Worker, sample: int = 0) -> Any:
    return asyncio.run(client.complete(asked, ASK, sample=sample))


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_an_impossible_claim_is_booked_at_the_worst_case_and_stops_the_worker(
    server: FaultServer, client: WorkerClient, case: str
) -> None:
    claim, figure, booked = IMPOSSIBLE[case]
    asked = server.worker(retries=1)
    before = ask(client, asked, sample=1)
    server.order(plan=[reply(claim)])
    with pytest.raises(ConfigError) as caught:
        ask(client, asked)
    assert (caught.value.file, caught.value.field) == ("pool.yaml", "workers.remote")
    assert figure in str(caught.value) and "\n" not in str(caught.value)
    [last, _] = client.ledger.latest_calls(2)
    assert (last.prompt_tokens, last.completion_tokens) == booked
    assert last.usd == pytest.approx(find_price(asked, "").compute_usd(Usage(*booked)))
    assert client.ledger.count_in_flight("run") == 0 and client.ledger.open_reservations() == {}
    came = len(server.log())
    with pytest.raises(ConfigError, match="no further call is made"):
        ask(client, asked, sample=2)
    assert len(server.log()) == came, "no call left"
    assert ask(client, asked, sample=1).text == before.text, "what was answered stays"
    assert ask(client, asked).text == ANSWER, "what was paid for is kept"
    assert client.ledger.total_usd("run") < 0.01


def test_the_schema_of_an_answer_counts_as_a_part_of_the_prompt(server: FaultServer, client: WorkerClient) -> None:
    schema = {"type": "object", "properties": {f"field_{number}": {"type": "string"} for number in range(150)}}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    server.order(plan=[reply(counts(3_000, 5))])
    response = asyncio.run(client.complete(server.worker(), ASK, parameters={"response_format": form}))
    assert (response.text, response.prompt_tokens) == (ANSWER, 3_000)
    assert ask(client, server.worker(), sample=1).text, "the worker is not stopped"


LONG = "The answer follows from the sum of both sides. " * 40
"""1,880 characters, of about 400 tokens."""


@pytest.mark.parametrize(("text", "claim", "believed"), [
    (LONG, 400, True), (LONG, 200, True), (LONG, 15, False), (LONG, 60, False), (" " * 1920, 20, True),
    ("\u1019\u103c\u1014\u103a\u1019\u102c\u1005\u102c" * 40, 60, True), ("=" * 1920, 40, True),
])  # fmt: skip
def test_a_claim_of_too_few_tokens_is_compared_with_our_own_count(text: str, claim: int, believed: bool) -> None:
    """In other alphabets tokenizers differ by more, and a run of spaces may be one token."""
    price = {"input": 1, "output": 2}
    asked = Worker.model_validate({"name": "a", "model": "openai/x", "max_tokens": 500, "price": price})
    for side, question, answer in (("prompt", text, "four"), ("completion", "2+2?", text)):
        stated = {"prompt_tokens": 10, "completion_tokens": 1, f"{side}_tokens": claim}
        reply = SimpleNamespace(usage=SimpleNamespace(completion_tokens_details=None, **stated))
        messages = [{"role": "user", "content": question}]
        usage, impossible = check_usage(asked, find_price(asked, ""), messages, reply, answer, "stop")
        assert (impossible is None) == believed, (side, usage)
        if not believed:
            assert f"{claim} {side} tokens" in str(impossible)
            assert getattr(usage, f"{side}_tokens") >= 400


@pytest.mark.parametrize("claim", ["none", None, {}, {"total_tokens": 15}, counts(None, None), counts(0, 0)])
def test_a_provider_that_states_no_usage_is_counted_here(
    server: FaultServer, client: WorkerClient, claim: object
) -> None:
    server.order(plan=[reply(claim)])
    response = ask(client, server.worker(retries=1))
    assert 1 <= response.prompt_tokens <= MOST and 1 <= response.completion_tokens <= len(ANSWER)
    assert ask(client, server.worker(retries=1), sample=1).text


@pytest.mark.parametrize("claim", [counts("10", "5"), counts(10.0, 5.0), counts(10, 5)])
def test_counts_of_another_type_with_the_same_value_are_taken(
    server: FaultServer, client: WorkerClient, claim: object
) -> None:
    server.order(plan=[reply(claim)])
    response = ask(client, server.worker(retries=1))
    assert (response.prompt_tokens, response.completion_tokens) == (10, 5)


@pytest.mark.parametrize("claim", [counts("ten", 5), counts(10.7, 5), counts([1], 5), counts(float("nan"), 5), "many"])
def test_a_usage_that_cannot_be_read_is_counted_as_lost(
    server: FaultServer, client: WorkerClient, claim: object
) -> None:
    server.order(plan=[reply(claim)] * 2)
    with pytest.raises(WorkerUnreachable, match="after 2 attempts"):
        ask(client, server.worker(retries=1))
    [spent] = client.ledger.by_run().values()
    assert (spent.lost, spent.calls) == (2, 0) and spent.usd == pytest.approx(2 * (MOST * 1e-6 + 64 * 2e-6))
    assert client.ledger.count_in_flight("run") == 0


def test_an_answer_cut_at_max_tokens_used_them_all(server: FaultServer, client: WorkerClient) -> None:
    server.order(plan=[reply("none", finish_reason="length")])
    assert ask(client, server.worker(retries=1)).completion_tokens == 64


def test_litellms_price_takes_no_claimed_discount(server: FaultServer, client: WorkerClient) -> None:
    asked = server.worker(retries=1, model="openai/gpt-4o", price=None, model_in_replies="some-model")
    details = {"prompt_tokens_details": {"cached_tokens": 10**9}, "completion_tokens_details": {"reasoning_tokens": -9}}
    server.order(plan=[reply(counts(10, 5, **details))])
    assert ask(client, asked).cost_usd == pytest.approx(10 * 2.5e-6 + 5 * 10e-6)


@pytest.mark.parametrize("claims", ["honest", "none", "a lie"])
def test_a_provider_that_ignores_max_tokens_exceeds_the_cap_only_by_calls_in_flight(
    server: FaultServer, make_client: Any, claims: str
) -> None:
    """Each call returns ten times max_tokens; forty calls are requested, four at a time, with a cap of about twenty."""
    cap, tokens = 0.003, 640
    text = "word " * tokens
    usage = {"honest": counts(10, tokens), "none": "none", "a lie": counts(10, 5)}[claims]
    client = make_client(cap_usd=cap)
    asked = server.worker(retries=1, concurrency=4)
    server.order(plan=[reply(usage, text)] * 40)
    results = together(client, asked, 40, ASK)
    assert all(isinstance(result, ConfigError | OverBudget) for result in results)
    assert any("no further call is made" in str(result) for result in results)
    came = sum(entry["event"] == "came" for entry in server.log())
    assert came <= 4
    per_call = (MOST * 1.0 + 2 * tokens * 2.0) / 1e6
    assert client.ledger.total_usd("run") <= cap + 4 * per_call
    assert client.ledger.count_in_flight("run") == 0


def test_a_call_that_waited_for_room_does_not_leave_after_an_impossible_claim(
    server: FaultServer, make_client: Any
) -> None:
    """The cap holds two calls; each claim is booked below its reservation, so that later calls have room."""
    client = make_client(cap_usd=0.00032)
    server.order(plan=[reply(counts(-5, 5))] * 6, latency_s=0.2)
    results = together(client, server.worker(retries=1), 6, ASK)
    assert all("no further call is made" in str(result) for result in results)
    assert sum(entry["event"] == "came" for entry in server.log()) <= 2
    assert client.ledger.count_in_flight("run") == 0 and client.ledger.open_reservations() == {}


CLAIMS = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(max_size=3), st.integers(),
    st.integers(-(2**70), 2**70), st.integers(0, 5000),
)  # fmt: skip


@given(
    prompt=CLAIMS, completion=CLAIMS, thought=CLAIMS,
    text=st.one_of(st.text(max_size=300), st.integers(1, 2000).map("word ".__mul__)),
    max_tokens=st.integers(1, 300), reason=st.sampled_from(["stop", "length"]),
)  # fmt: skip
@example(prompt=None, completion=-1, thought=1, text="", max_tokens=1, reason="stop")  # -1 and 1 add up to 0: no count
@example(prompt=None, completion=-1, thought=5, text="four", max_tokens=9, reason="stop")
def test_booked_usage_is_possible_for_any_claim(
    prompt: Any, completion: Any, thought: Any, text: str, max_tokens: int, reason: str
) -> None:
    asked = Worker(name="a", model="openai/x", max_tokens=max_tokens, price={"input": 1, "output": 2})  # type: ignore[arg-type]
    details = SimpleNamespace(reasoning_tokens=thought)
    claim = SimpleNamespace(prompt_tokens=prompt, completion_tokens=completion, completion_tokens_details=details)
    usage, impossible = check_usage(asked, find_price(asked, ""), ASK, SimpleNamespace(usage=claim), text, reason)
    assert type(usage.prompt_tokens) is int and type(usage.completion_tokens) is int
    assert 1 <= usage.prompt_tokens <= MOST + HIDDEN_PROMPT_TOKENS
    delivered = len(text.encode(errors="replace"))
    assert len(text) / LONGEST_TOKEN_CHARS <= usage.completion_tokens <= max(max_tokens + OVERRUN_TOKENS, delivered)
    stated = [each for each in (prompt, completion) if isinstance(each, int) and not isinstance(each, bool) and each]
    if any(each < 0 or each > 10_000 for each in stated):
        assert impossible is not None
