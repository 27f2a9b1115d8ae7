"""Calls that this machine cannot make, for lack of credentials, a package or a parameter, do not count as an outage."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ops.config import Worker
from ops.core.errors import ConfigError, WorkerUnreachable

ASK = [{"role": "user", "content": "2+2?"}]
PRICE = {"input": 1.0, "output": 2.0}
VARIABLES = (
    "GOOGLE_APPLICATION_CREDENTIALS", "VERTEXAI_CREDENTIALS", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_REGION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AZURE_API_KEY",
    "AZURE_OPENAI_API_KEY",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, litellm_at_hand: None) -> None:
    """Remove every key and cloud login, and make the metadata server unreachable."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def worker(model: str, **settings: Any) -> Worker:
    return Worker.model_validate({"name": "remote", "model": model, "price": PRICE, "temperature": None} | settings)


def refused(client: Any, asked: Worker) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        asyncio.run(client.complete(asked, ASK))
    assert (caught.value.file, client.counts.retries) == ("pool.yaml", 0)
    assert (client.ledger.in_flight("run"), client.ledger.spent("run"), len(client.cache)) == (0, 0.0, 0)
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
def test_missing_credentials_stop_the_first_call(make_client: Any, model: str, package: str, remedy: str) -> None:
    pytest.importorskip(package)
    error = refused(make_client(pool_file="pool.yaml"), worker(model))
    assert error.field == "workers.remote.api_key_env"
    assert f"no usable credentials for {model!r}" in error.problem
    assert remedy in error.remedy


def test_a_package_that_is_not_installed_is_named(make_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    error = refused(make_client(pool_file="pool.yaml"), worker("vllm/some-model"))
    assert error.field == "workers.remote.model"
    assert "vllm" in error.problem and "not installed" in error.problem


def test_a_parameter_that_litellm_does_not_send_is_named(loopback: Any, make_client: Any) -> None:
    asked = loopback.worker(model="openai/gpt-5", temperature=0.2)
    error = refused(make_client(pool_file="pool.yaml"), asked)
    assert error.field == "workers.remote"
    assert "temperature" in error.problem
    assert loopback.requests == []


def test_credentials_that_are_lost_in_a_run_are_tried_again_first(loopback: Any, make_client: Any) -> None:
    """A metadata server that provides credentials may be unreachable for a moment."""
    exceptions = pytest.importorskip("google.auth.exceptions")
    from ops.workers.failures import Transient, read_failure
    from ops.workers.providers import litellm

    error = litellm().exceptions.APIConnectionError("away", llm_provider="vertex_ai", model="m")
    error.__cause__ = exceptions.DefaultCredentialsError("Your default credentials were not found.")
    asked = worker("vertex_ai/gemini-2.5-pro")
    assert isinstance(read_failure(error, asked, "pool.yaml"), ConfigError)
    again = read_failure(error, asked, "pool.yaml", worked=True)
    assert isinstance(again, Transient)
    assert isinstance(again.in_the_end, ConfigError)


@pytest.mark.parametrize("words", ["Missing credentials", "Your default credentials were not found", "missing api key"])
def test_an_outage_with_words_of_a_refusal_is_an_outage(loopback: Any, make_client: Any, words: str) -> None:
    """A provider's own error 500 is not a fault of this machine's settings."""
    client = make_client()
    step = json.dumps({"status": 500, "body": {"error": {"message": words, "type": "x", "code": "some_code"}}})
    loopback.plan.extend([step] * 2)
    with pytest.raises(WorkerUnreachable):
        asyncio.run(client.complete(loopback.worker(retries=1), ASK))
