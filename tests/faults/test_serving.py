"""The champion in service while its workers fail: real endpoints on loopback, controlled and killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import openai
import pytest

from ops.config import Pool
from ops.workflow.grammar import Step, Workflow
from tests.faults.remote import PAID_USD, FaultServer, says, sends
from tests.serving.running import Running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
NAMES = ("first", "second", "third")
KEY = "PODIUM_TEST_WORKER_KEY"
ALL = Workflow((Step(0, "Compute."), Step(1, "Check it.", "all"))).render()
WITHOUT_FIRST = Workflow((Step(1, "Compute."), Step(2, "Check it.", "all"))).render()
STRENGTHS = {
    "accuracy": {"first": {"rlpr": 0.9}, "second": {"rlpr": 0.2}, "third": {"rlpr": 0.6}},
    "cost_usd": {"first": 0.01, "second": 0.001, "third": 0.002},
}


class Fleet:
    """A server, and a separate endpoint for each worker."""

    def __init__(self, server: Running, endpoints: dict[str, FaultServer]) -> None:
        self.server, self.endpoints = server, endpoints
        self.client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)

    def ask(self, text: str, **options: Any) -> dict[str, Any]:
        """Return the account of an answer."""
        reply = self.client.chat.completions.create(
            model="conductor", messages=[{"role": "user", "content": text}],
            extra_body={"podium": {"workflow": True, **options}},
        )  # fmt: skip
        assert "Answer: " in (reply.choices[0].message.content or "")
        account: dict[str, Any] = (reply.model_extra or {})["podium"]
        return account

    def order(self, *names: str, **values: Any) -> None:
        """Order the endpoints of these workers, or of all."""
        for name in names or NAMES:
            self.endpoints[name].order(**values)

    def calls(self, name: str) -> int:
        """Return the number of requests to the worker's endpoint."""
        return len(self.endpoints[name].came())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    tmp_path = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        endpoints = {}
        for name in NAMES:
            (tmp_path / name).mkdir()
            endpoints[name] = stack.enter_context(FaultServer(tmp_path / name))
        workers = tuple(
            endpoints[name].worker(
                name=name, retries=1, breaker_failures=2, breaker_rest_s=1.0, timeout_s=20.0, api_key_env=KEY
            )
            for name in NAMES
        )
        server = Running(tmp_path / "served", Pool(name="fleet", workers=workers), **{KEY: "a-worker-key"})
        server.settings(follow_s=5.0)
        server.version("1", ALL, by_offer={"1 2": WITHOUT_FIRST}, strengths=STRENGTHS).champion("1")
        stack.enter_context(server)
        yield Fleet(server, endpoints)


@pytest.mark.long
def test_a_blank_response_and_a_rejection_lead_to_the_other_workers(fleet: Fleet) -> None:
    before = fleet.calls("first")
    fleet.order("first", rate=1.0, faults=[says("", "length")])
    account = fleet.ask("Why blank?")
    [fallback] = account["fallbacks"]
    assert (fallback["reason"], fallback["worker"], fallback["then"]) == ("empty", "first", "rewritten")
    assert "max_tokens" in fallback["error"]
    assert account["cost_usd"] == pytest.approx(3 * PAID_USD)  # the blank response was paid for too
    assert fleet.calls("first") == before + 1

    fleet.order(rate=1.0, faults=[says("Answer: 4", "length")])
    reply = fleet.client.chat.completions.create(
        model="conductor", messages=[{"role": "user", "content": "Why cut?"}], max_tokens=100_000
    )
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Answer: 4", "length")
    response = fleet.client.responses.create(model="conductor", input="Why cut?")
    assert response.status == "incomplete" and response.incomplete_details
    fleet.order(rate=0.0)

    fleet.order("first", rate=1.0, faults=[sends(400, "The stars are not right.")])
    [fallback] = fleet.ask("Why rejected?")["fallbacks"]
    assert (fallback["reason"], fallback["then"]) == ("rejected", "rewritten")
    assert "The stars are not right." in fallback["error"]

    fleet.order(rate=1.0, faults=[says(" ", "length")])
    with pytest.raises(openai.APIStatusError) as raised:
        fleet.ask("Why anything?")
    assert (raised.value.status_code, raised.value.code) == (502, "empty_answer")
    assert raised.value.response.headers["x-should-retry"] == "false"
    fleet.order(rate=0.0)


@pytest.mark.long
def test_workers_fail_one_after_the_other_and_answers_go_on(fleet: Fleet) -> None:
    """The last test of the file, because it ends all endpoints."""
    account = fleet.ask("Why first?")
    assert [step["worker"] for step in account["steps"]] == ["first", "second"] and account["fallbacks"] == []

    # A forbidden worker is never called by any workflow of the Conductor.
    before = fleet.calls("second")
    for number in range(5):
        account = fleet.ask(f"Why forbidden {number}?", forbidden=["second"])
        assert "second" not in {step["worker"] for step in account["steps"]}
        assert fleet.ask(f"Why only {number}?", allowed=["third"])["steps"][0]["worker"] == "third"
    assert fleet.calls("second") == before

    # A key is revoked during the load: another workflow runs, without the worker.
    fleet.order("first", rate=1.0, faults=["403"])
    account = fleet.ask("Why revoked?")
    assert [step["worker"] for step in account["steps"]] == ["second", "third"]
    [fallback] = account["fallbacks"]
    assert (fallback["reason"], fallback["worker"], fallback["then"]) == ("misconfigured", "first", "rewritten")
    fleet.order("first", rate=0.0)
    assert fleet.ask("Why mended?")["fallbacks"] == []

    # An endpoint is killed under load.
    accounts: list[dict[str, Any]] = []
    killed, enough = threading.Event(), threading.Event()

    def ask_on(asker: int) -> None:
        number = 0
        while not enough.is_set():
            accounts.append(fleet.ask(f"Why {asker} {number}?") | {"after": killed.is_set()})
            number += 1

    with ThreadPoolExecutor(6) as threads:
        askers = [threads.submit(ask_on, asker) for asker in range(6)]
        fleet.endpoints["first"].kill()
        killed.set()
        while sum(account["after"] for account in accounts) < 24 and not any(asker.done() for asker in askers):
            threading.Event().wait(0.05)
        enough.set()
        for asker in askers:
            asker.result(240)  # no request failed
    led_round = [account for account in accounts if account["fallbacks"]]
    assert led_round and accounts[-1] in led_round
    for account in led_round:
        [fallback] = account["fallbacks"]
        assert (fallback["reason"], fallback["worker"], fallback["then"]) == ("unreachable", "first", "rewritten")
        assert [step["worker"] for step in account["steps"]] == ["second", "third"]
    assert fleet.server.metric("podium_worker_failures_total", worker="first", status="unreachable") >= 1

    # And another one: only the third is left, and is called alone.
    fleet.endpoints["second"].kill()
    account = fleet.ask("Why last?")
    assert [step["worker"] for step in account["steps"]] == ["third"]
    assert account["fallbacks"][-1]["by"] == "third, by profile"

    # No worker answers any more: the error says so, and when to retry.
    fleet.endpoints["third"].kill()
    with pytest.raises(openai.APIStatusError) as raised:
        fleet.ask("Why anybody?")
    assert (raised.value.status_code, raised.value.code) == (502, "workers_unreachable")
    assert "retry-after" in raised.value.response.headers
