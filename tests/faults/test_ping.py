"""`podium pools ping` against a real endpoint on loopback that answers as providers do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.config import Pool
from ops.core.workspace import Workspace
from ops.spending.ledger import Ledger
from ops.workers.ping import max_ping_usd
from tests.command import podium
from tests.faults.provider_errors import SENT
from tests.faults.remote import FaultServer

STEPS = {sent.name: sent.step for sent in SENT}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PODIUM_ROOT", str(tmp_path))
    (tmp_path / "config" / "pools").mkdir(parents=True)
    (tmp_path / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    return tmp_path


def write_pool(root: Path, server: FaultServer, *workers: dict[str, Any]) -> Pool:
    made = Pool(name="mine", workers=tuple(server.worker(**each) for each in workers or ({},)))
    text = yaml.safe_dump(made.model_dump(mode="json", exclude_defaults=True))
    (root / "config" / "pools" / "mine.yaml").write_text(text, encoding="utf-8")
    return made


def test_one_line_a_worker_with_latency_cost_and_what_came_back(
    root: Path, server: FaultServer, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pool(root, server, {"name": "first"}, {"name": "second", "temperature": 0.5})
    assert podium("pools", "ping", "mine", "--yes") == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["worker", "seconds", "cost", "response"]
    assert first.startswith("first ") and second.startswith("second ")
    assert " $0.0" in first and "'Answer: " in first
    spent = Ledger(Workspace(root).ledger).total_usd("ping-mine")
    assert podium("pools", "ping", "mine", "--yes", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["worker"], each["ok"]) for each in told] == [("first", True), ("second", True)]
    assert sum(each["cost_usd"] for each in told) == pytest.approx(spent)
    assert sum(server.served().values()) == 4, "nothing comes from the cache"


@pytest.mark.parametrize(("step", "said", "remedy"), [
    ("401", "the provider refused the key", "Check that the key is right"),
    (STEPS["openai quota"], "its account cannot be used", "Check credit, billing and spending limits"),
    (STEPS["google no billing"], "its account cannot be used", "Check credit, billing and spending limits"),
    (STEPS["google region"], "does not serve the place", "Run it where the provider offers its service"),
    (STEPS["openai region"], "does not serve the place", "Run it where the provider offers its service"),
    (STEPS["anthropic region"], "does not serve the place", "Run it where the provider offers its service"),
    ("404", "the endpoint does not serve 'openai/some-model'", "Check model and api_base"),
    ("429", "429", "Lower concurrency or requests_per_minute"),
    ("empty text", "the response has no text", "the provider's failure"),
])  # fmt: skip
def test_a_worker_that_does_not_answer_is_one_line_with_the_remedy(
    root: Path, server: FaultServer, capsys: pytest.CaptureFixture[str], step: str, said: str, remedy: str
) -> None:
    write_pool(root, server)
    server.order(plan=[step] * 3)
    assert podium("pools", "ping", "mine", "--yes") == 1
    _, line = capsys.readouterr().out.splitlines()
    assert line.startswith("remote ") and "FAILED" in line and said in line and remedy in line
    assert server.order()["planned"] == 2, "one attempt"


@pytest.mark.parametrize("model", ["ollama_chat/qwen3:8b", "hosted_vllm/m"])
def test_a_server_that_does_not_run_is_named(
    root: Path, server: FaultServer, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    write_pool(root, server, {"model": model, "api_base": "http://127.0.0.1:9", "price": {"input": 0, "output": 0}})
    assert podium("pools", "ping", "mine") == 1
    _, line = capsys.readouterr().out.splitlines()
    assert "no response after 1 attempt" in line
    assert "nothing listens at 127.0.0.1:9" in line
    assert line.endswith("Start the server, or correct api_base")


def test_a_missing_key_and_a_setting_that_is_dropped_are_told_without_a_call(
    root: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    dropped = {"model": "openai/gpt-6.1-sol", "reasoning_effort": "none"}
    pool = write_pool(root, server, {"name": "a", "api_key_env": "MY_KEY"}, {"name": "b", **dropped})
    assert max_ping_usd(pool, "mine.yaml") == 0
    assert podium("pools", "ping", "mine") == 1
    _, first, second = capsys.readouterr().out.splitlines()
    assert "MY_KEY is not set" in first and "Set it to your" in first
    assert "workers.b." in second
    assert sum(server.served().values()) == 0


def test_it_asks_before_it_spends(
    root: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pool(root, server)
    monkeypatch.setattr("click.confirm", lambda text, **_: "One call to each worker of mine costs $0.0" not in text)
    assert podium("pools", "ping", "mine") == 1
    assert (capsys.readouterr().out, sum(server.served().values())) == ("", 0)


def test_the_pools_are_listed_for_programs(
    root: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    write_pool(root, server, {"api_key_env": "MY_KEY"})
    assert podium("pools", "list", "--json") == 0
    [told] = json.loads(capsys.readouterr().out)
    assert told == {"pool": "mine", "workers": ["remote"], "missing_keys": ["MY_KEY"], "description": ""}
