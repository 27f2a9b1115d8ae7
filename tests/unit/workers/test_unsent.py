"""LiteLLM must send the pool's settings: each setting that it drops, changes or refuses is reported in one line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ops.config import Pool, Worker, load_pool
from ops.core.errors import ConfigError
from ops.workers.providers import is_remote, litellm, provider_error, request_settings
from ops.workers.unsent import check_pool, unsent
from tests.command import podium

pytestmark = pytest.mark.usefixtures("litellm_at_hand")

ROOT = Path(__file__).parents[3]
POOLS = (
    "quickstart", "frontier", "paper", "paper:unconstrained", "paper:unconstrained-bigcodebench", "open", "local-llm",
    "openai", "anthropic", "gemini", "deepinfra", "ollama",
)  # fmt: skip
CLAUDE, ARGON = "anthropic/claude-sonnet-5-5", "gemini/gemini-4-argon"


def worker(**settings: Any) -> Worker:
    return Worker.model_validate({"name": "a", "temperature": None, "price": {"input": 1, "output": 2}} | settings)


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
    [error] = unsent(worker(**settings), "pool.yaml")
    assert (error.file, error.field) == ("pool.yaml", f"workers.a.{field}")
    assert says in error.problem and error.remedy and "\n" not in str(error)
    with pytest.raises(ConfigError):
        check_pool(Pool(name="p", workers=(worker(**settings),)), "pool.yaml")


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
    assert unsent(worker(**settings), "pool.yaml") == []


@pytest.mark.parametrize("name", POOLS)
def test_the_projects_pools_are_sent_as_they_stand(
    name: str, loopback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool's settings are compared with the bodies that LiteLLM really posts."""
    pool = load_pool(ROOT / "config", name)
    assert pool.name == name
    for variable in pool.missing_keys().values():
        monkeypatch.setenv(variable, "test-key")
    check_pool(pool, "pool.yaml")
    for each in pool.workers:
        settings = request_settings(each, "pool.yaml")
        assert settings["max_tokens"] == each.max_tokens
        if not is_remote(each):
            continue
        loopback.plan.append(json.dumps({"status": 400, "body": {}}))
        with pytest.raises(provider_error()):
            asyncio.run(
                litellm().acompletion(
                    messages=[{"role": "user", "content": "2+2?"}],
                    **settings | {"api_base": loopback.url.removesuffix("/v1"), "timeout": 30},
                )
            )
        sent = loopback.requests[-1]
        stated = (each.temperature, each.top_p, each.top_k, each.presence_penalty, each.max_tokens)
        assert {value for value in stated if value is not None} <= set(leaves(sent)), (each.name, sent)
        if each.thinking_budget:
            assert each.thinking_budget in set(leaves(sent))
        if each.reasoning_effort:
            assert each.reasoning_effort in set(leaves(sent))


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
