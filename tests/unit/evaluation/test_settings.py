"""Settings per benchmark: its own pool, repeats and questions override the general ones, and no policy's key contains
them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from pydantic import ValidationError

from ops.benchmarks.problem_files import read_evaluation_questions, read_test_questions
from ops.config import Evaluation, Pool, Price, Recipe, Setup, Vote, Worker, group_by_setup, load_recipe
from ops.config.loading import load_evaluation_pools, load_pool
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from ops.evaluation.stored_scores import scores_key
from ops.planning.machine import Machine
from ops.planning.recipe_plan import RecipePlan
from ops.planning.requirements.workers import require_keys
from ops.stages.raw_problems import materialize_raw
from ops.workers.pool_checks import check_pools
from tests.setups import without_workers

CONFIG = Path(__file__).parents[3] / "config"
RECIPE = Recipe.model_validate({
    "name": "small", "pool": "two", "policy": {"kind": "scratch"}, "cold_start": {},
    "benchmarks": {"math500": {"train": 4, "test": 30}, "aime25": {"test": 12}},
})  # fmt: skip
FREE = Price(input=0, output=0)
SHORT, LONG = (
    Pool(name=name, workers=(Worker(name="ann", model="local/ann", max_tokens=most),))
    for name, most in (("short", 100), ("long", 9000))
)


def asking(**evaluation: object) -> Recipe:
    return RECIPE.model_copy(update={"evaluation": Evaluation.model_validate(evaluation)})


def test_a_benchmarks_own_settings_override_the_general_ones() -> None:
    settings = Evaluation.model_validate({"repeats": 3, "questions": 50, "benchmarks": {"aime25": {"repeats": 16}}})
    assert (settings.for_benchmark("aime25").repeats, settings.for_benchmark("aime25").max_questions) == (16, 50)
    assert (settings.for_benchmark("math500").repeats, settings.for_benchmark("math500").max_questions) == (3, 50)


@pytest.mark.parametrize(
    ("target", "cap", "most"), [(0.05, None, 100), (0.05, 40, 40), (0.01, 4000, 2500), (None, None, None)]
)
def test_a_target_error_asks_for_what_right_or_wrong_needs_at_worst(
    target: float | None, cap: int | None, most: int | None
) -> None:
    assert Evaluation(target_error=target, questions=cap).max_questions == most


def test_a_vote_that_cannot_end_is_refused_and_agreement_is_more_than_half_unless_it_is_given() -> None:
    assert [Vote(workflows=count).needed_votes for count in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert Vote(workflows=8, agree=2).needed_votes == 2
    for wrong in ({"workflows": 2, "agree": 3}, {"workflows": 0}, {"workflows": 65}, {"workflows": 3, "agree": 0}):
        with pytest.raises(ValidationError):
            Vote.model_validate(wrong)


def test_the_scores_of_a_vote_have_a_key_of_their_own(tmp_path: Path) -> None:
    setups = [Setup(Workspace(tmp_path), asking(**own), SHORT) for own in ({}, {"vote": {"workflows": 3}})]
    keys = [scores_key(setup, tmp_path / "policy-1", []) for setup in setups]
    assert keys[0] != keys[1]
    assert keys[0] == scores_key(replace(setups[0], recipe=RECIPE), tmp_path / "policy-1", [])


def test_an_unknown_benchmark_is_refused() -> None:
    with pytest.raises(ValidationError, match="unknown benchmark mlmu"):
        Evaluation.model_validate({"benchmarks": {"mlmu": {"repeats": 2}}})


def test_fewer_questions_are_some_of_more_and_training_still_avoids_all(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for name in RECIPE.benchmarks:
        materialize_raw(without_workers(workspace, RECIPE), name)
    few, more = (
        {problem.key for problem in read_evaluation_questions(workspace, asking(questions=most))["math500"]}
        for most in (5, 11)
    )
    assert (len(few), len(more)) == (5, 11) and few < more
    other_seed = asking(questions=5).model_copy(update={"seed": 7})
    assert {problem.key for problem in read_evaluation_questions(workspace, other_seed)["math500"]} == few
    assert len(read_test_questions(workspace, asking(questions=5))["math500"]) == 30
    some = read_evaluation_questions(workspace, asking(benchmarks={"math500": {"questions": 3}}))
    assert [len(questions) for questions in some.values()] == [3, 12]


def test_another_pool_is_asked_on_a_benchmark_and_its_scores_are_others() -> None:
    recipe = asking(benchmarks={"aime25": {"pool": "long", "repeats": 2}})
    setup = Setup(Workspace(Path("/nowhere")), recipe, SHORT, {"long": LONG})
    assert setup.for_benchmark("math500").pool is SHORT and setup.for_benchmark("aime25").pool is LONG
    groups = [(asked.pool.name, names) for asked, names in group_by_setup(setup, ["math500", "aime25", "rlpr"])]
    assert groups == [("short", ["math500", "rlpr"]), ("long", ["aime25"])]
    mathematics, aime = (scores_key(setup.for_benchmark(name), Path("p"), []) for name in ("math500", "aime25"))
    assert mathematics == scores_key(replace(setup, recipe=RECIPE), Path("p"), [])
    assert mathematics["pool"] != aime["pool"] and mathematics["settings"] != aime["settings"]


def test_a_pool_of_other_workers_is_refused() -> None:
    recipe, pool = asking(pool="open"), load_pool(CONFIG, "paper")
    with pytest.raises(ConfigError, match=r"recipe 'small'.*evaluation.pool.*open does not have the workers of two"):
        load_evaluation_pools(CONFIG, recipe, pool)


def test_the_unconstrained_recipe_finds_the_policies_of_paper() -> None:
    paper, unconstrained = (load_recipe(CONFIG, name) for name in ("paper", "paper-unconstrained"))
    assert unconstrained.policy_name == paper.policy_name == "paper"
    pools = load_evaluation_pools(CONFIG, unconstrained, load_pool(CONFIG, unconstrained.pool))
    setup = Setup(Workspace(Path("/nowhere")), unconstrained, load_pool(CONFIG, "paper"), pools)
    efforts = [setup.for_benchmark(name).pool.worker("gpt-5").reasoning_effort for name in ("aime25", "bigcodebench")]
    assert (setup.pool.worker("gpt-5").reasoning_effort, *efforts) == ("minimal", "high", "medium")


def test_an_evaluations_pool_is_checked_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELSEWHERE_KEY", raising=False)
    keyed = Pool(name="keyed", workers=(Worker(name="ann", model="openai/x", api_key_env="ELSEWHERE_KEY"),))
    tools = Pool(name="tools", workers=(Worker(name="ann", model="local/guesser", price=FREE),))
    setup = Setup(Workspace(Path("/nowhere")), asking(pool="keyed"), tools, {"keyed": keyed})
    [lacking] = require_keys(
        RecipePlan(setup, Machine((), 24.0, 100.0, has_bubblewrap=True, cores=2), {}, date(2026, 1, 1))
    )
    assert (lacking.what, "ann" in lacking.why) == ("ELSEWHERE_KEY", True)
    with pytest.raises(ConfigError, match="ELSEWHERE_KEY"):
        check_pools(setup)
