"""A pool change's estimate agrees with the plan's estimate of the same calls, and covers all calls of the job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from ops.config import Recipe, Setup, load_pool, load_recipe
from ops.core.installation import resources
from ops.core.workspace import Workspace
from ops.planning.estimate import Measured
from ops.planning.lengths import lengths, questions
from ops.planning.stages import Stages
from ops.precaching.opening import open_client
from ops.precaching.stored import Cell
from ops.retraining.estimate import Cost, estimate, slice_of
from ops.retraining.plan import BELOW, RetrainingPlan
from ops.stages.curation import materialize_shortlist
from ops.stages.problems import materialize_raw
from ops.stages.responses import estimate_responses
from ops.workers.client import WorkerClient

CONFIG = resources() / "config"
ROUNDS = {"steps": 5, "limits": {"rounds": 1, "calls_ratio": 1.5}}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with problems and a shortlist, without any call."""
    workspace = Workspace(tmp_path_factory.mktemp("estimate"))
    (workspace.root / "config").symlink_to(CONFIG)
    (workspace.root / "data").mkdir()
    (workspace.root / "data/few_shots").symlink_to(CONFIG.parent / "data/few_shots")
    for name in recipe().benchmarks:
        materialize_raw(Setup(workspace, recipe(), load_pool(CONFIG, "quickstart")), name)
    materialize_shortlist(Setup(workspace, recipe(), load_pool(CONFIG, "quickstart")))
    return workspace


def recipe(**changes: Any) -> Recipe:
    quick = load_recipe(CONFIG, "quickstart").model_dump()
    benchmarks = {name: {"train": 8, "test": 4} for name in ("math500", "mmlu")}
    curation = quick["curation"] | {"per_domain": 2}
    return Recipe.model_validate(quick | {"benchmarks": benchmarks, "curation": curation} | changes)


@pytest.fixture
def setup(workspace: Workspace) -> Setup:
    return Setup(workspace, recipe(), load_pool(CONFIG, "quickstart"))


@pytest.fixture
def client(setup: Setup) -> Iterator[WorkerClient]:
    client = open_client(setup, "precache")
    with closing(client.cache), closing(client.ledger):
        yield client


def planned(setup: Setup) -> Stages:
    return Stages(setup, lengths(setup), questions(setup.workspace, setup.recipe), Measured())


def parts(setup: Setup, client: WorkerClient, **plan: Any) -> dict[str, Cost]:
    return {part.name: part for part in estimate(setup, RetrainingPlan(evaluate=True, **plan), client).parts}


def test_a_column_costs_what_precaching_estimates(setup: Setup, client: WorkerClient) -> None:
    new = setup.pool.names[0]
    column = parts(setup, client, precache=(new,))["precaching"]
    cells = [Cell(new, name) for name in setup.recipe.benchmarks]
    assert column.usd == estimate_responses(setup, client, cells).usd


def test_baselines_that_call_the_changed_pool_are_counted(setup: Setup, client: WorkerClient) -> None:
    named = setup.recipe.evaluation.model_copy(update={"baselines": ("oracle", "five_context")})
    asking = replace(setup, recipe=setup.recipe.model_copy(update={"evaluation": named}))
    assert parts(asking, client)["baselines"].usd == planned(asking).baselines().usd
    assert parts(setup, client)["every worker alone"].usd == planned(setup).baselines().usd


@pytest.mark.parametrize("stage", [{}, {"adaptive": {"steps": 5}}, {"recursive": ROUNDS}], ids=str)
def test_fine_tuning_is_the_last_stage_of_training(workspace: Workspace, client: WorkerClient, stage: Any) -> None:
    """Of a recipe with rounds half of the rollouts are later rounds, in which workers may be asked again."""
    setup = Setup(workspace, recipe(fine_tune={"steps": 7}, **stage), load_pool(CONFIG, "quickstart"))
    found = parts(setup, client, fine_tune=BELOW)
    grpo = setup.recipe.grpo.model_dump() | {"steps": 7}
    own = {name: {**settings, "steps": 7} for name, settings in stage.items()} or {"grpo": grpo}
    last = planned(Setup(workspace, recipe(**(stage | own)), setup.pool)).last_training()
    assert (found["fine-tuning"].usd, found["fine-tuning"].what) == (last.usd, last.what)
    assert found["fine-tuning"].conditional and found["its evaluation"].conditional
    once = planned(setup).evaluation(policies=1)
    assert found["evaluation"].usd == found["its evaluation"].usd == once.usd._replace(low=0.0)


def test_a_night_is_an_evaluation_of_its_questions(setup: Setup) -> None:
    [night] = slice_of(setup, 2).parts
    once = planned(setup).evaluation(policies=1)  # of four questions a benchmark
    assert night.calls == pytest.approx(once.calls.times(0.5))
    assert night.usd == pytest.approx(once.worth.times(0.5)), "nothing of it is stored"
