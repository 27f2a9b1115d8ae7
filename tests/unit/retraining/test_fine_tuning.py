"""Fine-tuning: its start from the champion's weights and a card with unchanged ordinals; and a pool change's estimate,
which agrees with the plan's estimate of the same calls and covers all calls of the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.conductor.policy import PolicyCard
from ops.config import Execution, Pool, PoolChange, Prompting, Recipe, Setup, Snapshot, Worker, load_pool, load_recipe
from ops.core.atomic import TEMPORARY
from ops.core.errors import DataError
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.planning.estimate import MeasuredUsage, Range
from ops.planning.lengths import count_test_questions, estimate_lengths
from ops.planning.stage_estimates import StageEstimator
from ops.precaching.client_setup import open_client
from ops.precaching.stored_profiles import WorkerBenchmark
from ops.retraining.estimate import Cost, estimate_plan
from ops.retraining.fine_tuning_start import find_fine_tuning, prepare_fine_tuning, prepare_start_folder, update_card
from ops.retraining.retraining_plan import BELOW, RetrainingPlan
from ops.stages.curation import materialize_shortlist
from ops.stages.raw_problems import materialize_raw
from ops.stages.responses import estimate_responses
from ops.training.run.training_run import RESULT_FILE, RunPlan
from ops.workers.client import WorkerClient
from ops.workflow.cards import WorkerCard
from ops.workflow.team import Team
from tests.unit.planning.test_forecast import write_run

CONFIG = resources_folder() / "config"
A, B, C, D = (Worker(name=name, model=f"local/{name}") for name in "abcd")
POOL = Pool(name="p", workers=(A, B, C))
DATA = Workspace.find().data
RUN = "small-0123456789ab"
ELSEWHERE = PoolChange(version="2", policy="small-another", before=POOL)


def measured(folder: Path, **accuracy: float) -> Path:
    """`data/profiles.json` with one domain."""
    domains = {name: {"math": {"accuracy": share}} for name, share in accuracy.items()}
    rows = [{"worker": name, "by_domain": own, "cost_usd": 0.1} for name, own in domains.items()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profiles.json").write_text(json.dumps({"workers": rows}), encoding="utf-8")
    return folder


def card(**changes: Any) -> PolicyCard:
    """The card of a policy for which c is Model 0."""
    prompting = Prompting(style="compact", few_shots="none")
    made = PolicyCard(recipe="small", pool=POOL, offered=("c", "a", "b"), prompting=prompting, max_completion_tokens=8)
    return made.model_copy(update=changes)


def shown(*shares: float) -> tuple[WorkerCard, ...]:
    return tuple(WorkerCard(accuracy={"math": share}, cost_usd=0.1) for share in shares)


def team(made: PolicyCard, *workers: Worker) -> Team:
    return made.build_team(Pool(name="p", workers=workers), DATA, Execution())


def test_removed_workers_are_not_offered_and_the_others_keep_their_ordinals() -> None:
    left = team(card(), B, C)
    assert (list(left.ordinals), left.names) == ([0, 2], ("c", "a", "b"))


def test_a_policy_that_numbers_every_question_anew_has_no_gap() -> None:
    left = team(card(renumbered=True, cards=shown(0.1, 0.2, 0.3)), B, C)
    assert (list(left.ordinals), left.names) == ([0, 1], ("c", "b"))
    assert [each.accuracy["math"] for each in left.cards] == [0.1, 0.3]


def test_a_pool_without_the_policys_workers_is_refused() -> None:
    with pytest.raises(DataError, match="has none"):
        team(card(), D)


def test_a_newcomer_is_offered_only_to_a_policy_with_cards(tmp_path: Path) -> None:
    pool, data = Pool(name="p", workers=(B, C, D)), measured(tmp_path, d=0.9)
    blind = card()
    known = team(blind, B, C, D)
    assert blind.add_new_workers(known, pool, data) is known
    reading = card(cards=shown(0.1, 0.2, 0.3), prompting=Prompting(style="compact", few_shots="none", cards=True))
    known = team(reading, B, C, D)
    offered = reading.add_new_workers(known, pool, data)
    assert (list(offered.ordinals), offered.names) == ([0, 2, 3], ("c", "a", "b", "d"))
    assert offered.cards[3].accuracy == {"math": 0.9}
    with pytest.raises(DataError, match="no profile of d"):
        reading.add_new_workers(known, pool, measured(tmp_path, c=0.1))


def test_training_offers_what_the_champion_sees(tmp_path: Path) -> None:
    """Old, removed and new workers; new ones only for a champion with descriptions."""
    pool = Pool(name="p", workers=(D, C, B.model_copy(update={"revision": "2"})))
    known = update_card(card(), pool, tmp_path)
    assert known.offered == ("c", "a", "b")
    assert known.pool.worker("b").revision == "2" and known.pool.worker("a") == A
    assert list(known.build_team(pool, DATA, Execution()).ordinals) == [0, 2]
    with_cards = update_card(card(cards=shown(0.1, 0.2, 0.3)), pool, measured(tmp_path, b=0.8, c=0.7, d=0.9))
    # For b, whose answers have changed, the present profile; for c the policy's own card.
    assert [each.accuracy["math"] for each in with_cards.cards] == [0.1, 0.2, 0.8, 0.9]


class Lineage:
    """A workspace with a champion's run."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root)
        self.policy = self.workspace.runs / RUN / "policy"
        card().write(self.policy)
        (self.policy / "model.safetensors").write_bytes(b"weights")
        self.workspace.data.mkdir()
        (self.workspace.data / "training_mix.jsonl").write_text("", encoding="utf-8")
        self.change = PoolChange(version="1", policy=RUN, before=POOL)

    def setup(self, *workers: Worker, **recipe: Any) -> Setup:
        quick = load_recipe(CONFIG, "quickstart")
        made = Recipe.model_validate(quick.model_dump() | {"name": "small"} | recipe)
        return Setup(self.workspace, made, Pool(name="p", workers=workers))


@pytest.fixture
def lineage(tmp_path: Path) -> Lineage:
    return Lineage(tmp_path)


def test_the_same_change_starts_from_the_same_folder_and_another_from_another(lineage: Lineage) -> None:
    one = prepare_start_folder(lineage.setup(B, C), lineage.change)
    assert (one / "model.safetensors").read_bytes() == b"weights"
    assert prepare_start_folder(lineage.setup(C, B), lineage.change) == one
    other = prepare_start_folder(lineage.setup(B, C, D), lineage.change)
    assert other != one and PolicyCard.read(other).offered == ("c", "a", "b")
    assert PolicyCard.read(lineage.policy).offered == ("c", "a", "b")  # the champion's own files are unchanged
    assert not list(lineage.workspace.policies.glob(TEMPORARY))


def test_the_key_of_a_continued_run_includes_its_starting_policy(lineage: Lineage) -> None:
    setup = lineage.setup(B, C, fine_tune={"steps": 7, "learning_rate": 1e-5})
    run = prepare_fine_tuning(setup, lineage.change)
    plan = RunPlan.read(run)
    assert plan.base_policy == prepare_start_folder(setup, lineage.change)
    assert (plan.recipe.grpo.steps, plan.recipe.grpo.learning_rate) == (7, 1e-5)
    assert plan.adaptive is None and plan.recursive is None and plan.from_champion
    assert prepare_fine_tuning(setup, lineage.change) == run
    other = lineage.workspace.runs / ELSEWHERE.policy / "policy"
    other.mkdir(parents=True)
    card(trained_steps=3).write(other)
    assert prepare_fine_tuning(setup, ELSEWHERE) != run


@pytest.mark.parametrize("section", ["adaptive", "recursive"])
def test_it_repeats_the_recipes_last_stage(lineage: Lineage, section: str) -> None:
    setup = lineage.setup(B, C, **{section: {"steps": 50}}, fine_tune={"steps": 7})
    plan = RunPlan.read(prepare_fine_tuning(setup, lineage.change))
    stage = getattr(plan, section)
    assert stage is not None and stage.steps == plan.recipe.grpo.steps == 7


def test_a_finished_fine_tuning_is_not_planned_again(lineage: Lineage) -> None:
    setup = lineage.setup(B, C)
    run = prepare_fine_tuning(setup, lineage.change)
    (run / RESULT_FILE).write_text("{}", encoding="utf-8")
    before = (run / "run.json").stat().st_mtime_ns
    assert prepare_fine_tuning(setup, lineage.change) == run
    assert (run / "run.json").stat().st_mtime_ns == before


def test_weights_are_copied_where_the_file_system_has_no_hard_links(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not permitted")

    monkeypatch.setattr("os.link", refuse)
    weights = prepare_start_folder(lineage.setup(B, C), lineage.change) / "model.safetensors"
    assert weights.read_bytes() == b"weights" and weights.stat().st_nlink == 1


def test_a_damaged_start_is_renamed_and_made_again(lineage: Lineage, caplog: pytest.LogCaptureFixture) -> None:
    folder = prepare_start_folder(lineage.setup(B, C), lineage.change)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    (folder / "podium.json").unlink()
    assert prepare_start_folder(lineage.setup(B, C), lineage.change) == folder
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    aside = [each.name for each in lineage.workspace.policies.iterdir() if each != folder]
    assert len(aside) == 1 and aside[0].startswith(f"{folder.name}.damaged-")
    assert str(folder) in caplog.text


def test_a_fine_tuning_is_found_only_where_it_was_started(lineage: Lineage) -> None:
    setup = lineage.setup(B, C)
    assert find_fine_tuning(setup, lineage.change) is None
    run = prepare_fine_tuning(setup, lineage.change)
    assert find_fine_tuning(setup, lineage.change) == run
    assert find_fine_tuning(setup, ELSEWHERE) is None, "its champion was not trained here"
    (lineage.workspace.data / "training_mix.jsonl").unlink()
    assert find_fine_tuning(setup, lineage.change) is None, "there is no mix"


# ── estimate ─────────────────────────────────────────────────────────────────

ROUNDS = {"steps": 5, "limits": {"rounds": 1, "calls_ratio": 1.5}}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with problems and a shortlist, without any call."""
    workspace = Workspace(tmp_path_factory.mktemp("estimate"))
    (workspace.root / "config").symlink_to(CONFIG)
    (workspace.root / "data").mkdir()
    (workspace.root / "data/few_shots").symlink_to(CONFIG.parent / "data/few_shots")
    made = Setup(workspace, recipe(), load_pool(CONFIG, "quickstart"))
    for name in made.recipe.benchmarks:
        materialize_raw(made, name)
    materialize_shortlist(made)
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


def planned(setup: Setup) -> StageEstimator:
    return StageEstimator(
        setup, estimate_lengths(setup), count_test_questions(setup.workspace, setup.recipe), MeasuredUsage()
    )


def parts(setup: Setup, client: WorkerClient, **plan: Any) -> dict[str, Cost]:
    return {part.name: part for part in estimate_plan(setup, RetrainingPlan(evaluate=True, **plan), client).parts}


def test_a_column_costs_what_precaching_estimates(setup: Setup, client: WorkerClient) -> None:
    new = setup.pool.names[0]
    column = parts(setup, client, precache=(new,))["precaching"]
    cells = [WorkerBenchmark(new, name) for name in setup.recipe.benchmarks]
    assert column.usd == estimate_responses(setup, client, cells).usd


def test_baselines_that_call_the_changed_pool_are_counted(setup: Setup, client: WorkerClient) -> None:
    named = setup.recipe.evaluation.model_copy(update={"baselines": ("oracle", "five_context")})
    asking = replace(setup, recipe=setup.recipe.model_copy(update={"evaluation": named}))
    assert parts(asking, client)["baselines"].usd == planned(asking).estimate_baselines().usd
    assert parts(setup, client)["every worker alone"].usd == planned(setup).estimate_baselines().usd


@pytest.mark.parametrize("stage", [{}, {"adaptive": {"steps": 5}}, {"recursive": ROUNDS}], ids=str)
def test_fine_tuning_is_the_last_stage_of_training(workspace: Workspace, client: WorkerClient, stage: Any) -> None:
    """Of a recipe with rounds half of the rollouts are later rounds, in which workers may be asked again."""
    setup = Setup(workspace, recipe(fine_tune={"steps": 7}, **stage), load_pool(CONFIG, "quickstart"))
    found = parts(setup, client, fine_tune=BELOW)
    grpo = setup.recipe.grpo.model_dump() | {"steps": 7}
    own = {name: {**settings, "steps": 7} for name, settings in stage.items()} or {"grpo": grpo}
    last = planned(Setup(workspace, recipe(**(stage | own)), setup.pool)).estimate_last_training()
    assert (found["fine-tuning"].usd, found["fine-tuning"].calls_formula) == (last.usd, last.calls_formula)
    assert found["fine-tuning"].is_conditional and found["its evaluation"].is_conditional
    once = planned(setup).estimate_evaluation(policies=1)
    assert found["evaluation"].usd == found["its evaluation"].usd == once.usd._replace(low=0.0)


def test_the_planned_time_follows_from_the_champions_training(workspace: Workspace, client: WorkerClient) -> None:
    setup = Setup(workspace, recipe(fine_tune={"steps": 7}), load_pool(CONFIG, "quickstart"))
    write_run(workspace, setup.recipe, setup.pool)  # 10 steps of 5 s, of which 2 s were spent waiting for workers
    asked = Snapshot.capture(CONFIG, "quickstart", None, "")
    asked = asked.model_copy(update={"change": PoolChange(version="1", policy="r-1", before=setup.pool)})
    plan = RetrainingPlan(evaluate=True, fine_tune=BELOW)
    tuning = {part.name: part for part in estimate_plan(setup, plan, client, asked).parts}["fine-tuning"]
    assert tuning.policy_s == Range.exactly(7 * 3.0)
