"""The start of fine-tuning: the champion's weights, and a card with unchanged ordinals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ops.conductor.policy import PolicyCard
from ops.config import Execution, Pool, PoolChange, Prompting, Recipe, Setup, Worker, load_recipe
from ops.core.atomic import TEMPORARY
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.retraining.start import champion_folder, fine_tuned_run, known_card, start_folder, stored_fine_tuning
from ops.training.run.plan import RESULT, RunPlan
from ops.workflow.cards import WorkerCard

A, B, C, D = (Worker(name=name, model=f"local/{name}") for name in "abcd")
POOL = Pool(name="p", workers=(A, B, C))
DATA = Workspace.find().data
RUN = "small-0123456789ab"


def measured(folder: Path, **accuracy: float) -> Path:
    """`data/profiles.json` with one domain."""
    rows = [
        {"worker": name, "by_domain": {"math": {"accuracy": share}}, "cost_usd": 0.1}
        for name, share in accuracy.items()
    ]
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


def test_removed_workers_are_not_offered_and_the_others_keep_their_ordinals() -> None:
    team = card().team(Pool(name="p", workers=(B, C)), DATA, Execution())
    assert list(team.ordinals) == [0, 2]
    assert team.names == ("c", "a", "b")


def test_a_policy_that_numbers_every_question_anew_has_no_gap() -> None:
    team = card(renumbered=True, cards=shown(0.1, 0.2, 0.3)).team(Pool(name="p", workers=(B, C)), DATA, Execution())
    assert (list(team.ordinals), team.names) == ([0, 1], ("c", "b"))
    assert [each.accuracy["math"] for each in team.cards] == [0.1, 0.3]


def test_a_pool_without_the_policys_workers_is_refused() -> None:
    with pytest.raises(DataError, match="has none"):
        card().team(Pool(name="p", workers=(D,)), DATA, Execution())


def test_a_newcomer_is_offered_only_to_a_policy_with_cards(tmp_path: Path) -> None:
    pool, data = Pool(name="p", workers=(B, C, D)), measured(tmp_path, d=0.9)
    blind = card()
    team = blind.team(pool, DATA, Execution())
    assert blind.with_newcomers(team, pool, data) is team
    reading = card(cards=shown(0.1, 0.2, 0.3), prompting=Prompting(style="compact", few_shots="none", cards=True))
    team = reading.with_newcomers(reading.team(pool, DATA, Execution()), pool, data)
    assert list(team.ordinals) == [0, 2, 3]
    assert team.names == ("c", "a", "b", "d")
    assert team.cards[3].accuracy == {"math": 0.9}
    with pytest.raises(DataError, match="no profile of d"):
        reading.with_newcomers(reading.team(pool, DATA, Execution()), pool, measured(tmp_path, c=0.1))


def test_training_offers_what_the_champion_sees(tmp_path: Path) -> None:
    """Old, removed and new workers; new ones only for a champion with descriptions."""
    pool = Pool(name="p", workers=(D, C, B.model_copy(update={"revision": "2"})))
    known = known_card(card(), pool, tmp_path)
    assert known.offered == ("c", "a", "b")
    assert known.pool.worker("b").revision == "2" and known.pool.worker("a") == A
    assert list(known.team(pool, DATA, Execution()).ordinals) == [0, 2]
    with_cards = known_card(card(cards=shown(0.1, 0.2, 0.3)), pool, measured(tmp_path, b=0.8, c=0.7, d=0.9))
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
        quick = load_recipe(Workspace.find().config, "quickstart")
        made = Recipe.model_validate(quick.model_dump() | {"name": "small"} | recipe)
        return Setup(self.workspace, made, Pool(name="p", workers=workers))


@pytest.fixture
def lineage(tmp_path: Path) -> Lineage:
    return Lineage(tmp_path)


def test_the_same_change_starts_from_the_same_folder_and_another_from_another(lineage: Lineage) -> None:
    one = start_folder(lineage.setup(B, C), lineage.change)
    assert (one / "model.safetensors").read_bytes() == b"weights"
    assert start_folder(lineage.setup(C, B), lineage.change) == one
    other = start_folder(lineage.setup(B, C, D), lineage.change)
    assert other != one and PolicyCard.read(other).offered == ("c", "a", "b")
    assert PolicyCard.read(lineage.policy).offered == ("c", "a", "b")  # the champion's own files are unchanged
    assert not list(lineage.workspace.policies.glob(TEMPORARY))


def test_the_key_of_a_continued_run_includes_its_starting_policy(lineage: Lineage) -> None:
    setup = lineage.setup(B, C, fine_tune={"steps": 7, "learning_rate": 1e-5})
    run = fine_tuned_run(setup, lineage.change)
    plan = RunPlan.read(run)
    assert plan.base_policy == start_folder(setup, lineage.change)
    assert (plan.recipe.grpo.steps, plan.recipe.grpo.learning_rate) == (7, 1e-5)
    assert plan.adaptive is None and plan.recursive is None and plan.from_champion
    assert fine_tuned_run(setup, lineage.change) == run
    (lineage.workspace.runs / "small-another" / "policy").mkdir(parents=True)
    card(trained_steps=3).write(lineage.workspace.runs / "small-another" / "policy")
    elsewhere = PoolChange(version="2", policy="small-another", before=POOL)
    assert fine_tuned_run(setup, elsewhere) != run


@pytest.mark.parametrize("section", ["adaptive", "recursive"])
def test_it_repeats_the_recipes_last_stage(lineage: Lineage, section: str) -> None:
    setup = lineage.setup(B, C, **{section: {"steps": 50}}, fine_tune={"steps": 7})
    plan = RunPlan.read(fine_tuned_run(setup, lineage.change))
    stage = getattr(plan, section)
    assert stage is not None and stage.steps == plan.recipe.grpo.steps == 7


def test_a_finished_fine_tuning_is_not_planned_again(lineage: Lineage) -> None:
    setup = lineage.setup(B, C)
    run = fine_tuned_run(setup, lineage.change)
    (run / RESULT).write_text("{}", encoding="utf-8")
    before = (run / "run.json").stat().st_mtime_ns
    assert fine_tuned_run(setup, lineage.change) == run
    assert (run / "run.json").stat().st_mtime_ns == before


def test_a_champion_of_this_checkout_is_found_where_it_was_trained(lineage: Lineage) -> None:
    assert champion_folder(lineage.workspace, lineage.change) == lineage.policy


def test_weights_are_copied_where_the_file_system_has_no_hard_links(
    lineage: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("not permitted")

    monkeypatch.setattr("os.link", refuse)
    weights = start_folder(lineage.setup(B, C), lineage.change) / "model.safetensors"
    assert weights.read_bytes() == b"weights" and weights.stat().st_nlink == 1


def test_a_folder_in_the_way_is_named_and_nothing_half_written_is_left(lineage: Lineage) -> None:
    folder = start_folder(lineage.setup(B, C), lineage.change)
    (folder / "podium.json").unlink()
    with pytest.raises(DataError, match=rf"{folder.name}.*contains no policy.*Remove it and try again"):
        start_folder(lineage.setup(B, C), lineage.change)
    assert [each.name for each in lineage.workspace.policies.iterdir()] == [folder.name]


def test_a_fine_tuning_is_found_only_where_it_was_started(lineage: Lineage) -> None:
    setup = lineage.setup(B, C)
    assert stored_fine_tuning(setup, lineage.change) is None
    run = fine_tuned_run(setup, lineage.change)
    assert stored_fine_tuning(setup, lineage.change) == run
    elsewhere = PoolChange(version="2", policy="small-another", before=POOL)
    assert stored_fine_tuning(setup, elsewhere) is None, "its champion was not trained here"
    (lineage.workspace.data / "training_mix.jsonl").unlink()
    assert stored_fine_tuning(setup, lineage.change) is None, "there is no mix"
