"""Stored results are found: answers in the cache, a training run's steps; and none if there are none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ops.benchmarks.problem_files import write_problems
from ops.config import Recipe, Setup, Worker, load_pool, load_recipe
from ops.core.installation import resources_folder
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.planning import stored_results
from ops.planning.lengths import read_shortlist
from ops.planning.stored_results import RemainingShares, compute_remaining, remaining_share_of_run
from ops.precaching.precache import build_solo_messages
from ops.store import ResponseCache, cache_key
from ops.synthetic.problems import generate_problems
from ops.training.run.training_run import CURVE_FILE

CONFIG = resources_folder() / "config"
ANSWER = Response("4", Usage(1, 1), 0.0, 0.0, "stop")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    quick = load_recipe(CONFIG, "quickstart").model_dump()
    changes = {"benchmarks": {"math500": {"train": 40}, "mmlu": {"train": 40}}, "curation": {"per_domain": 4}}
    recipe = Recipe.model_validate(quick | changes)
    return Setup(Workspace(tmp_path), recipe, load_pool(CONFIG, "quickstart"))


def cached(setup: Setup, worker: Worker, problems: Sequence[Problem]) -> None:
    with closing(ResponseCache(setup.workspace.cache)) as cache:
        cache.put_many(
            [(cache_key(worker.identity, build_solo_messages(problem), 0), "", ANSWER) for problem in problems]
        )


def test_a_fresh_workspace_holds_nothing_and_a_plan_makes_nothing(setup: Setup) -> None:
    assert compute_remaining(setup, []) == RemainingShares()
    write_problems(setup.workspace.data / "shortlist.jsonl", generate_problems("math500", "train", 4, 1))
    assert compute_remaining(setup, read_shortlist(setup)) == RemainingShares()
    assert not setup.workspace.state.exists()


def test_cached_answers_are_found_cell_by_cell(setup: Setup) -> None:
    """A killed run has written no table, so only the cache holds the paid answers."""
    problems = [problem for name in ("math500", "mmlu") for problem in generate_problems(name, "train", 4, 1)]
    write_problems(setup.workspace.data / "shortlist.jsonl", problems)
    first, second, *others = setup.pool.workers
    cached(setup, first, problems)
    cached(setup, second, problems[:3])
    cells = compute_remaining(setup, read_shortlist(setup)).precaching
    assert (cells[first.name, "math500"], cells[first.name, "mmlu"]) == (0.0, 0.0)
    assert (cells[second.name, "math500"], cells[second.name, "mmlu"]) == (0.25, 1.0)
    assert {cells[worker.name, name] for worker in others for name in ("math500", "mmlu")} == {1.0}


def test_a_smaller_recipes_shortlist_leaves_the_rest_to_ask(setup: Setup) -> None:
    curation = setup.recipe.curation.model_copy(update={"per_domain": 8, "shortlist_factor": 2.0})
    larger = replace(setup, recipe=setup.recipe.model_copy(update={"curation": curation}))
    problems = generate_problems("math500", "train", 4, 1)
    write_problems(setup.workspace.data / "shortlist.jsonl", problems)
    worker = setup.pool.workers[0]
    cached(setup, worker, problems)
    assert compute_remaining(setup, read_shortlist(setup)).precaching[worker.name, "math500"] == 0.0
    assert compute_remaining(larger, read_shortlist(larger)).precaching[worker.name, "math500"] == 0.75, (
        "4 of 16 are there"
    )


def test_a_sample_of_many_answers_is_looked_up(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_results, "MAX_LOOKUPS", 100)
    problems = generate_problems("math500", "train", 201, 1)
    write_problems(setup.workspace.data / "shortlist.jsonl", problems)
    worker = setup.pool.workers[0]
    cached(setup, worker, problems[:101])
    assert compute_remaining(setup, read_shortlist(setup)).precaching[worker.name, "math500"] == pytest.approx(
        0.5, abs=0.01
    )


def test_the_steps_of_a_run_that_was_cut_short_are_not_taken_again(tmp_path: Path) -> None:
    assert remaining_share_of_run(tmp_path, 8) == 1.0
    (tmp_path / CURVE_FILE).write_text("".join(json.dumps({"step": step}) + "\n" for step in (1, 2)), encoding="utf-8")
    assert remaining_share_of_run(tmp_path, 8) == 0.75
