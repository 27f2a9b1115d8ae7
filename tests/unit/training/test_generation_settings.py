"""The recipe's sampling settings apply in training, evaluation and serving; those in a model's files do not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from ops.conductor.policy import Conductor, PolicyCard
from ops.config import ColdStart, Generation, PretrainedPolicy, Recipe, Setup
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.grpo import trainer
from ops.training.grpo.configuration import configuration
from ops.training.grpo.trainer import run
from ops.training.run.plan import RunPlan, write_run
from tests.unit.training.tiny import tiny_plan

DECLARED = {
    "do_sample": True, "top_p": 0.3, "top_k": 2, "min_p": 0.5, "repetition_penalty": 3.0, "no_repeat_ngram_size": 1,
    "max_length": 7,
}  # fmt: skip
"""The `generation_config.json` of Qwen2.5-7B-Instruct with stronger values, so that an effect would show."""
CHAT = [{"role": "user", "content": "What is 12 + 30?"}]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> RunPlan:
    return tiny_plan(tmp_path_factory.mktemp("drawn"), steps=1, checkpoint_every=50)[0]


@pytest.fixture(scope="module")
def opinionated(plan: RunPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the plan's policy with a generation configuration."""
    folder = tmp_path_factory.mktemp("opinionated") / "policy"
    shutil.copytree(plan.base_policy, folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | DECLARED), encoding="utf-8")
    return folder


def card_with(folder: Path, copy: Path, **changes: Any) -> Path:
    shutil.copytree(folder, copy)
    PolicyCard.read(folder).model_copy(update=changes).write(copy)
    return copy


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_completions_do_not_depend_on_the_models_generation_config(
    plan: RunPlan, opinionated: Path, tmp_path: Path, temperature: float
) -> None:
    plain = Conductor.load(plan.base_policy).write([CHAT] * 8, temperature=temperature, seed=3)
    assert Conductor.load(opinionated).write([CHAT] * 8, temperature=temperature, seed=3) == plain
    hub = card_with(opinionated, tmp_path / "hub", pretrained=PretrainedPolicy(model=str(opinionated), dtype="float32"))
    assert Conductor.load(hub).write([CHAT] * 8, temperature=temperature, seed=3) == plain


def test_the_card_says_how_tokens_are_drawn(plan: RunPlan, tmp_path: Path) -> None:
    def written(name: str, temperature: float, **drawn: Any) -> list[str]:
        folder = card_with(plan.base_policy, tmp_path / name, generation=Generation(**drawn))
        return Conductor.load(folder).write([CHAT] * 8, temperature=temperature, seed=3)

    greedy = written("plain", 0.0)
    assert written("first", 1.5, top_k=1) == written("mass", 1.5, top_p=1e-6) == greedy
    assert written("minimum", 1.5, min_p=1.0) == greedy
    assert written("sampled", 1.5) != greedy
    assert written("greedy", 0.0, top_k=2, top_p=0.5, min_p=0.1) == greedy
    assert written("no repeats", 0.0, repetition_penalty=3.0) != greedy


def test_a_card_without_sampling_settings_samples_plainly(plan: RunPlan, tmp_path: Path) -> None:
    row = json.loads((plan.base_policy / "podium.json").read_text(encoding="utf-8"))
    del row["generation"]
    (tmp_path / "podium.json").write_text(json.dumps(row), encoding="utf-8")
    assert PolicyCard.read(tmp_path).generation == Generation()


def drawing(plan: RunPlan, **settings: Any) -> RunPlan:
    generation = Generation(**settings)
    return plan.model_copy(update={"recipe": plan.recipe.model_copy(update={"generation": generation})})


def test_trl_and_vllm_are_told_the_recipes(plan: RunPlan, tmp_path: Path) -> None:
    made = configuration(drawing(plan, top_p=0.9, top_k=20, min_p=0.1, repetition_penalty=1.1), tmp_path)
    assert (made.top_p, made.top_k, made.min_p, made.repetition_penalty) == (0.9, 20, 0.1, 1.1)
    made = configuration(plan, tmp_path)
    assert (made.top_p, made.top_k, made.min_p, made.repetition_penalty) == (1.0, 0, None, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"top_k": 5}], ids=["plain", "top-k"])
def test_training_draws_by_the_recipe_alone(
    plan: RunPlan, opinionated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    used: list[tuple[bool, GenerationConfig]] = []
    single_turn = trainer.TimedTrainer._generate_single_turn

    def recorded(self: Any, *arguments: Any, **named: Any) -> Any:
        used.append((self.samples_plainly, self.model._prepare_generation_config(self.generation_config)[0]))
        return single_turn(self, *arguments, **named)

    monkeypatch.setattr(trainer.TimedTrainer, "_generate_single_turn", recorded)
    chosen = drawing(plan, **settings)
    run(chosen.model_copy(update={"base_policy": opinionated}), tmp_path, lambda *_: None)
    [(plainly, config)] = used
    assert plainly == (not settings)
    assert (config.top_p, config.top_k, config.min_p) == (1.0, settings.get("top_k", 0), None)
    assert (config.repetition_penalty, config.temperature, config.do_sample) == (1.0, 1.0, True)
    assert config.max_new_tokens == plan.recipe.grpo.max_completion_tokens
    saved = json.loads((tmp_path / "policy" / "generation_config.json").read_text(encoding="utf-8"))
    assert not saved.keys() & DECLARED.keys() and "eos_token_id" in saved
    assert PolicyCard.read(tmp_path / "policy").generation == chosen.recipe.generation


def test_policies_and_runs_of_before_keep_their_keys(plan: RunPlan, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.data.mkdir()
    (workspace.data / "training_mix.jsonl").write_bytes(plan.problems.read_bytes())

    def folders(recipe: Recipe) -> tuple[str, str]:
        setup = Setup(workspace, recipe, plan.pool)
        return base_policy_folder(setup).name, write_run(setup, plan.base_policy).name

    unsaid = Recipe.model_validate(plan.recipe.model_dump(exclude={"generation"}))
    assert folders(unsaid) == folders(drawing(plan).recipe)
    assert not set(folders(drawing(plan, top_k=5).recipe)) & set(folders(unsaid))


def test_without_a_training_mix_the_error_names_the_file_and_the_asset(plan: RunPlan, tmp_path: Path) -> None:
    recipe = plan.recipe.model_copy(update={"cold_start": ColdStart()})
    with pytest.raises(DataError, match=r"training_mix\.jsonl: does not exist\. Materialize training_mix"):
        base_policy_folder(Setup(Workspace(tmp_path), recipe, plan.pool))
