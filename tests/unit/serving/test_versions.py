"""The version in service: which pool it uses, what its requests count, and a champion that is removed meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from ops.conductor.policy import PolicyCard
from ops.conductor.untrained import PromptedConductor
from ops.config import Pool, PromptedPolicy, Prompting, Serving
from ops.core.errors import ConfigError, DataError
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.release import aliases, mlflow_store
from ops.release.champion import open_registered_versions
from ops.serving.answer import Answer, Fallback
from ops.serving.champion_follower import VersionFollower
from ops.serving.http.metrics import Metrics
from ops.serving.loaded_version import LoadedVersion, VersionFiles
from ops.workflow.trace import StepTrace
from tests.builders import make_problem
from tests.command import tried
from tests.releases import YES, checkout, shared_store, version
from tests.serving.script import POOL, Scripted, engine_of

COMMAND = "`podium promote VERSION --by NAME --reason WHY` makes one of them champion"


def test_the_servers_pool_has_priority_over_the_versions_own(tmp_path: Path) -> None:
    """A worker writes the version's workflows; the file of its own pool is absent."""
    card = PolicyCard(
        recipe="r", pool=POOL, offered=("solver", "scholar"), prompting=Prompting(), max_completion_tokens=64,
        untrained=PromptedPolicy(worker="solver"),
    )  # fmt: skip
    card.write(tmp_path / "policy")
    policy = VersionFiles("1", tmp_path / "policy", tmp_path / "pool.yaml", {})
    with pytest.raises(ConfigError, match=r"pool.yaml"):
        LoadedVersion.load(policy, Serving(), Workspace.find())
    loaded = LoadedVersion.load(policy, Serving(pool="quickstart"), Workspace.find())
    assert loaded.worker_names == ("solver", "scholar") and isinstance(loaded.pool, Pool)
    assert isinstance(loaded.conductor, PromptedConductor) and loaded.batch_writer is None
    loaded.check_writes_workflows()  # its worker is not asked: that would cost money
    with pytest.raises(DataError, match="has none of the workers of the policy: solver, scholar"):
        LoadedVersion.load(policy, Serving(pool="openai"), Workspace.find())


def test_calls_failures_and_fallbacks_are_counted_by_worker() -> None:
    metrics, answer = Metrics(), Answer(make_problem(), "3", status="answered")
    answer.steps += [
        StepTrace(0, "solver", 0, "Solve.", (), "ok", Response("42", Usage(100, 20), 0.25, 0.5, "stop")),
        StepTrace(1, "checker", 1, "Check.", (0,), "unreachable", error="timed out"),
    ]
    answer.fallbacks += [
        Fallback("unreachable", "checker", "rewritten"), Fallback("misconfigured", "coder", "rewritten"),
    ]  # fmt: skip
    metrics.count_answer(answer)
    page = metrics.render_page()[0].decode()
    assert {
        'podium_answers_total{status="answered"} 1.0',
        'podium_calls_total{cached="false",worker="solver"} 1.0',
        'podium_tokens_total{kind="prompt",worker="solver"} 100.0',
        'podium_usd_total{worker="solver"} 0.25',
        'podium_worker_failures_total{status="unreachable",worker="checker"} 1.0',
        'podium_worker_failures_total{status="misconfigured",worker="coder"} 1.0',
        'podium_fallbacks_total{reason="unreachable",then="rewritten"} 1.0',
        'podium_fallbacks_total{reason="misconfigured",then="rewritten"} 1.0',
    } <= set(page.splitlines())
    assert page.count("podium_worker_failures_total{") == 2


@pytest.mark.parametrize(("taken", "left"), [("alias", "2, 1"), ("version", "2")])
def test_a_removed_champion_is_reported_and_counted_once_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, taken: str, left: str
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace, metrics = checkout(tmp_path / "checkout", shared_store()), Metrics()
    aliases.promote_version(workspace, version(workspace).version, YES)
    version(workspace)
    with (
        closing(engine_of(tmp_path / "engine", POOL, Scripted("nothing"))) as thread,  # its version is also named 1
        open_registered_versions(workspace) as champion,
        mlflow_store.connect(workspace) as client,
    ):
        follower = VersionFollower(thread.engine, champion, on_attempt=metrics.count_swap)
        assert asyncio.run(follower.check_version())
        if taken == "alias":
            client.delete_registered_model_alias(mlflow_store.MODEL_NAME, mlflow_store.CHAMPION)
        else:
            client.delete_model_version(mlflow_store.MODEL_NAME, "1")
        assert [asyncio.run(follower.check_version()) for _ in range(3)] == [False] * 3
        assert thread.engine.loaded is not None and thread.engine.loaded.version == "1", "it goes on"
        assert b'podium_swaps_total{outcome="missing"} 1.0' in metrics.render_page()[0]
    why = (
        "No version of conductor has the alias champion: the gate promoted none (`podium verdict` says why), "
        "the alias was removed, or its version was deleted"
    )
    said = [record.getMessage() for record in caplog.records if "alias champion" in record.getMessage()]
    assert said == [f"{why}. There are versions {left}: {COMMAND}. Until then version 1 stays in service"]
    again = tried("serve", PODIUM_ROOT=str(workspace.root))
    assert again.exit_code == 1 and COMMAND in again.stderr and "podium run" not in again.stderr
