"""A custom provider of LiteLLM has the limits, retries, cache and cost of any other provider. Calls that this machine
cannot make, for lack of credentials, a package or a parameter, do not count as an outage."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from litellm.llms.custom_llm import CustomLLMError

from ops.config import Worker
from ops.core.errors import ConfigError, RequestRejected, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message
from ops.core.registry import PROVIDERS, Provider
from ops.workers.failures import TransientFailure, classify_failure
from ops.workers.pool_checks import find_unsent_settings
from ops.workers.providers import import_litellm
from tests.faults.remote import PRICE
from tests.unit.workers.conftest import ask

# ── a custom provider ────────────────────────────────────────────────────────


class Acme(import_litellm().CustomLLM):  # type: ignore[misc]
    """Asks the loopback server in its own form."""

    async def acompletion(
        self, model: str, messages: list[Message], api_base: str, api_key: str, optional_params: dict[str, Any],
        timeout: Any, **_: Any,  # noqa: ASYNC109
    ) -> Any:  # fmt: skip
        body = {"model": model, "messages": messages, **optional_params}
        body.pop("max_retries", None)
        async with httpx.AsyncClient(timeout=timeout) as client:
            reply = await client.post(
                f"{api_base}/chat/completions", json=body, headers={"authorization": f"Bearer {api_key}"}
            )
        if reply.is_error:
            raise CustomLLMError(reply.status_code, reply.text)
        said = reply.json()
        return import_litellm().ModelResponse(choices=said["choices"], usage=said["usage"])


def register(monkeypatch: pytest.MonkeyPatch, handler: Any) -> None:
    """Register the provider `acme`, as its file in `ops/providers` would."""
    monkeypatch.setattr(PROVIDERS, "entries", {"acme": Provider("acme", handler=handler)})
    monkeypatch.setattr(import_litellm(), "custom_provider_map", [{"provider": "acme", "custom_handler": handler()}])


@pytest.fixture
def acme(loopback: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker of the provider `acme`, which is registered."""
    register(monkeypatch, Acme)
    return loopback.worker(model="acme/large", top_k=7, extra_body={"depth": 2}, retries=1)


def test_settings_and_key_reach_it_and_the_answer_is_priced_and_cached(acme: Any, loopback: Any, client: Any) -> None:
    assert find_unsent_settings(acme, "pool.yaml") == []
    response = ask(client, acme)
    assert (response.text, response.finish_reason) == ("Answer: 4", "stop")
    assert response.cost_usd == pytest.approx((10 * 1.0 + 5 * 2.0) / 1e6) == client.ledger.total_usd("run")
    [sent] = loopback.requests
    assert {name: sent[name] for name in ("model", "top_k", "max_tokens", "temperature", "extra_body")} == {
        "model": "large", "top_k": 7, "max_tokens": 64, "temperature": 0.2, "extra_body": {"depth": 2},
    }  # fmt: skip
    assert "max_retries" not in sent and loopback.keys[0].startswith("sk-loopback")
    assert ask(client, acme).cached and len(loopback.requests) == 1


@pytest.mark.parametrize(
    ("message", "reason", "status"),
    [
        ({"content": "4?</think>It is 4.</s>"}, "stop", "answered"),
        ({"content": None, "refusal": "No."}, "stop", "declined"),
        ({"content": "", "reasoning_content": "4?"}, "stop", "reasoning"),
        ({"content": "It is"}, "abort", None),
    ],
)
def test_a_custom_providers_reply_is_read_as_it_sends_it(
    monkeypatch: pytest.MonkeyPatch, acme: Any, client: Any, message: dict[str, Any], reason: str, status: str | None
) -> None:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

    class Replies(import_litellm().CustomLLM):  # type: ignore[misc]
        async def acompletion(self, *_: object, **__: object) -> Any:
            return import_litellm().ModelResponse(choices=[choice], usage=usage)

    register(monkeypatch, Replies)
    if status is None:
        with pytest.raises(WorkerUnreachable, match=r"broke off \(finish reason abort\)"):
            ask(client, acme.model_copy(update={"retries": 0}))
        return
    response = ask(client, acme)
    assert (response.status, response.text) == (status, "It is 4." if status == "answered" else "")
    assert response.cost_usd == pytest.approx((10 * 1.0 + 5 * 2.0) / 1e6) == client.ledger.total_usd("run")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(status: int, acme: Any, loopback: Any, client: Any) -> None:
    loopback.plan = [str(status)]
    response = ask(client, acme)
    assert (response.retries, len(loopback.requests)) == (1, 2)
    assert client.ledger.total_usd("run") == pytest.approx(response.cost_usd)  # nobody bills a status


@pytest.mark.parametrize(
    ("status", "says", "error", "words"),
    [
        (401, "no such key", ConfigError, "refused the key in LOOPBACK_KEY"),
        (404, "no model large", ConfigError, "does not serve 'acme/large'"),
        (400, "content management policy", WorkerRefused, "refused the content"),
        (400, "depth is unknown", RequestRejected, "rejected the request .*depth is unknown"),
        (503, "away", WorkerUnreachable, "no response after 2 attempts"),
    ],
)
def test_a_lasting_failure_is_named_as_any_providers(
    status: int, says: str, error: type[Exception], words: str, acme: Any, loopback: Any, client: Any
) -> None:
    loopback.plan = [json.dumps({"status": status, "body": {"error": {"message": says}}})] * 2
    with pytest.raises(error, match=words):
        ask(client, acme)


def test_an_unknown_provider_is_refused_with_both_ways(loopback: Any, client: Any) -> None:
    with pytest.raises(ConfigError, match=r"does not begin with a provider that LiteLLM knows.*ops/providers"):
        ask(client, loopback.worker(model="unheard-of/large"))


# ── what this machine lacks ──────────────────────────────────────────────────

VARIABLES = (
    "GOOGLE_APPLICATION_CREDENTIALS", "VERTEXAI_CREDENTIALS", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_REGION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AZURE_API_KEY",
    "AZURE_OPENAI_API_KEY",
)  # fmt: skip


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, litellm_at_hand: None) -> None:
    """Remove every key and cloud login, and make the metadata server unreachable."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def remote(model: str) -> Worker:
    return Worker.model_validate({"name": "remote", "model": model, "price": PRICE, "temperature": None})


def refused(make_client: Any, asked: Worker) -> ConfigError:
    client = make_client(pool_file="pool.yaml")
    with pytest.raises(ConfigError) as caught:
        ask(client, asked)
    assert (caught.value.file, client.counts.retries) == ("pool.yaml", 0)
    assert (client.ledger.count_in_flight("run"), client.ledger.total_usd("run"), len(client.cache)) == (0, 0.0, 0)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("model", "package", "remedy"),
    [
        ("vertex_ai/gemini-2.5-pro", "google.auth", "gcloud auth application-default login"),
        ("vertex_ai/claude-sonnet-4", "google.auth", "gcloud auth application-default login"),
        ("bedrock/anthropic.claude-3-sonnet-20240229-v1:0", "botocore", "AWS_ACCESS_KEY_ID"),
        ("sagemaker_chat/endpoint", "botocore", "AWS_ACCESS_KEY_ID"),
        ("openai/gpt-4o", "openai", "Name the environment variable that holds the key"),
        ("anthropic/claude-sonnet-4-5", "openai", "Name the environment variable that holds the key"),
        ("gemini/gemini-2.5-pro", "openai", "Name the environment variable that holds the key"),
    ],
)
@pytest.mark.usefixtures("no_credentials")
def test_missing_credentials_stop_the_first_call(make_client: Any, model: str, package: str, remedy: str) -> None:
    pytest.importorskip(package)
    error = refused(make_client, remote(model))
    assert error.field == "workers.remote.api_key_env"
    assert f"no usable credentials for {model!r}" in error.problem
    assert remedy in error.remedy


def test_a_package_that_is_not_installed_is_named(make_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    error = refused(make_client, remote("vllm/some-model"))
    assert error.field == "workers.remote.model"
    assert "vllm" in error.problem and "not installed" in error.problem


def test_a_parameter_that_litellm_does_not_send_is_named(loopback: Any, make_client: Any) -> None:
    error = refused(make_client, loopback.worker(model="openai/gpt-5", temperature=0.2))
    assert error.field == "workers.remote"
    assert "temperature" in error.problem
    assert loopback.requests == []


def test_credentials_that_are_lost_in_a_run_are_tried_again_first() -> None:
    """A metadata server that provides credentials may be unreachable for a moment."""
    exceptions = pytest.importorskip("google.auth.exceptions")
    error = import_litellm().exceptions.APIConnectionError("away", llm_provider="vertex_ai", model="m")
    error.__cause__ = exceptions.DefaultCredentialsError("Your default credentials were not found.")
    asked = remote("vertex_ai/gemini-2.5-pro")
    assert isinstance(classify_failure(error, asked, "pool.yaml"), ConfigError)
    again = classify_failure(error, asked, "pool.yaml", has_answered=True)
    assert isinstance(again, TransientFailure)
    assert isinstance(again.final_error, ConfigError)


@pytest.mark.parametrize("words", ["Missing credentials", "Your default credentials were not found", "missing api key"])
def test_an_outage_with_words_of_a_refusal_is_an_outage(loopback: Any, client: Any, words: str) -> None:
    """A provider's own error 500 is not a fault of this machine's settings."""
    step = json.dumps({"status": 500, "body": {"error": {"message": words, "type": "x", "code": "some_code"}}})
    loopback.plan.extend([step] * 2)
    with pytest.raises(WorkerUnreachable):
        ask(client, loopback.worker(retries=1))
