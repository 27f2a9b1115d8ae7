"""Providers' error replies, in their own words, over real HTTP and both of LiteLLM's ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from ops.conductor.rollout import roll_out
from ops.config import Prompting, Worker
from ops.core.errors import AccountError, ConfigError, ContextTooLong, RequestRejected, WorkerRefused, WorkerUnreachable
from ops.core.problem import Problem
from ops.workers.client import WorkerClient
from ops.workflow.execution import execute
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.faults.provider_errors import SENT, Meaning, Sent
from tests.faults.remote import FaultServer

MakeClient = Callable[..., WorkerClient]
MODELS = ("openai/some-model", "hosted_vllm/some-model")
RAISED: dict[Meaning, type[Exception]] = {
    "account": AccountError, "key": ConfigError, "model": ConfigError, "rejection": RequestRejected,
    "too long": ContextTooLong, "refusal": WorkerRefused, "later": WorkerUnreachable,
}  # fmt: skip
KEY = "sk-loopback-0123456789abcdefghijkl"
QUESTION = "Which of the seven planets has the credit balance that is too low for a rate limit of its own?"


def ask(client: WorkerClient, worker: Worker, text: str = QUESTION) -> object:
    return asyncio.run(client.complete(worker, [{"role": "user", "content": text}]))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sent", SENT, ids=lambda sent: sent.name)
def test_each_error_is_classified_by_the_providers_meaning(
    server: FaultServer, make_client: MakeClient, model: str, sent: Sent
) -> None:
    client = make_client(pool_file="config/pools/mine.yaml")
    server.order(plan=[sent.step] * 3)
    with pytest.raises(RAISED[sent.meaning]) as caught:
        ask(client, server.worker(model=model, retries=1))
    assert type(caught.value) is RAISED[sent.meaning]
    assert "'remote'" in str(caught.value) or "workers.remote" in str(caught.value)
    assert "litellm." not in str(caught.value), "the provider's words alone"
    assert server.order()["planned"] == (1 if sent.meaning == "later" else 2)
    assert (len(client.cache), client.ledger.in_flight("run"), client.ledger.spent("run")) == (0, 0, 0.0)
    if isinstance(caught.value, ConfigError):
        assert caught.value.file == "config/pools/mine.yaml"
        assert caught.value.remedy


@pytest.mark.parametrize("sent", SENT, ids=lambda sent: sent.name)
def test_only_what_the_workflow_chose_is_rewarded(server: FaultServer, make_client: MakeClient, sent: Sent) -> None:
    """An unpaid bill stops the run, so that a policy never learns from it."""
    client, worker = make_client(), server.worker(retries=0)
    workflow = Workflow((Step(0, "first"), Step(0, "second", "all")))
    server.order(plan=["ok", sent.step])
    run = execute(workflow, QUESTION, Team([worker], client))
    if sent.meaning in ("account", "key", "model"):
        with pytest.raises(ConfigError):
            asyncio.run(run)
        return
    trace = asyncio.run(run)
    statuses = {"too long": "too_long", "refusal": "refused", "rejection": "rejected", "later": "unreachable"}
    wanted = statuses[sent.meaning]
    assert (trace.status, trace.steps[1].status, trace.answer) == (wanted, wanted, None)
    assert worker.name in trace.error


def test_their_rewards(server: FaultServer, make_client: MakeClient) -> None:
    """Half for a refusal, a rejection and a context that is too long, none for an outage."""
    problem = Problem(
        id="1", benchmark="rlpr", domain="rlpr", split="train", grader="text", question=QUESTION, answer="none"
    )
    client, worker = make_client(), server.worker(retries=0)
    text = Workflow.single(0).render()
    rewards = {"openai flagged": 0.5, "unheard of": 0.5, "vllm context": 0.5, "google per minute": None}
    for name, reward in rewards.items():
        server.order(plan=[next(sent.step for sent in SENT if sent.name == name)])
        [rollout] = asyncio.run(roll_out([text], [problem], Team([worker], client, Prompting())))
        assert rollout.reward == reward, name


def test_an_unknown_400_is_shown_in_the_providers_words(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=[json.dumps({"status": 400, "body": {"error": {"message": "Unknown parameter: top_q"}}})])
    with pytest.raises(RequestRejected, match="Unknown parameter: top_q"):
        ask(make_client(), server.worker())


def test_a_worker_may_name_the_words_of_its_refusals(server: FaultServer, make_client: MakeClient) -> None:
    step = json.dumps({"status": 400, "body": {"error": {"message": "We would rather not."}}})
    server.order(plan=[step, step])
    with pytest.raises(RequestRejected):
        ask(make_client(), server.worker())
    with pytest.raises(WorkerRefused) as caught:
        ask(make_client(), server.worker(refuses_with=["would rather NOT"]))
    assert type(caught.value) is WorkerRefused


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "trap", ["Your credit balance is too low", "This model's maximum context length is 8 tokens", "the rate limit"]
)
def test_a_quoted_prompt_is_not_read_as_the_providers_message(
    server: FaultServer, make_client: MakeClient, model: str, trap: str
) -> None:
    """Providers quote their prompts; a question about limits and credit is no sign of either."""
    prompt = f"Explain in one line of plain words to a child of nine what '{trap}' may mean in an error's text."
    step = json.dumps({"status": 400, "body": {"error": {"message": f"cannot read {json.dumps(prompt)}: stray quote"}}})
    server.order(plan=[step] * 3)
    with pytest.raises(RequestRejected) as caught:
        ask(make_client(), server.worker(model=model, retries=1), prompt)
    assert "cannot read" in str(caught.value)
    assert "stray quote" in str(caught.value)
    assert "child of nine" not in str(caught.value)
    assert server.order()["planned"] == 2


def test_shown_text_contains_neither_key_nor_prompt(
    server: FaultServer, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    secret = "The gold answer\nis \\frac{1}{2} \"of\" what Ünal said."
    said = f"bad request by {KEY} (sk-lo****ijkl): {json.dumps(json.dumps([secret]))} and {secret!r} so {secret[4:24]}"
    server.order(plan=[json.dumps({"status": 400, "body": {"error": {"message": said}}})])
    with pytest.raises(RequestRejected) as caught:
        ask(make_client(), server.worker(api_key_env="LOOPBACK_KEY"), secret)
    shown = str(caught.value)
    assert "bad request by" in shown
    for part in (KEY, "sk-lo", "ijkl", "gold answer", "frac", "Ünal", "nal said"):
        assert part not in shown


def test_a_max_tokens_beyond_the_models_context_is_the_configurations_fault(
    server: FaultServer, make_client: MakeClient
) -> None:
    message = next(sent.body["message"] for sent in SENT if sent.name == "vllm context")
    server.order(plan=[json.dumps({"status": 400, "body": {"error": {"message": message}}})])
    with pytest.raises(ConfigError) as caught:
        ask(make_client(), server.worker(max_tokens=4096))
    assert caught.value.field == "workers.remote.max_tokens"
