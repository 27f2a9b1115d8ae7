"""Pools: the three that come with the project, bad files, and the difference between two."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.config import Pool, load_pool
from ops.errors import ConfigError
from ops.workers.pool import Change, difference
from ops.workers.providers import check_pool, cost_usd, most_tokens, request_settings, worst_price

ROOT = Path(__file__).parents[3]
TOOL: dict[str, Any] = {"name": "a", "model": "local/editor", "price": {"input": 1, "output": 2}}


def pool(*workers: dict[str, Any]) -> Pool:
    return Pool.model_validate({"name": "mine", "workers": list(workers)})


@pytest.mark.parametrize("name", ["quickstart", "paper", "open"])
def test_the_pools_of_the_project_load_and_could_be_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_pool(ROOT / "config", name)
    assert loaded.name == name
    for variable in loaded.missing_keys().values():
        monkeypatch.setenv(variable, "test-key")
    check_pool(loaded, "pool.yaml")
    for worker in loaded.workers:
        settings = request_settings(worker, "pool.yaml")
        assert settings["max_tokens"] == 4096


def test_the_paper_pool_has_the_papers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = load_pool(ROOT / "config", "paper")
    assert len(paper.workers) == 7
    for variable in set(paper.missing_keys().values()):
        monkeypatch.setenv(variable, "test-key")
    settings = {w.name: request_settings(w, "paper.yaml") for w in paper.workers}
    assert settings["gemini-2.5-pro"]["thinking"] == {"type": "enabled", "budget_tokens": 128}
    assert "thinking" not in settings["claude-sonnet-4"]
    assert settings["gpt-5"]["reasoning_effort"] == "minimal"
    assert "temperature" not in settings["gpt-5"]
    for name in ("qwen3-32b-thinking", "qwen3-32b-direct"):
        qwen = settings[name]
        assert (qwen["top_p"], qwen["top_k"], qwen["presence_penalty"]) == (0.8, 20, 1.0)


def test_the_prices_of_the_paper_pool_are_litellms(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = load_pool(ROOT / "config", "paper")
    for worker in paper.workers:
        if worker.name in ("claude-sonnet-4", "gemini-2.5-pro"):  # not in its table; dearer above 200k tokens
            continue
        monkeypatch.setenv(str(worker.api_key_env), "test-key")
        assert worst_price(worker, "") == pytest.approx(worst_price(worker.model_copy(update={"price": None}), ""))


def test_every_key_that_a_pool_names_is_in_the_example_environment() -> None:
    named = {line.split("=")[0] for line in (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()}
    for file in (ROOT / "config" / "pools").glob("*.yaml"):
        needed = {w.api_key_env for w in load_pool(ROOT / "config", file.stem).workers if w.api_key_env}
        assert needed <= named, file


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"workers": []}, "workers", "at least 1"),
        ({"workers": [TOOL, TOOL]}, "workers", "duplicate worker name a"),
        ({"workers": [TOOL | {"temprature": 1}]}, "workers.0.temprature", "not a known key"),
        ({"wrokers": []}, "wrokers", "not a known key"),
        ({"workers": [TOOL | {"temperature": "hot"}]}, "workers.0.temperature", "number"),
        ({"workers": [TOOL | {"price": {"input": -1, "output": 1}}]}, "workers.0.price.input", "greater"),
        ({"workers": [TOOL | {"api_key_env": "sk-not-a-name"}]}, "workers.0.api_key_env", "pattern"),
        ({"description": "key AIzaSyA-1234567890123456789012345678901"}, "(file)", "API key"),
    ],
)
def test_a_bad_pool_file_is_told_by_file_field_and_remedy(
    tmp_path: Path, change: dict[str, Any], field: str, says: str
) -> None:
    file = tmp_path / "pools" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump({"name": "mine", "workers": [TOOL]} | change), encoding="utf-8")
    with pytest.raises(ConfigError, match=says) as caught:
        load_pool(tmp_path, "mine")
    assert (caught.value.file, caught.value.field) == (str(file), field)
    assert caught.value.remedy


def test_a_pool_without_its_key_is_told_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="GEMINI_API_KEY is not set"):
        check_pool(load_pool(ROOT / "config", "paper"), "config/pools/paper.yaml")


def test_a_tool_that_does_not_exist_is_the_configurations_fault(make_client: Any) -> None:
    worker = pool(TOOL | {"model": "local/no-such-tool"}).workers[0]
    with pytest.raises(ConfigError) as caught:
        asyncio.run(make_client().complete(worker, [{"role": "user", "content": "hello"}]))
    assert caught.value.field == "workers.a.model"


def test_an_embedded_tool_answers_through_the_same_client(make_client: Any) -> None:
    client, worker = make_client(), load_pool(ROOT / "config", "quickstart").worker("guesser")
    messages = [{"role": "user", "content": "2+2?\n\nSubtask: Solve the problem."}]
    first, second = (asyncio.run(client.complete(worker, messages)) for _ in range(2))
    assert first.text == second.text and first.text
    assert (first.cached, second.cached, first.latency_s) == (False, True, 0.1)
    bill = cost_usd(worker, None, first.prompt_tokens, first.completion_tokens)
    assert bill == pytest.approx((first.prompt_tokens * 0.05 + first.completion_tokens * 0.2) / 1e6)
    assert client.ledger.spent("run") == pytest.approx(bill)
    assert first.prompt_tokens <= most_tokens(messages)


def test_no_difference() -> None:
    same = difference(pool(TOOL), pool(TOOL))
    assert not same
    assert str(same) == "no difference"


def test_the_difference_of_two_pools() -> None:
    old = pool(TOOL, TOOL | {"name": "gone"}, TOOL | {"name": "cheaper"}, TOOL | {"name": "tagged"})
    new = pool(
        TOOL | {"name": "tagged", "tags": ["tool"]},
        TOOL | {"temperature": 0.9, "revision": "2"},
        TOOL | {"name": "cheaper", "price": {"input": 0.5, "output": 2}},
        TOOL | {"name": "new"},
    )
    found = difference(old, new)
    assert (found.added, found.removed) == (("new",), ("gone",))
    assert found.changed["a"] == {"revision": Change("", "2"), "temperature": Change(0.2, 0.9)}
    assert (found.affects_answers, found.affects_price) == (("a",), ("cheaper",))
    assert str(found).splitlines() == [
        "+ new",
        "- gone",
        "~ a: revision: '' → '2', temperature: 0.2 → 0.9",
        "~ cheaper: price: 1/2 USD per million tokens → 0.5/2 USD per million tokens",
        "~ tagged: tags: none → tool",
    ]


def test_a_pool_whose_answers_and_prices_are_the_same_has_the_same_fingerprint() -> None:
    old, new = pool(TOOL, TOOL | {"name": "b"}), pool(TOOL | {"name": "b", "concurrency": 2}, TOOL)
    found = difference(old, new)
    assert (found.affects_answers, found.affects_price) == ((), ())
    assert old.fingerprint == new.fingerprint
