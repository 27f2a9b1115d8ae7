"""Replies that are not answers: their effect on run, ledger, cap and cache, and the calls of a resumed run."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest

from ops.conductor.rollout import Rollout, execute_rollouts
from ops.config import Prompting, Worker
from ops.core.errors import AccountError, ConfigError, PodiumError, RequestRejected
from ops.store import cache_key
from ops.workers.client import WorkerClient
from ops.workers.failures import MAX_WAIT_S, UNREADABLE_WAIT_S, parse_retry_after
from ops.workers.live_call import MAX_CONSECUTIVE_REJECTIONS
from ops.workflow.execution import execute_workflow, rebuild_messages
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from ops.workflow.trace import WorkflowTrace
from tests.builders import make_problem
from tests.faults.clients import MakeClient
from tests.faults.remote import PAID_USD, FaultServer, ask, says, sends, user

TWO_STEPS = Workflow((Step(0, "solve"), Step(1, "check", "all")))


class Case(NamedTuple):
    """A reply, and the required result of the call."""

    name: str
    order: str
    ends: str
    """The rollout's status and reward, or the error that stops the run."""
    attempts: int = 1
    paid: int = 0
    """Replies that are booked."""
    cached: int = 0
    waits: bool = False
    """The resumed run does not call at once."""


def with_choice(finish_reason: str | None = "stop", **fields: object) -> str:
    """Return an order for a reply whose choice has further fields."""
    return json.dumps({"says": {"content": "It is 4.", "finish_reason": finish_reason}, "choice": fields})


CALL = {"name": "f", "arguments": "{}"}
TOOLS = [{"id": "1", "type": "function", "function": CALL}]
EMPTY, REJECTED, AWAY = "empty, reward 0.5", "rejected, reward 0.5", "unreachable, reward None"
CASES = (
    Case("empty, length", says("", "length"), EMPTY, paid=1, cached=1),
    Case("null, length", says(None, "length"), EMPTY, paid=1, cached=1),
    Case("blank, length", says(" \n\t\u2003", "length"), EMPTY, paid=1, cached=1),
    Case("reasoning alone, length", says("", "length", reasoning_content="I think"), EMPTY, paid=1, cached=1),
    Case("empty, stop", says("", "stop"), EMPTY, attempts=3, paid=3, cached=1),
    Case("blank, stop", says("\n\n", "stop"), EMPTY, attempts=3, paid=3, cached=1),
    Case("no choices", "empty choices", AWAY, attempts=3, paid=3),
    Case("content filter", says("", "content_filter"), "refused, reward 0.5", paid=1, cached=1),
    Case("content filter, half an answer", says("It is", "content_filter"), "refused, reward 0.5", paid=1, cached=1),
    Case("lone surrogate in the text", says("It is \ud83d.", "stop"), "answered, reward 0.5", paid=1, cached=1),
    Case("unknown finish_reason", says("yes", "st\udc00p"), "ConfigError", attempts=3, paid=3),
    *(
        Case(f"half an answer, {reason}", says("It is 4, but", reason), AWAY, attempts=3, paid=3)
        for reason in (
            "error",
            "network_error",
            "insufficient_system_resource",
            "abort",
            "cancelled",
            "timeout",
            "aborted",
            "server_error",
            "preempted",
            "OTHER",
            "FinishReason.OTHER",
            "MALFORMED_RESPONSE",
            "pause_turn",
            "incomplete",
            "ERROR_LIMIT",
            "time_limit",
            "null",
        )
    ),
    *(
        Case(f"whole, {reason}", says("It is 4.", reason), "answered, reward 1.0", paid=1, cached=1)
        for reason in ("stop", None, "eos", "end_turn", "STOP", "COMPLETE", "eos_token", "max_tokens", "model_length")
    ),
    Case("error in the choice", with_choice(error={"code": 502, "message": "died"}), AWAY, attempts=3, paid=3),
    Case("error in the choice, no reason", with_choice(None, error={"message": "died"}), AWAY, attempts=3, paid=3),
    Case("empty error in the choice", with_choice(error={}), "answered, reward 1.0", paid=1, cached=1),
    Case("a proxy's native reason", with_choice(native_finish_reason="abort"), AWAY, attempts=3, paid=3),
    Case("refusal", says(None, "stop", refusal="I cannot."), "declined, reward 0.5", paid=1, cached=1),
    Case("refusal, empty text", says("", "stop", refusal="I cannot."), "declined, reward 0.5", paid=1, cached=1),
    Case("refusal as a part", says([{"type": "refusal"}], "stop"), "declined, reward 0.5", paid=1, cached=1),
    Case("tool calls alone", says(None, "tool_calls", tool_calls=TOOLS), "tool_calls, reward 0.5", paid=1, cached=1),
    Case("tool calls alone, stop", says(None, "stop", tool_calls=TOOLS), "tool_calls, reward 0.5", paid=1, cached=1),
    Case("a call", says(None, "function_call", function_call=CALL), "tool_calls, reward 0.5", paid=1, cached=1),
    Case("a text and calls", says("It is 4.", "stop", tool_calls=TOOLS), "answered, reward 1.0", paid=1, cached=1),
    *(
        Case(f"reasoning alone, {name}", order, "reasoning, reward 0.5", paid=1, cached=1)
        for name, order in {
            "reasoning_content": says("", "stop", reasoning_content="4?"),
            "reasoning": says(None, "stop", reasoning="4?"),
            "<think>": says("<think>It is 4.</think>", "stop"),
            "unfinished <think>": says("<think>It is 4.", "stop"),
            "[THINK]": says("[THINK]It is 4.[/THINK]", "stop"),
            "a part": says([{"type": "thinking", "thinking": "It is 4."}], "stop"),
            "a channel": says("<|channel|>analysis<|message|>It is 4.<|end|>", "stop"),
        }.items()
    ),
    Case("unfinished <think>, length", says("<think>It is 4.", "length"), EMPTY, paid=1, cached=1),
    *(
        Case(f"a text in parts, {name}", says(parts, "stop"), "answered, reward 1.0", paid=1, cached=1)
        for name, parts in {
            "two": [{"type": "text", "text": "It is "}, {"type": "text", "text": "4."}],
            "one": [{"type": "text", "text": "It is 4."}],
            "output_text": [{"type": "output_text", "text": "It is 4."}],
            "strings": ["It is ", "4."],
            "with reasoning": [{"type": "thinking", "thinking": "5?"}, {"type": "text", "text": "4"}],
        }.items()
    ),
    Case("lone surrogate in an error", sends(400, "no \ud83d"), REJECTED),
    Case("400 unknown words", sends(400, "The stars are not right."), REJECTED),
    Case("400 Gemini, empty text", sends(400, "contents[1].parts[0].data: required oneof field"), REJECTED),
    Case("400 flagged", sends(400, "Content Exists Risk"), "refused, reward 0.5"),
    Case("402", sends(402, "Payment Required"), "AccountError"),
    Case("401", sends(401, "who are you"), "ConfigError"),
    Case("403", sends(403, "not yours"), "ConfigError"),
    Case("400 context", sends(400, "prompt is too long: 9 tokens > 8 maximum"), "too_long, reward 0.5"),
    Case("500", sends(500, "oops"), AWAY, attempts=3),
    Case("503", sends(503, "later"), AWAY, attempts=3),
    *(
        Case(f"429 Retry-After {value}", sends(429, "slow", {"retry-after": value}), AWAY, attempts=1, waits=True)
        for value in ("inf", "nan", "-5", "9999999999", "Fri, 31 Dec 99999 23:59:59 GMT", "soon")
    ),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_run_ledger_cap_and_cache(server: FaultServer, make_client: MakeClient, case: Case) -> None:
    worker = server.worker(retries=0 if case.waits else 2, breaker_failures=100)
    client = make_client(cap_usd=0.01, pool_file="pool.yaml")
    server.order(plan=[case.order] * 20)
    assert end_of_run(client, worker) == case.ends
    assert len(server.came()) == case.attempts
    paid = client.ledger.total_usd("run") / PAID_USD
    assert (round(paid), client.ledger.count_in_flight("run"), len(client.cache)) == (case.paid, 0, case.cached)
    server.order(plan=[])
    resumed = end_of_run(make_client(cap_usd=0.01, pool_file="pool.yaml"), worker, 0.5 if case.waits else None)
    if case.waits:
        assert resumed == "waits"
    else:
        assert len(server.came()) - case.attempts == (0 if case.cached else 1)


def end_of_run(client: WorkerClient, worker: Worker, limit_s: float | None = None) -> str:
    """Return the status and reward of one rollout, or the error that stops the run."""

    async def run() -> list[Rollout]:
        async with asyncio.timeout(limit_s):
            return await execute_rollouts(
                [Workflow.single(0).render()], [make_problem()], Team([worker], client, Prompting())
            )

    try:
        [rollout] = asyncio.run(run())
    except TimeoutError:
        return "waits"
    except PodiumError as error:
        str(error).encode()
        return type(error).__name__
    assert rollout.trace is not None
    json.dumps(rollout.trace.to_row(), ensure_ascii=False).encode()
    return f"{rollout.trace.status}, reward {rollout.reward}"


def run(server: FaultServer, client: WorkerClient, question: str = "2+2?") -> WorkflowTrace:
    team = Team([server.worker(name="reasoner"), server.worker(name="follower", model="openai/other-model")], client)
    return asyncio.run(execute_workflow(TWO_STEPS, question, team))


def test_an_empty_response_is_no_message_to_the_next_worker_and_is_paid_once(
    server: FaultServer, make_client: MakeClient
) -> None:
    server.order(plan=[says("", "length")], rejects_blank=True)
    trace = run(server, make_client())
    assert (trace.status, trace.answer, [step.status for step in trace.steps]) == ("empty", None, ["empty", "not_run"])
    assert "'reasoner'" in trace.error and "finish_reason length" in trace.error and "max_tokens" in trace.error
    assert (trace.calls, trace.cost_usd, trace.latency_s > 0) == (1, pytest.approx(PAID_USD), True)
    assert rebuild_messages(trace, 0)[-1]["role"] == "user"
    again = make_client()
    trace = run(server, again)
    assert (trace.status, trace.cost_usd) == ("empty", pytest.approx(PAID_USD))
    assert len(server.came()) == 1
    assert again.ledger.total_usd("run") == pytest.approx(PAID_USD)


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
        ask(make_client(), server.worker())


def test_the_words_of_a_rejection_are_bounded(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=[sends(400, "many words " * 10_000)])
    with pytest.raises(RequestRejected) as caught:
        ask(make_client(), server.worker())
    assert len(str(caught.value)) < 500


def test_a_worker_that_rejects_everything_stops_the_run(server: FaultServer, make_client: MakeClient) -> None:
    client, worker = make_client(pool_file="pool.yaml"), server.worker()
    server.order(plan=[sends(400, "Unknown parameter: top_q")] * 100)
    for number in range(MAX_CONSECUTIVE_REJECTIONS - 1):
        with pytest.raises(RequestRejected):
            ask(client, worker, str(number))
    said = r"pool\.yaml: workers\.remote: 10 requests in a row .*Unknown parameter: top_q"
    with pytest.raises(ConfigError, match=said):
        ask(client, worker, "last")


@pytest.mark.parametrize("again", ["live", "cached"])
def test_a_response_ends_a_row_of_rejections(server: FaultServer, make_client: MakeClient, again: str) -> None:
    client, worker = make_client(), server.worker()
    ask(client, worker, "known")
    for round_ in range(3):
        server.order(plan=[sends(400, "The stars are not right.")] * (MAX_CONSECUTIVE_REJECTIONS - 1))
        for number in range(MAX_CONSECUTIVE_REJECTIONS - 1):
            with pytest.raises(RequestRejected):
                ask(client, worker, f"{round_} {number}")
        ask(client, worker, "known" if again == "cached" else f"new {round_}")


WRONG_MODEL = (
    "Model Not Exist",
    "The provided model identifier is invalid.",
    "The model `gpt-9` does not exist or you do not have access to it.",
    "The model llama-9 has been decommissioned",
    "gpt-9 is not a valid model ID",
    "Invalid model: small-9",
    "Invalid model",
    "unknown model gpt-9",
    "model 'small' not found, try pulling it first",
    "Model x/small-9 is no longer available",
)
EMPTY_ACCOUNT = (
    "Your account balance is insufficient",
    "Insufficient account balance",
    "Account balance not enough, please recharge your account",
    "There is not enough credit on this account",
)
NEITHER = (
    "temperature is not supported with this model",
    "invalid model output: the tool call was not found",
    "Image not found for this model",
    "the model temperature is invalid",
    "model output not found in the prefix",
    "Invalid model response format",
    "The stars are not right.",
    "The brackets are out of balance",
    "Unknown parameter: balance",
)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        *((message, ConfigError) for message in WRONG_MODEL),
        *((message, AccountError) for message in EMPTY_ACCOUNT),
        *((message, RequestRejected) for message in NEITHER),
    ],
)
def test_only_a_wrong_model_name_or_an_empty_account_is_one(
    server: FaultServer, make_client: MakeClient, message: str, error: type[PodiumError]
) -> None:
    server.order(plan=[sends(400, message)])
    with pytest.raises(error) as caught:
        ask(make_client(), server.worker())
    assert type(caught.value) is error
    if type(caught.value) is ConfigError:
        assert caught.value.field == "workers.remote.model"


NOW = 1_800_000_000.0
"""Fri, 15 Jan 2027 08:00:00 GMT"""


RETRY_AFTER = (
    (0.0, ("0", "Fri, 15 Jan 2027 07:59:00 GMT")),
    (0.5, ("0.5",)),
    (2.0, ("2",)),
    (12.0, ("Fri, 15 Jan 2027 08:00:12 GMT", "Friday, 15-Jan-27 08:00:12 GMT", "Fri Jan 15 08:00:12 2027")),
    (300.0, ("300",)),
    (MAX_WAIT_S, ("301", "9999999999", "1e400", "9" * 5000, "inf", "Infinity")),
    (MAX_WAIT_S, ("Sat, 15 Jan 2028 08:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT")),
    (MAX_WAIT_S, ("Fri, 31 Dec 99999 23:59:59 GMT",)),
    (UNREADABLE_WAIT_S, ("-inf", "-5", "nan", "soon", "\ud83d", "Fri, 99 Foo 2027 08:00:00 GMT")),
)
"""Seconds of the wait, and values of the header that mean it."""


@pytest.mark.parametrize(
    ("value", "seconds"), [(value, seconds) for seconds, values in RETRY_AFTER for value in values]
)
def test_retry_after_is_bounded(value: str, seconds: float) -> None:
    assert parse_retry_after(value, NOW) == seconds


def test_any_retry_after_gives_a_bounded_wait() -> None:
    random = Random(0)
    pieces = [*"0123456789.,:-+ eE\0é\ud800", "inf", "nan", "Fri, ", "Jan", " 2027", "GMT", "99999", "-0000"]
    for _ in range(20_000):
        value = "".join(random.choices(pieces, k=random.randint(0, 12)))
        assert 0.0 <= parse_retry_after(value, NOW) <= MAX_WAIT_S


def test_a_lone_surrogate_is_replaced_before_it_is_cached(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=[says("\ud83d\ude00 and \ud83d.", "stop", reasoning_content="\ud83d")])
    client, worker = make_client(), server.worker()
    response = ask(client, worker)
    assert response.text == "\U0001f600 and \ufffd."
    again = ask(make_client(), worker)
    assert (again.text, again.finish_reason, again.cached) == (response.text, response.finish_reason, True)
    (again.text + again.finish_reason).encode()


@pytest.mark.parametrize(
    "said",
    [
        "<think>20?</think>It is 4.<|im_end|>", "Is it 20?\n</think>\n\nIt is 4.", "[THINK]20?[/THINK]It is 4.</s>",
        "<seed:think>20?</seed:think>It is 4.", "It is 4.\n<think>Could it be 20?",
        "<|channel|>analysis<|message|>20?<|end|><|start|>assistant<|channel|>final<|message|>It is 4.<|return|>",
    ],
)  # fmt: skip
def test_the_next_worker_is_shown_the_answer_alone(server: FaultServer, make_client: MakeClient, said: str) -> None:
    server.order(plan=[says(said, "stop"), "echo"])
    client = make_client()
    trace = run(server, client)
    assert trace.status == "answered" and trace.answer is not None
    assert "It is 4." in trace.answer and "20?" not in trace.answer and "<|im_end|>" not in trace.answer
    assert trace.steps[0].response.text == "It is 4."
    assert run(server, make_client()).steps[0].response.text == "It is 4.", "from the cache"
    assert len(server.came()) == 2


def test_a_worker_says_how_its_reasoning_is_marked_and_which_tokens_it_leaves(
    server: FaultServer, make_client: MakeClient
) -> None:
    client = make_client()
    marked = server.worker(
        reasoning_marks=[{"opening": "Thoughts:", "closing": "Answer:", "prefilled": True}], control_tokens=["[DONE]"]
    )
    server.order(plan=[says("20? Answer: It is 4. [DONE]", "stop"), says("20? So 4", "stop"), says("It is 4.", "stop")])
    first, unfinished = ask(client, marked, "first"), ask(client, marked, "second")
    assert (first.text, first.status) == ("It is 4.", "answered")
    assert (unfinished.text, unfinished.status) == ("", "reasoning")
    assert ask(make_client(), marked, "first").text == "It is 4.", "a stored answer is not taken for reasoning"
    assert ask(client, server.worker(), "first").text == "It is 4.", "another key without these settings"
    assert len(server.came()) == 3


def test_a_reply_that_is_cut_within_a_reasoning_that_the_template_opened(
    server: FaultServer, make_client: MakeClient
) -> None:
    model = "openai/deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"
    order = {"content": "Let me see, 4, or", "finish_reason": "length"}
    server.order(plan=[says(**order), says(**order, reasoning_content="Hm."), says(**order)])
    client, thinking = make_client(), server.worker(model=model)
    assert (ask(client, thinking, "a").text, ask(client, thinking, "a").status) == ("", "cut")
    assert ask(client, thinking, "b").text == order["content"], "the server sent the reasoning apart"
    assert ask(client, server.worker(), "c").text == order["content"]


def test_what_was_stored_with_its_reasoning_is_cleaned_when_it_is_read(
    server: FaultServer, make_client: MakeClient
) -> None:
    client, worker = make_client(), server.worker()
    raw = says("<think>20?</think>It is 4.</s>", "stop")
    server.order(plan=[raw])
    kept = ask(client, worker)
    key = cache_key(worker.identity, user("2+2?"), 0)
    client.cache.put_many([(key, "material", replace(kept, text="<think>20?</think>It is 4.</s>"))])
    assert ask(make_client(), worker).text == "It is 4."
    client.cache.put_many([(key, "material", replace(kept, text="<think>It is 4."))])
    assert ask(make_client(), worker).status == "reasoning"
    assert len(server.came()) == 1


def test_an_unknown_finish_reason_is_one_that_the_pool_can_name(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=[says("It is 4.", "fertig")] * 4)
    with pytest.raises(ConfigError, match=r"workers\.remote\.finish_reasons: .*'fertig', which Podium does not know"):
        ask(make_client(), server.worker(retries=1))
    response = ask(make_client(), server.worker(finish_reasons=["fertig"]))
    assert (response.text, response.status, response.finish_reason) == ("It is 4.", "answered", "stop")
