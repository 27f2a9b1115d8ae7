"""Workers that become unreachable during training: the step waits and retries, or ends the run with a message. A key
that is revoked stops a run at once.

Over real HTTP; only the pauses are not slept.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ops.config import Prompting
from ops.core.errors import ConfigError
from ops.precaching.precache import precache_worker
from ops.training.rewards.outage import LONGEST_PAUSE_S, Outage, OutagePolicy
from ops.training.rewards.reward import StepStatistics, build_reward_function
from ops.workers.client import WorkerClient
from ops.workflow.grammar import Step, Workflow
from ops.workflow.team import Team
from tests.builders import make_problem
from tests.faults.clients import MakeClient
from tests.faults.remote import FaultServer

PROBLEM = make_problem()
ALONE = [Workflow.single(0, f"Do {number}.").render() for number in range(4)]
AWAY = {"rate": 1.0, "faults": ["503"]}
FAILS_AT_ONCE: dict[str, Any] = {"retries": 0, "breaker_rest_s": 0.001}


class Night:
    """Pauses that take no time; the server recovers after `back_after` of them."""

    def __init__(self, server: FaultServer, back_after: int | None) -> None:
        self.pauses: list[float] = []
        self._server, self._back_after = server, back_after

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == self._back_after:
            self._server.order(rate=0.0)
        await asyncio.sleep(0.01)  # the worker's pause


def step(
    server: FaultServer, client: WorkerClient, completions: list[str], patience: OutagePolicy
) -> tuple[list[float | None], StepStatistics]:
    seen: list[StepStatistics] = []
    workers = [server.worker(**FAILS_AT_ONCE), server.worker(name="other", model="openai/other", **FAILS_AT_ONCE)]
    team = Team(workers, client, Prompting(style="compact"))
    function = build_reward_function({PROBLEM.key: PROBLEM}, team, seen.append, outage_policy=patience)
    rewards = asyncio.run(function(completions=completions, problem=[PROBLEM.key] * len(completions), epoch=[0]))  # type: ignore[arg-type]
    [statistics] = seen
    return rewards, statistics


def test_a_step_waits_until_the_workers_are_back_and_pays_once(
    server: FaultServer, make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    server.order(plan=["ok"], **AWAY)  # one of the four was answered before
    client, night = make_client(), Night(server, back_after=3)
    with caplog.at_level(logging.WARNING, "ops.training.rewards.outage"):
        rewards, statistics = step(server, client, ALONE, OutagePolicy(0.5, 3600.0, night.sleep))
    assert night.pauses == [30.0, 60.0, 120.0]
    assert rewards == [0.5] * 4
    assert statistics.metrics["share/unscorable"] == 0.0
    assert sorted(server.served().values()) == [1] * 4
    assert (client.counts.live, client.counts.cached) == (4, 0)
    lines = [record.getMessage() for record in caplog.records if record.name == "ops.training.rewards.outage"]
    assert lines[0].startswith("75% of the step's rollouts have no reward: remote (3 steps) gave no answer, at last:")
    assert lines[0].endswith("again in 30 s")
    assert lines[-1] == "the workers are back after 210 s of waiting"


def test_a_workflows_earlier_answers_are_reused(server: FaultServer, make_client: MakeClient) -> None:
    chain = Workflow((Step(0, "Begin."), Step(1, "End.", "all"))).render()
    server.order(plan=["ok"], **AWAY)
    client, night = make_client(), Night(server, back_after=1)
    rewards, _ = step(server, client, [chain], OutagePolicy(0.5, 3600.0, night.sleep))
    assert (rewards, night.pauses) == ([0.5], [30.0])
    assert (client.counts.live, client.counts.cached) == (2, 1)
    assert sorted(server.served().values()) == [1, 1]


def test_a_few_unreachable_workers_rollouts_are_left_out(server: FaultServer, make_client: MakeClient) -> None:
    server.order(plan=["ok", "ok", "503", "503"])
    night = Night(server, None)
    rewards, statistics = step(server, make_client(), ALONE, OutagePolicy(0.5, 3600.0, night.sleep))
    assert night.pauses == []
    assert sorted(map(str, rewards)) == ["0.5", "0.5", "None", "None"]
    assert statistics.metrics["share/unscorable"] == 0.5


def test_the_run_ends_when_no_worker_comes_back(server: FaultServer, make_client: MakeClient) -> None:
    server.order(**AWAY)
    night = Night(server, None)
    with pytest.raises(Outage, match=r"after 50 minutes .*: remote \(4 steps\) gave no answer.*goes on from the last"):
        step(server, make_client(), ALONE, OutagePolicy(0.5, 3000.0, night.sleep))
    assert sum(night.pauses) == 3000.0
    assert max(night.pauses) == LONGEST_PAUSE_S


def test_a_key_is_revoked_in_the_middle_of_a_run(server: FaultServer, make_client: MakeClient) -> None:
    problems = [make_problem(id=f"p{n}", question=f"Number {n}: what is 2+2?") for n in range(60)]
    worker, client = server.worker(concurrency=4, retries=0), make_client(pool_file="config/pools/own.yaml")
    server.order(plan=["ok"] * 20 + ["401"] * 200)
    with pytest.raises(ConfigError) as stopped:
        asyncio.run(precache_worker(problems, worker, client))
    assert "config/pools/own.yaml: workers.remote.api_key_env: the provider refused the key" in str(stopped.value)
    refused = 200 - server.order()["planned"]
    assert refused <= 2 * 4, "no question is begun after the first that was refused; eight were under way"
    assert len(client.cache) == 20
    server.order(plan=[])
    rows = asyncio.run(precache_worker(problems, worker, make_client()))
    assert [row.status for row in rows] == ["ok"] * 60
    assert max(server.served().values()) == 1, "an answer was paid for twice"
