"""The path of one call: cache, budget, retries, errors, limits; on a real server on loopback."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ops.core.errors import ConfigError, OverBudget, WorkerRefused, WorkerUnreachable

KEY = "sk-loopback-0123456789abcdefghijkl"
SECRET_PROMPT = "the-secret-question"
ASK = [{"role": "user", "content": f"{SECRET_PROMPT}: 2+2?"}]


def ask(client: Any, worker: Any, **more: Any) -> Any:
    return asyncio.run(client.complete(worker, ASK, **more))


def test_a_live_answer_is_priced_counted_and_booked(loopback: Any, make_client: Any) -> None:
    client, worker = make_client(), loopback.worker()
    response = ask(client, worker)
    assert (response.text, response.finish_reason, response.cached) == ("Answer: 4", "stop", False)
    assert response.cost_usd == pytest.approx((10 * 1.0 + 5 * 2.0) / 1e6)
    assert 0 < response.latency_s < 60
    assert client.counts.live == 1
    assert client.ledger.spent("run") == pytest.approx(response.cost_usd)
    assert client.ledger.in_flight("run") == 0


def test_declared_latency_stands_for_the_measured_one(loopback: Any, make_client: Any) -> None:
    assert ask(make_client(), loopback.worker(latency_s=7.5)).latency_s == 7.5


def test_sampling_settings_reach_the_server(loopback: Any, make_client: Any) -> None:
    worker = loopback.worker(
        model="hosted_vllm/m", temperature=0.7, top_p=0.8, top_k=20, presence_penalty=1.0,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )  # fmt: skip
    ask(make_client(), worker)
    sent = loopback.requests[0]
    expected = {
        "model": "m", "messages": ASK, "max_tokens": 64, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
        "presence_penalty": 1.0, "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    assert {key: sent.get(key) for key in expected} == expected
    assert loopback.keys == [KEY]


def test_no_temperature_is_sent_where_none_is_set(loopback: Any, make_client: Any) -> None:
    ask(make_client(), loopback.worker(temperature=None))
    assert "temperature" not in loopback.requests[0]


def test_the_environments_key_is_not_sent_to_a_server_of_ones_own(
    loopback: Any, make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-belongs-to-openai-alone")
    ask(make_client(), loopback.worker(api_key_env=None))
    assert "belongs-to-openai" not in loopback.keys[0]


def test_the_second_time_it_comes_from_the_cache_also_in_another_client(loopback: Any, make_client: Any) -> None:
    worker = loopback.worker()
    first = ask(make_client(), worker)
    other = make_client()
    again = ask(other, worker)
    assert len(loopback.requests) == 1
    assert again.cached and again.text == first.text and again.cost_usd == first.cost_usd
    assert (other.counts.live, other.counts.cached, other.counts.usd) == (0, 1, 0.0)


def test_cached_responses_need_no_key(loopback: Any, make_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = loopback.worker()
    ask(make_client(), worker)
    monkeypatch.delenv("LOOPBACK_KEY")
    assert ask(make_client(), worker).cached
    with pytest.raises(ConfigError, match="LOOPBACK_KEY"):
        ask(make_client(), worker, sample=1)


@pytest.mark.parametrize(
    ("change", "sample", "calls"),
    [
        ({"temperature": 0.9}, 0, 2),
        ({"revision": "2"}, 0, 2),
        ({"max_tokens": 65}, 0, 2),
        ({}, 1, 2),
        ({"name": "renamed", "price": {"input": 9, "output": 9}}, 0, 1),
    ],
)
def test_a_setting_that_can_change_an_answer_causes_a_new_call(
    loopback: Any, make_client: Any, change: Any, sample: int, calls: int
) -> None:
    client = make_client()
    ask(client, loopback.worker())
    ask(client, loopback.worker(**change), sample=sample)
    assert len(loopback.requests) == calls


@pytest.mark.parametrize("cancelled", ["first", "second"])
def test_either_of_two_identical_calls_may_be_cancelled(loopback: Any, make_client: Any, cancelled: str) -> None:
    client, worker = make_client(), loopback.worker()
    loopback.latency_s = 1.0

    def arrives() -> None:
        ends = time.monotonic() + 30
        while not loopback.requests and time.monotonic() < ends:
            time.sleep(0.01)

    async def race() -> Any:
        calls = {name: asyncio.create_task(client.complete(worker, ASK)) for name in ("first", "second")}
        await asyncio.to_thread(arrives)  # the first one's request is in flight
        calls.pop(cancelled).cancel()
        [other] = calls.values()
        return await other

    assert asyncio.run(race()).text == "Answer: 4"
    assert len(loopback.requests) == (2 if cancelled == "first" else 1)
    assert client.ledger.in_flight("run") == 0


def test_identical_calls_in_flight_are_made_once(loopback: Any, make_client: Any) -> None:
    client, worker = make_client(), loopback.worker()
    loopback.latency_s = 0.1

    async def many() -> list[Any]:
        return await asyncio.gather(*(client.complete(worker, ASK) for _ in range(20)))

    responses = asyncio.run(many())
    assert len(loopback.requests) == 1
    assert {r.text for r in responses} == {"Answer: 4"}
    assert sum(not r.cached for r in responses) == 1
    assert (client.counts.live, client.counts.cached) == (1, 19)


def test_one_client_serves_several_loops_and_threads(loopback: Any, make_client: Any) -> None:
    client, worker = make_client(), loopback.worker(concurrency=2)
    texts: list[str] = []

    def run(sample: int) -> None:
        texts.extend(asyncio.run(client.complete(worker, ASK, sample=s)).text for s in (sample, sample + 10))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert texts == ["Answer: 4"] * 8
    assert client.counts.live == 8


@pytest.mark.parametrize("failure", ["429", "500", "502", "503", "reset", "empty choices", "empty text"])
def test_a_transient_failure_is_tried_again(loopback: Any, make_client: Any, failure: str) -> None:
    client = make_client()
    loopback.plan.extend([failure, failure])
    response = ask(client, loopback.worker())
    assert (response.text, response.retries) == ("Answer: 4", 2)
    assert len(loopback.requests) == 3
    assert client.counts.retries == 2


def test_an_empty_reply_was_paid_for_and_is_not_kept(loopback: Any, make_client: Any) -> None:
    client = make_client()
    loopback.plan.append("empty text")
    response = ask(client, loopback.worker())
    assert client.ledger.spent("run") == pytest.approx(2 * response.cost_usd)
    assert len(client.cache) == 1


@pytest.mark.parametrize("failure", ["500", "reset", "429", "no server"])
def test_after_the_last_retry_it_is_unreachable(loopback: Any, make_client: Any, failure: str) -> None:
    client, worker = make_client(), loopback.worker(retries=2)
    loopback.plan.extend([failure] * 9)
    if failure == "no server":
        worker = worker.model_copy(update={"api_base": "http://127.0.0.1:9/v1"})
    with pytest.raises(WorkerUnreachable, match=r"remote.* after 3 attempts"):
        ask(client, worker)
    assert len(loopback.requests) == (0 if failure == "no server" else 3)
    assert (client.counts.failed, len(client.cache), client.ledger.in_flight("run")) == (1, 0, 0)
    # An error status or a request that never arrived costs nothing; a broken connection may have cost a call.
    lost = sum(spent.lost for spent in client.ledger.by_run().values())
    assert lost == (3 if failure == "reset" else 0)
    assert (client.ledger.spent("run") > 0) == (lost > 0)


def test_concurrent_calls_count_their_own_retries(loopback: Any, make_client: Any) -> None:
    client, worker = make_client(), loopback.worker(retries=1, breaker_failures=100)
    loopback.plan.extend(["500"] * 30)

    async def many() -> list[Any]:
        calls = (client.complete(worker, ASK, sample=s) for s in range(15))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(many())
    assert all(isinstance(result, WorkerUnreachable) for result in results)
    assert len(loopback.requests) == 30


def test_retry_after_is_honoured_by_every_call_to_that_worker(loopback: Any, make_client: Any) -> None:
    client, worker = make_client(), loopback.worker()
    ask(client, worker, sample=9)  # LiteLLM's first call is slow
    loopback.times.clear()
    loopback.plan.append("pause")

    async def two() -> None:
        first = asyncio.create_task(client.complete(worker, ASK))
        while not client.counts.retries:  # noqa: ASYNC110  (until the pause has been noted)
            await asyncio.sleep(0.01)
        await asyncio.gather(first, client.complete(worker, ASK, sample=1))

    asyncio.run(two())
    assert len(loopback.times) == 3
    assert min(loopback.times[1:]) - loopback.times[0] >= 0.58


def test_the_timeout_bounds_a_call(loopback: Any, make_client: Any) -> None:
    loopback.plan.extend(["hang"] * 3)
    start = time.monotonic()
    with pytest.raises(WorkerUnreachable):
        ask(make_client(), loopback.worker(timeout_s=0.2, retries=1))
    assert time.monotonic() - start < 15  # the server would answer after 30 s


@pytest.mark.parametrize("failure", ["400", "413", "422", "filtered"])
def test_a_refusal_is_not_tried_again(loopback: Any, make_client: Any, failure: str) -> None:
    client = make_client()
    loopback.plan.extend([failure] * 3)
    with pytest.raises(WorkerRefused, match="remote"):
        ask(client, loopback.worker())
    assert len(loopback.requests) == 1
    paid = failure == "filtered"
    assert (len(client.cache), client.ledger.in_flight("run")) == (int(paid), 0)
    assert len(client.ledger.by_run()) == int(paid)
    with pytest.raises(WorkerRefused, match="remote"):
        ask(client, loopback.worker())
    assert len(loopback.requests) == (1 if paid else 2), "what was paid for is not asked again"


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ("401", "workers.remote.api_key_env"),
        ("403", "workers.remote.api_key_env"),
        ("404", "workers.remote.model"),
        ("wrong model", "workers.remote.model"),
    ],
)
def test_a_wrong_key_or_model_is_the_configurations_fault(
    loopback: Any, make_client: Any, status: str, field: str
) -> None:
    loopback.plan.extend([status] * 3)
    client = make_client(pool_file="config/pools/mine.yaml")
    with pytest.raises(ConfigError) as caught:
        ask(client, loopback.worker())
    assert (caught.value.file, caught.value.field) == ("config/pools/mine.yaml", field)
    assert (len(loopback.requests), len(client.cache)) == (1, 0)
    assert client.ledger.by_run() == {} or status == "wrong model"


def test_a_missing_key_names_file_field_and_variable(
    loopback: Any, make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOOPBACK_KEY")
    client = make_client(pool_file="config/pools/mine.yaml")
    with pytest.raises(ConfigError) as caught:
        ask(client, loopback.worker())
    assert str(caught.value).startswith("config/pools/mine.yaml: workers.remote.api_key_env: ")
    assert "LOOPBACK_KEY is not set" in str(caught.value)
    assert loopback.requests == []


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"model": "nobody-knows-this"}, "workers.remote.model"),
        ({"model": "local/no-such-tool"}, "workers.remote.model"),
        ({"model": "openai/unheard-of", "price": None}, "workers.remote.price"),
    ],
)
def test_an_unknown_model_or_price_is_reported_before_anything_is_sent(
    loopback: Any, make_client: Any, settings: Any, field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(make_client(), loopback.worker(**settings))
    assert caught.value.field == field
    assert loopback.requests == []


@pytest.mark.parametrize(("plan", "text"), [("truncated", "Answer: 4"), ("truncated empty", "")])
def test_a_truncated_answer_is_an_answer_and_is_kept(loopback: Any, make_client: Any, plan: str, text: str) -> None:
    client = make_client()
    loopback.plan.append(plan)
    response = ask(client, loopback.worker())
    assert (response.text, response.finish_reason) == (text, "length")
    assert ask(make_client(), loopback.worker()).cached
    assert client.ledger.spent("run") == pytest.approx(response.cost_usd)


@pytest.mark.parametrize("failure", ["401", "400", "500", "404"])
def test_neither_key_nor_prompt_gets_into_an_error_or_a_log(
    loopback: Any, make_client: Any, caplog: pytest.LogCaptureFixture, capfd: Any, failure: str
) -> None:
    caplog.set_level(logging.DEBUG)
    loopback.plan.extend([failure] * 9)
    client = make_client()
    with pytest.raises((ConfigError, WorkerRefused, WorkerUnreachable)) as caught:
        ask(client, loopback.worker(retries=1))
    logging.getLogger("test").error("failed", exc_info=caught.value)
    ask_again = make_client(run="other")
    loopback.plan.clear()
    ask(ask_again, loopback.worker())
    written = caplog.text + str(caught.value) + "".join(capfd.readouterr())
    assert KEY not in written
    assert SECRET_PROMPT not in written


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def test_a_loop_that_ends_leaves_no_connection_open(loopback: Any, make_client: Any) -> None:
    client = make_client()
    ask(client, loopback.worker())
    before = len(list(Path("/proc/self/fd").iterdir()))
    for sample in range(1, 9):
        ask(client, loopback.worker(), sample=sample)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 4


def test_the_cap_holds_under_200_concurrent_calls_and_the_rest_is_told(loopback: Any, make_client: Any) -> None:
    worker = loopback.worker(concurrency=200, max_tokens=5)
    each = (10 * 1.0 + 5 * 2.0) / 1e6
    cap = 30 * each
    client = make_client(cap_usd=cap)

    async def many() -> list[Any]:
        calls = (client.complete(worker, ASK, sample=s) for s in range(200))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(many())
    answered = [r for r in results if not isinstance(r, BaseException)]
    refused = [r for r in results if isinstance(r, OverBudget)]
    assert len(answered) + len(refused) == 200
    assert len(answered) == len(loopback.requests)
    assert 0 < client.ledger.spent("run") <= cap + 1e-12
    # The rest is less than one more call's worst case, because calls waited for unused reservations.
    assert len(answered) >= 24
    more = make_client(cap_usd=10.0)
    asyncio.run(more.complete(worker, ASK, sample=199))


def test_a_reservation_waits_for_what_a_call_in_flight_leaves_over(loopback: Any, make_client: Any) -> None:
    worker = loopback.worker(max_tokens=1000)  # worst case 2e-3 USD and a little, actual cost 2e-5
    client = make_client(cap_usd=2.2e-3)
    loopback.latency_s = 0.05

    async def two() -> list[Any]:
        return await asyncio.gather(*(client.complete(worker, ASK, sample=s) for s in range(2)))

    assert len(asyncio.run(two())) == 2
    assert loopback.most_busy == 1
