"""Replies that are not answers: their effect on run, ledger, cap and cache, and the calls of a resumed run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ops.core.errors import AccountError, ConfigError, RequestRejected
from ops.core.response import Message
from ops.workers.call import REJECTIONS_IN_A_ROW
from ops.workers.client import WorkerClient
from ops.workers.failures import LONGEST_WAIT_S, UNREADABLE_WAIT_S, retry_after_s
from ops.workflow.execution import execute, messages_of
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.faults.misbehaving import CASES, PAID_USD, Case, Seen, observe, says, sends
from tests.faults.remote import FaultServer

MakeClient = Callable[..., WorkerClient]
TWO_STEPS = Workflow((Step(0, "solve"), Step(1, "check", "all")))


def user(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


def came(server: FaultServer) -> int:
    return sum(entry["event"] == "came" for entry in server.log())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_run_ledger_cap_and_cache(server: FaultServer, tmp_path: Path, case: Case) -> None:
    resumed = "waits" if case.waits else "0 requests" if case.cached else "1 requests"
    expected = Seen(case.ends, case.attempts, case.paid, 0, case.cached, resumed)
    assert observe(server, tmp_path / "state", case) == expected


def run(server: FaultServer, client: WorkerClient, question: str = "2+2?") -> WorkflowTrace:
    team = Team([server.worker(name="reasoner"), server.worker(name="follower", model="openai/other-model")], client)
    return asyncio.run(execute(TWO_STEPS, question, team))


def test_an_empty_response_is_no_message_to_the_next_worker(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=[says("", "length")], rejects_blank=True)
    trace = run(server, make_client())
    assert (trace.status, trace.answer, [step.status for step in trace.steps]) == ("empty", None, ["empty", "not_run"])
    assert "'reasoner'" in trace.error and "finish_reason length" in trace.error and "max_tokens" in trace.error
    assert came(server) == 1
    assert (trace.calls, trace.cost_usd, trace.latency_s > 0) == (1, pytest.approx(PAID_USD), True)
    assert messages_of(trace, 0)[-1]["role"] == "user"


def test_forty_questions_in_three_runs_are_paid_forty_times(server: FaultServer, make_client: MakeClient) -> None:
    for _ in range(3):
        server.order(plan=[says("", "length")] * 40, rejects_blank=True)
        client = make_client()
        traces = [run(server, client, f"question {number}") for number in range(40)]
        assert {trace.status for trace in traces} == {"empty"}
        assert sum(trace.cost_usd for trace in traces) == pytest.approx(40 * PAID_USD)
    assert came(server) == 40
    assert make_client().ledger.spent("run") == pytest.approx(40 * PAID_USD)


def test_a_blank_response_after_a_whole_one_keeps_the_earlier_response(
    server: FaultServer, make_client: MakeClient
) -> None:
    server.order(plan=["ok", says("  ", "length")], rejects_blank=True)
    trace = run(server, make_client())
    assert (trace.status, [step.status for step in trace.steps]) == ("empty", ["ok", "empty"])
    assert trace.steps[0].response.text == "Answer: 20"
    assert trace.critical_path == (0, 1)


def test_one_rejection_is_one_rollouts_failure(server: FaultServer, make_client: MakeClient) -> None:
    client = make_client()
    server.order(plan=["ok", sends(400, "The stars are not right."), "ok", "ok"])
    first, second = run(server, client, "first"), run(server, client, "second")
    assert (first.status, first.steps[1].status, second.status) == ("rejected", "rejected", "answered")
    assert "The stars are not right." in first.error and "'follower'" in first.error


def test_a_rejection_names_the_parameter(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=[sends(400, "Unsupported value: 0.2", param="temperature")])
    with pytest.raises(RequestRejected, match=r"Unsupported value: 0.2 \(parameter temperature\)"):
        asyncio.run(make_client().complete(server.worker(), user("Which one?")))


def test_the_words_of_a_rejection_are_bounded(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=[sends(400, "many words " * 10_000)])
    with pytest.raises(RequestRejected) as caught:
        asyncio.run(make_client().complete(server.worker(), user("Which one?")))
    assert len(str(caught.value)) < 500


def test_a_worker_that_rejects_everything_stops_the_run(server: FaultServer, make_client: MakeClient) -> None:
    client, worker = make_client(pool_file="pool.yaml"), server.worker()
    server.order(plan=[sends(400, "Unknown parameter: top_q")] * 100)
    for number in range(REJECTIONS_IN_A_ROW - 1):
        with pytest.raises(RequestRejected):
            asyncio.run(client.complete(worker, user(str(number))))
    said = r"pool\.yaml: workers\.remote: 10 requests in a row .*Unknown parameter: top_q"
    with pytest.raises(ConfigError, match=said):
        asyncio.run(client.complete(worker, user("last")))


@pytest.mark.parametrize("again", ["live", "cached"])
def test_a_response_ends_a_row_of_rejections(server: FaultServer, make_client: MakeClient, again: str) -> None:
    client, worker = make_client(), server.worker()
    asyncio.run(client.complete(worker, user("known")))
    for round_ in range(3):
        server.order(plan=[sends(400, "The stars are not right.")] * (REJECTIONS_IN_A_ROW - 1))
        for number in range(REJECTIONS_IN_A_ROW - 1):
            with pytest.raises(RequestRejected):
                asyncio.run(client.complete(worker, user(f"{round_} {number}")))
        asyncio.run(client.complete(worker, user("known" if again == "cached" else f"new {round_}")))


@pytest.mark.parametrize(
    ("message", "is_model"),
    [
        ("Model Not Exist", True),
        ("The provided model identifier is invalid.", True),
        ("The model `gpt-9` does not exist or you do not have access to it.", True),
        ("The model llama-9 has been decommissioned", True),
        ("gpt-9 is not a valid model ID", True),
        ("Invalid model: small-9", True),
        ("Invalid model", True),
        ("unknown model gpt-9", True),
        ("model 'small' not found, try pulling it first", True),
        ("Model x/small-9 is no longer available", True),
        ("temperature is not supported with this model", False),
        ("invalid model output: the tool call was not found", False),
        ("Image not found for this model", False),
        ("the model temperature is invalid", False),
        ("model output not found in the prefix", False),
        ("Invalid model response format", False),
        ("The stars are not right.", False),
    ],
)
def test_only_a_wrong_model_name_is_one(
    server: FaultServer, make_client: MakeClient, message: str, is_model: bool
) -> None:
    server.order(plan=[sends(400, message)])
    with pytest.raises(ConfigError if is_model else RequestRejected) as caught:
        asyncio.run(make_client().complete(server.worker(), user("Which one?")))
    if isinstance(caught.value, ConfigError):
        assert caught.value.field == "workers.remote.model"


@pytest.mark.parametrize(
    ("message", "is_account"),
    [
        ("Your account balance is insufficient", True),
        ("Insufficient account balance", True),
        ("Account balance not enough, please recharge your account", True),
        ("There is not enough credit on this account", True),
        ("The brackets are out of balance", False),
        ("Unknown parameter: balance", False),
    ],
)
def test_only_an_empty_account_is_one(
    server: FaultServer, make_client: MakeClient, message: str, is_account: bool
) -> None:
    server.order(plan=[sends(400, message)])
    with pytest.raises(AccountError if is_account else RequestRejected):
        asyncio.run(make_client().complete(server.worker(), user("Which one?")))


NOW = 1_800_000_000.0
"""Fri, 15 Jan 2027 08:00:00 GMT"""


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("2", 2.0),
        ("0.5", 0.5),
        ("300", 300.0),
        ("301", LONGEST_WAIT_S),
        ("9999999999", LONGEST_WAIT_S),
        ("1e400", LONGEST_WAIT_S),
        ("9" * 5000, LONGEST_WAIT_S),
        ("inf", LONGEST_WAIT_S),
        ("Infinity", LONGEST_WAIT_S),
        ("-inf", UNREADABLE_WAIT_S),
        ("-5", UNREADABLE_WAIT_S),
        ("nan", UNREADABLE_WAIT_S),
        ("soon", UNREADABLE_WAIT_S),
        ("\ud83d", UNREADABLE_WAIT_S),
        ("Fri, 15 Jan 2027 08:00:12 GMT", 12.0),
        ("Friday, 15-Jan-27 08:00:12 GMT", 12.0),
        ("Fri Jan 15 08:00:12 2027", 12.0),
        ("Fri, 15 Jan 2027 07:59:00 GMT", 0.0),
        ("Sat, 15 Jan 2028 08:00:00 GMT", LONGEST_WAIT_S),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_WAIT_S),
        ("Fri, 31 Dec 99999 23:59:59 GMT", LONGEST_WAIT_S),
        ("Fri, 99 Foo 2027 08:00:00 GMT", UNREADABLE_WAIT_S),
    ],
)
def test_retry_after_is_bounded(value: str, seconds: float) -> None:
    assert retry_after_s(value, NOW) == seconds


def test_any_retry_after_gives_a_bounded_wait() -> None:
    random = Random(0)
    pieces = [
        *"0123456789.,:-+ eE",
        "inf",
        "nan",
        "Fri, ",
        "Jan",
        " 2027",
        "GMT",
        "99999",
        "\0",
        "é",
        "\ud800",
        "-0000",
    ]
    for _ in range(20_000):
        value = "".join(random.choices(pieces, k=random.randint(0, 12)))
        assert 0.0 <= retry_after_s(value, NOW) <= LONGEST_WAIT_S


def test_a_lone_surrogate_is_replaced_before_it_is_cached(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=[says("\ud83d\ude00 and \ud83d", "st\udc00p", reasoning_content="\ud83d")])
    client, worker = make_client(), server.worker()
    response = asyncio.run(client.complete(worker, user("Which one?")))
    assert response.text == "\U0001f600 and \ufffd"
    again = asyncio.run(make_client().complete(worker, user("Which one?")))
    assert (again.text, again.finish_reason, again.cached) == (response.text, response.finish_reason, True)
    (again.text + again.finish_reason).encode()
