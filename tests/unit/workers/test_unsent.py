"""LiteLLM must send the pool's settings: each setting that it drops, changes or refuses is reported in one line, as is
a key that no provider takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ops.config import Pool, Worker, load_pool
from ops.core.errors import ConfigError
from ops.workers.pool_checks import check_pool, find_unsent_settings
from ops.workers.providers import import_litellm, is_remote, provider_error, request_settings
from tests.command import podium

pytestmark = pytest.mark.usefixtures("litellm_at_hand")

CONFIG = Path(__file__).parents[3] / "config"
POOLS = (
    "quickstart", "frontier", "paper", "paper:unconstrained", "paper:unconstrained-bigcodebench", "open", "local-llm",
    "openai", "anthropic", "gemini", "deepinfra", "ollama",
)  # fmt: skip
CLAUDE, ARGON = "anthropic/claude-sonnet-5-5", "gemini/gemini-4-argon"


def worker(**settings: Any) -> Worker:
    return Worker.model_validate({"name": "a", "temperature": None, "price": {"input": 1, "output": 2}} | settings)


def pool(**settings: Any) -> Pool:
    return Pool(name="p", workers=(worker(**settings),))


@pytest.mark.parametrize(
    ("settings", "field", "says"),
    [
        ({"model": CLAUDE, "reasoning_effort": "none"}, "reasoning_effort", "drops 'none'"),
        ({"model": CLAUDE, "reasoning_effort": "minimal"}, "reasoning_effort", "sends 'low' in place of 'minimal'"),
        ({"model": CLAUDE, "thinking_budget": 2000}, "thinking_budget", "drops 2000"),
        ({"model": CLAUDE, "thinking_budget": 0}, "thinking_budget", "this model always thinks"),
        ({"model": CLAUDE, "temperature": 0.2}, "temperature", "refuses 0.2"),
        ({"model": ARGON, "reasoning_effort": "none"}, "reasoning_effort", "sends 'low' in place of 'none'"),
        ({"model": "openai/gpt-6.1-sol", "reasoning_effort": "none"}, "reasoning_effort", "refuses 'none'"),
        ({"model": "openai/gpt-5", "temperature": 0.2, "reasoning_effort": "low"}, "temperature", "refuses 0.2"),
        ({"model": "openai/gpt-4o", "reasoning_effort": "low"}, "reasoning_effort", "refuses 'low'"),
        ({"model": "anthropic/claude-sonnet-4-20250514", "presence_penalty": 1}, "presence_penalty", "refuses 1.0"),
        ({"model": "hosted_vllm/m", "api_base": "http://h/v1", "thinking_budget": 5}, "thinking_budget", "drops 5"),
        ({"model": "nobody-knows"}, "model", "does not begin with a provider"),
    ],
)
def test_a_setting_that_is_not_sent_is_named(settings: dict[str, Any], field: str, says: str) -> None:
    [error] = find_unsent_settings(worker(**settings), "pool.yaml")
    assert (error.file, error.field) == ("pool.yaml", f"workers.a.{field}")
    assert says in error.problem and error.remedy and "\n" not in str(error)
    with pytest.raises(ConfigError):
        check_pool(pool(**settings), "pool.yaml")


@pytest.mark.parametrize(
    "settings",
    [
        {"model": CLAUDE, "reasoning_effort": "low"},
        {"model": ARGON, "reasoning_effort": "low", "temperature": 1.0},
        {"model": "gemini/gemini-2.5-pro", "reasoning_effort": "none"},
        {"model": "gemini/gemini-2.5-pro", "thinking_budget": 0, "temperature": 0.3, "top_p": 0.5, "top_k": 7},
        {"model": "anthropic/claude-sonnet-4-20250514", "thinking_budget": 0, "temperature": 0.2, "top_k": 3},
        {"model": "anthropic/claude-sonnet-4-20250514", "reasoning_effort": "low"},
        {"model": "ollama_chat/llama3", "temperature": 0.2, "top_p": 0.8},
        {"model": "cohere_chat/command-r", "temperature": 0.2, "top_p": 0.8},
        {"model": "openai/mine", "api_base": "http://h/v1", "temperature": 0.2, "top_k": 5, "presence_penalty": 1},
        {"model": "local/guesser", "temperature": 0.2, "top_p": 0.5, "reasoning_effort": "low"},
    ],
)
def test_a_setting_sent_under_another_name_is_not_an_error(settings: dict[str, Any]) -> None:
    assert find_unsent_settings(worker(**settings), "pool.yaml") == []


@pytest.mark.parametrize("name", POOLS)
def test_the_projects_pools_are_sent_as_they_stand(name: str, loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool's settings are compared with the bodies that LiteLLM really posts."""
    shipped = load_pool(CONFIG, name)
    assert shipped.name == name
    for variable in shipped.missing_keys().values():
        monkeypatch.setenv(variable, "test-key")
    check_pool(shipped, "pool.yaml")
    for each in shipped.workers:
        settings = request_settings(each, "pool.yaml")
        assert settings["max_tokens"] == each.max_tokens
        if not is_remote(each):
            continue
        loopback.plan.append(json.dumps({"status": 400, "body": {}}))
        with pytest.raises(provider_error()):
            asyncio.run(
                import_litellm().acompletion(
                    messages=[{"role": "user", "content": "2+2?"}],
                    **settings | {"api_base": loopback.url, "timeout": 30},
                )
            )
        sent = loopback.requests[-1]
        stated = (each.temperature, each.top_p, each.top_k, each.presence_penalty, each.max_tokens)
        assert {value for value in stated if value is not None} <= set(leaves(sent)), (each.name, sent)
        if each.thinking_budget:
            assert each.thinking_budget in set(leaves(sent))
        if each.reasoning_effort:
            assert each.reasoning_effort in set(leaves(sent))


@pytest.mark.parametrize("key", ["sk-hush\n", " sk-hush", "sk-hush sk-hush", "sk-\thush", "sk-h\u00fcsh", "\u2003"])
def test_a_key_that_no_provider_takes_is_not_ready(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("MY_KEY", key)
    remote = pool(model="openai/gpt-4o", api_key_env="MY_KEY")
    assert remote.missing_keys() == {"a": "MY_KEY"}
    with pytest.raises(ConfigError, match="the environment variable MY_KEY holds") as caught:
        check_pool(remote, "pool.yaml")
    assert caught.value.field == "workers.a.api_key_env"
    assert "hush" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-proj_abc-123", "abc/def+ghi==", "k"])
def test_a_key_that_may_be_one_is_ready(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("MY_KEY", key)
    remote = pool(model="openai/gpt-4o", api_key_env="MY_KEY")
    assert remote.missing_keys() == {}
    assert request_settings(remote.workers[0], "pool.yaml")["api_key"] == key


def test_a_pools_missing_key_is_reported_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="GEMINI_API_KEY is not set"):
        check_pool(load_pool(CONFIG, "paper"), "config/pools/paper.yaml")


@pytest.mark.parametrize(
    "model",
    [
        "anthropic/claude-sonnet-4-5",
        "bedrock/anthropic.claude-3-sonnet-20240229-v1:0",
        "bedrock/converse/meta.llama3-70b-instruct-v1:0",
        "vertex_ai/claude-sonnet-4",
    ],
)
def test_extra_body_is_refused_where_it_would_be_nested(model: str) -> None:
    with pytest.raises(ConfigError, match="one field") as caught:
        check_pool(pool(model=model, extra_body={"top_a": 1}), "pool.yaml")
    assert (caught.value.file, caught.value.field) == ("pool.yaml", "workers.a.extra_body")
    check_pool(pool(model=model), "pool.yaml")


@pytest.mark.parametrize(
    ("model", "change", "sent"),
    [
        ("azure/deployed", {"api_version": "2026-01-01"}, {"api_version": "2026-01-01"}),
        ("bedrock/meta.llama3-70b-instruct-v1:0", {"region": "eu-west-1"}, {"aws_region_name": "eu-west-1"}),
        ("vertex_ai/gemini-4-argon", {"region": "e", "project": "p"}, {"vertex_location": "e", "vertex_project": "p"}),
        ("openai/gpt-6-luna", {"organization": "org-1"}, {"organization": "org-1"}),
        ("openai/gpt-6-luna", {"extra_headers": {"OpenAI-Beta": "a=1"}}, {"extra_headers": {"OpenAI-Beta": "a=1"}}),
    ],
)
def test_what_a_provider_takes_is_sent_by_litellms_name(
    model: str, change: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert request_settings(worker(model=model, **change), "pool.yaml").items() >= sent.items()


@pytest.mark.parametrize("change", [{"region": "eu"}, {"project": "p"}, {"api_version": "1"}, {"organization": "o"}])
def test_what_a_provider_ignores_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="does not reach anthropic") as caught:
        request_settings(worker(model="anthropic/claude-haiku-5-5", **change), "pool.yaml")
    assert caught.value.field == f"workers.a.{next(iter(change))}"


def test_pools_show_and_plan_name_it(project: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    file = project.config / "pools" / "frontier.yaml"
    text = file.read_text(encoding="utf-8")
    assert text.count("reasoning_effort: low   # its least: it always thinks") == 1
    file.write_text(text.replace("low   # its least: it always", "none   # it always"), encoding="utf-8")
    monkeypatch.setenv("PODIUM_ROOT", str(project.root))
    monkeypatch.setenv("COLUMNS", "300")
    assert podium("pools", "show", "frontier") == 0
    line = f"{file}: workers.claude-sonnet-5-5.reasoning_effort: LiteLLM silently drops 'none' for this model"
    assert line in capsys.readouterr().out


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, str | int | float):
        yield value
