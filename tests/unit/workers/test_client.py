"""The path of one call: cache, budget, retries, errors, limits; on a real server on loopback."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ops.config import Worker
from ops.core.errors import ConfigError, DataError, OverBudget, WorkerRefused, WorkerUnreachable
from ops.spending.ledger import Ledger
from ops.workers.live_call import CallRecorder
from tests.unit.workers.conftest import ASK, KEY, ask, together

PER_CALL = (10 * 1.0 + 5 * 2.0) / 1e6


def test_a_live_answer_is_priced_counted_and_booked(client: Any, worker: Any) -> None:
    response = ask(client, worker)
    assert (response.text, response.finish_reason, response.cached) == ("Answer: 4", "stop", False)
    assert response.cost_usd == pytest.approx(PER_CALL)
    assert 0 < response.latency_s < 60
    assert client.counts.live == 1
    assert client.ledger.total_usd("run") == pytest.approx(response.cost_usd)
    assert client.ledger.count_in_flight("run") == 0


def test_sampling_settings_reach_the_server(loopback: Any, client: Any) -> None:
    worker = loopback.worker(
        model="hosted_vllm/m", temperature=0.7, top_p=0.8, top_k=20, presence_penalty=1.0,
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )  # fmt: skip
    ask(client, worker)
    expected = {
        "model": "m", "messages": ASK, "max_tokens": 64, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
        "presence_penalty": 1.0, "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    assert {key: loopback.requests[0].get(key) for key in expected} == expected
    assert loopback.keys == [KEY]
    ask(client, loopback.worker(temperature=None))
    assert "temperature" not in loopback.requests[1]


def test_the_environments_key_is_not_sent_to_a_server_of_ones_own(
    loopback: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-belongs-to-openai-alone")
    ask(client, loopback.worker(api_key_env=None))
    assert "belongs-to-openai" not in loopback.keys[0]


# ── the cache ────────────────────────────────────────────────────────────────


def test_the_second_time_it_comes_from_the_cache_also_in_another_client(
    loopback: Any, client: Any, worker: Any, make_client: Any
) -> None:
    first = ask(client, worker)
    other = make_client()
    again = ask(other, worker)
    assert len(loopback.requests) == 1
    assert again.cached and again.text == first.text and again.cost_usd == first.cost_usd
    assert (other.counts.live, other.counts.cached, other.counts.usd) == (0, 1, 0.0)


def test_cached_responses_need_no_key_and_a_missing_one_is_named(
    loopback: Any, client: Any, worker: Any, make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(client, worker)
    monkeypatch.delenv("LOOPBACK_KEY")
    without = make_client(pool_file="config/pools/mine.yaml")
    assert ask(without, worker).cached
    with pytest.raises(ConfigError, match="LOOPBACK_KEY is not set") as caught:
        ask(without, worker, sample=1)
    assert str(caught.value).startswith("config/pools/mine.yaml: workers.remote.api_key_env: ")
    assert len(loopback.requests) == 1


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
    loopback: Any, client: Any, worker: Any, change: Any, sample: int, calls: int
) -> None:
    ask(client, worker)
    ask(client, loopback.worker(**change), sample=sample)
    assert len(loopback.requests) == calls


@pytest.mark.parametrize("cancelled", ["first", "second"])
def test_either_of_two_identical_calls_may_be_cancelled(
    loopback: Any, client: Any, worker: Any, cancelled: str
) -> None:
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
    assert client.ledger.count_in_flight("run") == 0


def test_identical_calls_in_flight_are_made_once(loopback: Any, client: Any, worker: Any) -> None:
    loopback.latency_s = 0.1

    async def many() -> list[Any]:
        return await asyncio.gather(*(client.complete(worker, ASK) for _ in range(20)))

    responses = asyncio.run(many())
    assert len(loopback.requests) == 1
    assert {r.text for r in responses} == {"Answer: 4"}
    assert sum(not r.cached for r in responses) == 1
    assert (client.counts.live, client.counts.cached) == (1, 19)


def test_one_client_serves_several_loops_and_threads(loopback: Any, client: Any) -> None:
    worker = loopback.worker(concurrency=2)
    texts: list[str] = []

    def run(sample: int) -> None:
        texts.extend(ask(client, worker, sample=number).text for number in (sample, sample + 10))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert texts == ["Answer: 4"] * 8
    assert client.counts.live == 8


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def test_a_loop_that_ends_leaves_no_connection_open(client: Any, worker: Any) -> None:
    ask(client, worker)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for sample in range(1, 9):
        ask(client, worker, sample=sample)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 4


# ── failures ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("failure", ["429", "500", "502", "503", "reset", "empty choices", "empty text"])
def test_a_transient_failure_is_tried_again(loopback: Any, client: Any, worker: Any, failure: str) -> None:
    loopback.plan.extend([failure, failure])
    response = ask(client, worker)
    assert (response.text, response.retries) == ("Answer: 4", 2)
    assert len(loopback.requests) == 3
    assert client.counts.retries == 2
    assert len(client.cache) == 1
    # A status costs nothing. Other requests were paid for, or may have been.
    paid = 1 if failure.isdigit() else 3
    assert client.ledger.total_usd("run") == pytest.approx(paid * response.cost_usd)


def test_concurrent_calls_count_their_own_retries(loopback: Any, client: Any) -> None:
    loopback.plan.extend(["500"] * 30)
    results = together(client, loopback.worker(retries=1, breaker_failures=100), 15)
    assert {type(result) for result in results} == {WorkerUnreachable}
    assert len(loopback.requests) == 30


def test_retry_after_is_honoured_by_every_call_to_that_worker(loopback: Any, client: Any, worker: Any) -> None:
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


def test_the_timeout_bounds_a_call(loopback: Any, client: Any) -> None:
    loopback.plan.extend(["hang"] * 3)
    start = time.monotonic()
    with pytest.raises(WorkerUnreachable):
        ask(client, loopback.worker(timeout_s=0.2, retries=1))
    assert time.monotonic() - start < 15  # the server would answer after 30 s


UNREACHABLE, REFUSED = (WorkerUnreachable, "'remote'.* after 3 attempts"), (WorkerRefused, "remote")
KEY_FIELD, MODEL_FIELD, PRICE_FIELD = (
    (ConfigError, rf"^config/pools/mine\.yaml: workers\.remote\.{field}: ")
    for field in ("api_key_env", "model", "price")
)
FAILURES: dict[str, tuple[dict[str, Any], tuple[type[Exception], str], int]] = {
    "500": ({}, UNREACHABLE, 3),
    "reset": ({}, UNREACHABLE, 3),
    "429": ({}, UNREACHABLE, 3),
    "no server": ({"api_base": "http://127.0.0.1:9/v1"}, UNREACHABLE, 0),
    "400": ({}, REFUSED, 1),
    "413": ({}, REFUSED, 1),
    "422": ({}, REFUSED, 1),
    "filtered": ({}, REFUSED, 1),
    "401": ({}, KEY_FIELD, 1),
    "403": ({}, KEY_FIELD, 1),
    "404": ({}, MODEL_FIELD, 1),
    "wrong model": ({}, MODEL_FIELD, 1),
    "unknown model": ({"model": "nobody-knows-this"}, MODEL_FIELD, 0),
    "unknown tool": ({"model": "local/no-such-tool"}, MODEL_FIELD, 0),
    "unknown price": ({"model": "openai/unheard-of", "price": None}, PRICE_FIELD, 0),
}
"""What the server does → settings of the worker, the error and its words, and how many requests are sent."""


@pytest.mark.parametrize("failure", FAILURES)
def test_a_call_that_fails(loopback: Any, make_client: Any, failure: str) -> None:
    settings, (error, says), sent = FAILURES[failure]
    client, worker = make_client(pool_file="config/pools/mine.yaml"), loopback.worker(retries=2, **settings)
    loopback.plan.extend([failure] * 9)
    with pytest.raises(error, match=says):
        ask(client, worker)
    assert len(loopback.requests) == sent
    assert (client.counts.failed, client.ledger.count_in_flight("run")) == (1, 0)
    # An error status or a request that never arrived costs nothing; a broken connection may have cost a call.
    assert sum(spent.lost for spent in client.ledger.by_run().values()) == (3 if failure == "reset" else 0)
    assert (client.ledger.total_usd("run") > 0) == (failure in ("reset", "filtered", "wrong model"))
    assert len(client.cache) == (1 if failure == "filtered" else 0)
    if error is WorkerRefused:
        with pytest.raises(WorkerRefused):
            ask(client, worker)
        assert len(loopback.requests) == (1 if failure == "filtered" else 2), "what was paid for is not asked again"


@pytest.mark.parametrize(("plan", "text"), [("truncated", "Answer: 4"), ("truncated empty", "")])
def test_a_truncated_answer_is_an_answer_and_is_kept(
    loopback: Any, client: Any, worker: Any, make_client: Any, plan: str, text: str
) -> None:
    loopback.plan.append(plan)
    response = ask(client, worker)
    assert (response.text, response.finish_reason) == (text, "length")
    assert ask(make_client(), worker).cached
    assert client.ledger.total_usd("run") == pytest.approx(response.cost_usd)


@pytest.mark.parametrize("failure", ["401", "400", "500", "404"])
def test_neither_key_nor_prompt_gets_into_an_error_or_a_log(
    loopback: Any, make_client: Any, caplog: pytest.LogCaptureFixture, capfd: Any, failure: str
) -> None:
    caplog.set_level(logging.DEBUG)
    loopback.plan.extend([failure] * 9)
    with pytest.raises((ConfigError, WorkerRefused, WorkerUnreachable)) as caught:
        ask(make_client(), loopback.worker(retries=1))
    logging.getLogger("test").error("failed", exc_info=caught.value)
    loopback.plan.clear()
    ask(make_client(run="other"), loopback.worker())
    written = caplog.text + str(caught.value) + "".join(capfd.readouterr())
    assert KEY not in written
    assert "the-secret-question" not in written


# ── the budget ───────────────────────────────────────────────────────────────


def test_the_cap_holds_under_200_concurrent_calls_and_the_others_are_refused(loopback: Any, make_client: Any) -> None:
    worker, cap = loopback.worker(concurrency=200, max_tokens=5), 30 * PER_CALL
    client = make_client(cap_usd=cap)
    results = together(client, worker, 200)
    answered = [r for r in results if not isinstance(r, BaseException)]
    refused = [r for r in results if isinstance(r, OverBudget)]
    assert len(answered) + len(refused) == 200
    assert len(answered) == len(loopback.requests)
    assert 0 < client.ledger.total_usd("run") <= cap + 1e-12
    # The rest is less than one more call's worst case, because calls waited for unused reservations.
    assert len(answered) >= 24
    assert ask(make_client(cap_usd=10.0), worker, sample=199).text


def test_a_reservation_waits_for_what_a_call_in_flight_leaves_over(loopback: Any, make_client: Any) -> None:
    worker = loopback.worker(max_tokens=1000)  # worst case 2e-3 USD and a little, actual cost 2e-5
    loopback.latency_s = 0.05
    assert [response.text for response in together(make_client(cap_usd=2.2e-3), worker, 2)] == ["Answer: 4"] * 2
    assert loopback.most_busy == 1


# ── the ledger and the cache do not take a reply ─────────────────────────────


def test_a_reply_that_the_cache_does_not_take_is_booked(
    client: Any, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = DataError("responses.sqlite", "", "database or disk is full", "Make room")
    with monkeypatch.context() as patch, pytest.raises(DataError):
        patch.setattr(client.cache.backend, "insert", raising(full))
        ask(client, worker)
    assert client.ledger.by_run()["run"].calls == 1
    assert len(client.cache) == 0
    ask(client, worker)
    spent = client.ledger.by_run()["run"]
    assert (spent.calls, spent.lost, spent.usd) == (2, 0, pytest.approx(2 * PER_CALL))
    assert len(client.cache) == 1


def test_a_reply_that_the_ledger_does_not_take_is_kept_and_measures_its_lost_call(
    client: Any, worker: Any, make_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(client, worker, sample=1)
    full = DataError("ledger.sqlite", "", "database or disk is full", "Make room")
    with monkeypatch.context() as patch, pytest.raises(DataError):
        patch.setattr(client.ledger, "settle", failing_settle(client.ledger, full))
        ask(client, worker)
    assert len(client.cache) == 2, "it was paid for"
    assert ask(client, worker).cached
    client.ledger.close()
    again = make_client()
    assert CallRecorder(again.cache, again.ledger).book_lost_calls()
    spent = again.ledger.by_run()["run"]
    assert (spent.calls, spent.lost, spent.usd) == (1, 1, pytest.approx(2 * PER_CALL))


def test_no_stored_response_of_an_embedded_worker_is_unknown_to_the_ledger(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    price = {"input": 1.0, "output": 2.0}
    embedded = Worker.model_validate({"name": "embedded", "model": "local/guesser", "price": price})
    full = DataError("ledger.sqlite", "", "database or disk is full", "Make room")
    with monkeypatch.context() as patch, pytest.raises(DataError):
        patch.setattr(client.ledger, "settle", failing_settle(client.ledger, full))
        ask(client, embedded)
    assert (len(client.cache), client.ledger.by_run()) == (0, {})
    ask(client, embedded)
    assert (len(client.cache), client.ledger.by_run()["run"].calls) == (1, 1)


def raising(error: Exception) -> Any:
    def fail(*_: Any) -> None:
        raise error

    return fail


def failing_settle(ledger: Ledger, error: Exception) -> Any:
    """`Ledger.settle` on a store that does not take the transaction."""
    settle, store = ledger.settle, ledger._store

    def fail(*bills: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "write", raising(error))
            settle(*bills)

    return fail
