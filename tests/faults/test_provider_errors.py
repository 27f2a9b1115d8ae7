"""Providers' error replies, in their own words, over real HTTP and both of LiteLLM's ways."""

from __future__ import annotations

import asyncio
import json

import pytest

from ops.core.errors import AccountError, ConfigError, ContextTooLong, RequestRejected, WorkerRefused, WorkerUnreachable
from ops.workflow.execution import execute_workflow
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.faults.clients import MakeClient
from tests.faults.provider_errors import SENT, Meaning, Sent
from tests.faults.remote import FaultServer, ask, sends

MODELS = ("openai/some-model", "hosted_vllm/some-model")
RAISED: dict[Meaning, type[Exception]] = {
    "account": AccountError, "key": ConfigError, "model": ConfigError, "rejection": RequestRejected,
    "too long": ContextTooLong, "refusal": WorkerRefused, "later": WorkerUnreachable,
}  # fmt: skip
KEY = "sk-loopback-0123456789abcdefghijkl"
QUESTION = "Which of the seven planets has the credit balance that is too low for a rate limit of its own?"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sent", SENT, ids=lambda sent: sent.name)
def test_each_error_is_classified_by_the_providers_meaning(
    server: FaultServer, make_client: MakeClient, model: str, sent: Sent
) -> None:
    client = make_client(pool_file="config/pools/mine.yaml")
    server.order(plan=[sent.step] * 3)
    with pytest.raises(RAISED[sent.meaning]) as caught:
        ask(client, server.worker(model=model, retries=1), QUESTION)
    assert type(caught.value) is RAISED[sent.meaning]
    assert "'remote'" in str(caught.value) or "workers.remote" in str(caught.value)
    assert "litellm." not in str(caught.value), "the provider's words alone"
    assert server.order()["planned"] == (1 if sent.meaning == "later" else 2)
    assert (len(client.cache), client.ledger.count_in_flight("run"), client.ledger.total_usd("run")) == (0, 0, 0.0)
    if isinstance(caught.value, ConfigError):
        assert caught.value.file == "config/pools/mine.yaml"
        assert caught.value.remedy


@pytest.mark.parametrize("sent", SENT, ids=lambda sent: sent.name)
def test_only_what_the_workflow_chose_is_rewarded(server: FaultServer, make_client: MakeClient, sent: Sent) -> None:
    """An unpaid bill stops the run, so that a policy never learns from it."""
    client, worker = make_client(), server.worker(retries=0)
    workflow = Workflow((Step(0, "first"), Step(0, "second", "all")))
    server.order(plan=["ok", sent.step])
    run = execute_workflow(workflow, QUESTION, Team([worker], client))
    if sent.meaning in ("account", "key", "model"):
        with pytest.raises(ConfigError):
            asyncio.run(run)
        return
    trace = asyncio.run(run)
    statuses = {"too long": "too_long", "refusal": "refused", "rejection": "rejected", "later": "unreachable"}
    wanted = statuses[sent.meaning]
    assert (trace.status, trace.steps[1].status, trace.answer) == (wanted, wanted, None)
    assert worker.name in trace.error


def test_a_worker_may_name_the_words_of_its_refusals(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=[sends(400, "We would rather not.")] * 2)
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
    server.order(plan=[sends(400, f"cannot read {json.dumps(prompt)}: stray quote")] * 3)
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
    server.order(plan=[sends(400, said)])
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
    server.order(plan=[sends(400, message)])
    with pytest.raises(ConfigError) as caught:
        ask(make_client(), server.worker(max_tokens=4096))
    assert caught.value.field == "workers.remote.max_tokens"
