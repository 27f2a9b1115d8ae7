"""A provider replaces the model behind a name: over real HTTP, through Dagster, up to the plan that follows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from assets.pool_change import find_pending_change
from assets.resources import RunResource
from ops.alerts.notify import load_notices
from ops.benchmarks.problem_files import read_problems, write_problems
from ops.conductor.rollout import execute_rollouts
from ops.config import load_pool
from ops.config.pool import REVISIONS_FILE
from ops.core.workspace import Workspace
from ops.precaching.client_setup import open_client
from ops.precaching.precache import build_solo_messages
from ops.stages.responses import materialize_responses
from ops.workflow.grammar import SOLVE_SUBTASK, Step, Workflow
from ops.workflow.team import Team
from pipelines.definitions import make_definitions
from tests.faults.remote import FaultServer
from tests.integration.checkouts import changed, configure, crown, shortlisted, sizes
from tests.integration.test_pool_changed import RECIPE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DRIFT = {"questions": 12, "false_alarms": 0.4}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FaultServer]:
    with FaultServer(tmp_path) as running:
        yield running


@pytest.fixture
def workspace(project: Workspace, server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A pool of an embedded worker and a remote one, precached, with a champion."""
    monkeypatch.setenv("REMOTE_KEY", "nothing")
    embedded = load_pool(project.config, "quickstart").worker("guesser")
    remote = server.worker(api_key_env="REMOTE_KEY")
    pool = {"name": "mixed", "workers": [each.model_dump(mode="json") for each in (embedded, remote)]}
    recipe = changed(RECIPE, pool="mixed", benchmarks=sizes(30, 2), curation={"per_domain": 30})
    configure(project, {"pools/mixed": pool, "recipes/small": recipe, "retraining": {"drift": DRIFT}})
    setup = RunResource(root=str(project.root), recipe="small").load_setup()
    # The remote worker answers with the number of characters of its prompt, so it is right about these.
    problems = [
        replace(problem, answer=str(len(build_solo_messages(problem)[0]["content"])))
        for problem in shortlisted(setup)
        if problem.benchmark == "math500"
    ]
    write_problems(setup.workspace.data / "shortlist.jsonl", problems)
    materialize_responses(setup, open_client(setup, "precache"))
    return project


def execute_repeated_steps(podium: RunResource) -> None:
    """Call the remote worker twice with each question in one workflow, at six sample indices, like a training."""
    setup = podium.load_setup()
    problems = read_problems(setup.workspace.data / "shortlist.jsonl")[:6]
    remote = setup.pool.names.index("remote")
    again = Workflow((Step(remote, SOLVE_SUBTASK), Step(remote, SOLVE_SUBTASK), Step(remote, "Vote.", "all")))
    team = Team(setup.pool.workers, open_client(setup, "evaluation"))
    for index in range(6):
        asyncio.run(execute_rollouts([again.render()] * len(problems), problems, team, sample=index))


def test_a_swapped_model_is_found_excluded_and_planned_for(
    workspace: Workspace, server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    podium = RunResource(root=str(workspace.root), recipe="small")
    crown(workspace, podium)
    code = make_definitions(podium)
    execute_repeated_steps(podium)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:

        def night(number: int) -> dg.ExecuteInProcessResult:
            monkeypatch.setattr("assets.drift.get_utc_day", lambda: date(2026, 1, number))
            job = code.resolve_job_def("detect_drift")
            done = job.execute_in_process(instance=instance, run_config=podium.make_run_config())
            assert done.success
            return done

        [before] = night(1).get_asset_check_evaluations()
        assert before.passed and before.description == "workers and champion answer as they did"
        asked = sum(server.served().values())
        server.order(rate=1.0, faults=["echo"])
        nights = 0
        while not (workspace.config / REVISIONS_FILE).is_file():
            nights += 1
            assert nights <= 6, "it was not found"
            last = night(1 + nights)
        assert sum(server.served().values()) == asked + nights * DRIFT["questions"]
        [check] = last.get_asset_check_evaluations()
        assert not check.passed and check.severity == dg.AssetCheckSeverity.WARN
        assert check.description is not None and check.description.startswith("remote: ")
        [shown] = [each.notice for each in load_notices(workspace, 10) if each.notice.kind == "drift"]
        assert shown.title == "remote drifted" and "remote: new revision drift-" in shown.text
        pool = load_pool(workspace.config, "mixed")
        assert pool.worker("remote").revision.startswith("drift-")
        assert pool.worker("guesser").revision == ""
        planned = find_pending_change(podium, workspace, instance).plan
        assert (planned.precache, planned.fine_tune) == (("remote",), "if it falls below the gate")
