"""Each fault alone, through both of LiteLLM's ways to an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import resource

import pytest

from ops.config import Worker
from ops.core.errors import ConfigError, WorkerUnreachable
from ops.core.response import Response
from ops.core.usage import Usage
from tests.faults.clients import MakeClient
from tests.faults.remote import FaultServer, ask, user
from tests.faults.server import FAULTS

MODELS = ("openai/some-model", "hosted_vllm/some-model")
WAITS = ("hang", "trickle")
"""Faults that end by our time-out."""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fault", FAULTS)
def test_after_one_fault_the_answer_comes(server: FaultServer, make_client: MakeClient, model: str, fault: str) -> None:
    client = make_client()
    worker = server.worker(model=model, timeout_s=2.0 if fault in WAITS else 30.0, retries=2)
    ask(client, worker, "a first one, which shows that key and model are right")
    server.order(plan=[fault])
    assert ask(client, worker).text == "Answer: 4"
    assert server.served()["2+2?"] == 1
    assert len(client.cache) == 2
    assert client.ledger.count_in_flight("run") == 0


@pytest.mark.parametrize(
    "fault", ["429", "500", "reset mid-body", "truncated JSON", "empty choices", "huge", "trickle"]
)
def test_when_it_does_not_end_the_worker_is_unreachable(
    server: FaultServer, make_client: MakeClient, fault: str
) -> None:
    client = make_client()
    server.order(plan=[fault] * 20)
    with pytest.raises(WorkerUnreachable, match="after 2 attempts"):
        ask(client, server.worker(timeout_s=1.0 if fault == "trickle" else 30.0, retries=1))
    assert (len(client.cache), client.ledger.count_in_flight("run")) == (0, 0)


@pytest.mark.parametrize("model", MODELS)
def test_the_form_of_an_answer_is_sent_and_belongs_to_its_key(
    server: FaultServer, make_client: MakeClient, model: str
) -> None:
    client, plain = make_client(), server.worker(model=model)
    form, other = {"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}
    formed = plain.model_copy(update={"response_format": other})
    asked = [(plain, {}), (plain, {"response_format": form}), (formed, {}), (formed, {"response_format": form})]
    for worker, parameters in [*asked, *reversed(asked)]:
        asyncio.run(client.complete(worker, user("2+2?"), parameters=parameters))
    sent = [entry.get("response_format") for entry in server.came()]
    assert sent == [None, form, other], "each is asked and paid for once, and a request's form replaces the worker's"


def test_a_key_that_is_revoked_in_the_end_is_the_configurations_fault_too(
    server: FaultServer, make_client: MakeClient
) -> None:
    client = make_client()
    ask(client, server.worker(retries=2), "first")
    server.order(plan=["401"] * 20)
    with pytest.raises(ConfigError, match="api_key_env"):
        ask(client, server.worker(retries=2))
    assert server.order()["planned"] == 17


RELEASES = ("some-model-2026-01-31", "Some-Model", "vendor/some-model", "some-model-0613")


@pytest.mark.parametrize("answers", [*RELEASES, "some-model-mini", "some", "some-model-2", "other"])
def test_a_release_of_the_model_is_the_model_and_another_one_only_as_its_alias(answers: str) -> None:
    from litellm import ModelResponse

    from ops.workers.replies import find_reply_problem

    worker, response = Worker(name="w", model="openai/some-model"), Response("yes", Usage(1, 1), 0.0, 0.0, "stop")
    verdict = find_reply_problem(worker, ModelResponse(model=answers), response, has_answered=False, file="")
    assert verdict is None if answers in RELEASES else isinstance(verdict, ConfigError)
    alias = worker.model_copy(update={"model_in_replies": answers})
    assert find_reply_problem(alias, ModelResponse(model=answers), response, has_answered=False, file="") is None


@pytest.mark.parametrize("fault", ["huge", "huge in chunks"])
def test_a_50_mb_answer_is_not_read_to_its_end(server: FaultServer, make_client: MakeClient, fault: str) -> None:
    client, worker = make_client(), server.worker(timeout_s=60, retries=0, breaker_failures=100)
    ask(client, worker, "first")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    server.order(plan=[fault] * 3)
    for number in range(3):
        with pytest.raises(WorkerUnreachable):
            ask(client, worker, f"huge {number}")
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 60  # MiB; the three are 150
