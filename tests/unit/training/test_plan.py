"""Recipes and plans: they load, validate, give the derived numbers, and report errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ops.conductor.policy import PolicyCard
from ops.config import Budget, Pool, Recipe, Setup, load, load_pool, load_recipe
from ops.core.errors import ConfigError, DataError
from ops.core.processes import name_of
from ops.core.workspace import Workspace
from ops.planning.text import describe
from ops.training.grpo.__main__ import train
from ops.training.run import processes
from ops.training.run.plan import EXTENSIONS, RunPlan, command, environment, run_key, write_run
from tests.unit.training.plans import CONFIG, plan_of, quick_plan


def test_the_paper_recipe_is_appendix_a1() -> None:
    recipe = load_recipe(CONFIG, "paper")
    grpo = recipe.grpo
    assert (grpo.steps, grpo.questions_per_step, grpo.rollouts_per_question) == (200, 4, 64)
    assert (grpo.temperature, grpo.max_completion_tokens, grpo.clip, grpo.kl) == (1.0, 1024, 0.2, 0.0)
    assert (grpo.learning_rate, grpo.schedule, grpo.warmup_ratio) == (1e-6, "cosine", 0.03)
    assert (grpo.adam_beta1, grpo.adam_beta2, grpo.processes) == (0.9, 0.999, 2)
    assert (recipe.curation.per_domain, recipe.prompting.max_steps) == (240, 5)
    text = describe(Setup(Workspace(CONFIG.parent), recipe, load_pool(CONFIG, recipe.pool)))
    assert "51200 rollouts" in text and "960 problems" in text and "zero3-offload.json" in text


def test_the_plan_prints_without_importing_torch() -> None:
    code = (
        "import sys\nfrom pipelines.commands.main import podium\n"
        "try: podium(['plan', 'paper'], standalone_mode=False)\n"
        "except SystemExit as end: assert end.code == 1\n"  # not ready
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "Qwen/Qwen2.5-7B" in done.stdout


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"grpo": {"step": 3}}, "grpo.step", "not a known key"),
        ({"grpo": {"steps": "many"}}, "grpo.steps", "integer"),
        ({"execution": {"recursion": {"rounds": 1}}}, "execution.recursion", "not a known key"),
        ({"grpo": {"micro_batch": 7}}, "grpo", "not a multiple"),
        ({"pool": None}, "pool", "string"),
        ({"benchmarks": {"mmlu": {}, "mmul": {}}}, "benchmarks", "unknown benchmark mmul; known: aime25, bigcodebench"),
        ({"curation": {"selector": "best"}}, "curation.selector", "unknown selector best; known: disagreement, div"),
        ({"evaluation": {"baselines": ["best"]}}, "evaluation.baselines", "unknown baseline best; known: "),
        ({"grpo": {"reward_terms": {"time": -1}}}, "grpo.reward_terms", "unknown reward term time; known: cost, lat"),
        ({"cold_start": None}, "", "cold_start"),
    ],
)
def test_a_wrong_recipe_names_file_field_and_remedy(tmp_path: Path, change: dict, field: str, words: str) -> None:
    values = yaml.safe_load((CONFIG / "recipes" / "quickstart.yaml").read_text(encoding="utf-8"))
    for key, value in change.items():
        values[key] = {**values[key], **value} if isinstance(value, dict) and key == "grpo" else value
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(Recipe, file)
    assert str(file) in str(caught.value) and words in str(caught.value)
    assert caught.value.field == field and caught.value.remedy


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [1", "not valid YAML"), ("- 1", "not a mapping"), ("key: sk-" + "a" * 30, "API key")],
)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        load(Recipe, file)
    with pytest.raises(ConfigError, match="does not exist"):
        load(Recipe, tmp_path / "absent.yaml")


def _trainable(root: Path, recipe: Recipe, pool: Pool) -> tuple[Setup, Path]:
    """Return a recipe's setup below `root` with an empty mix, and the folder of its base policy, for `write_run`."""
    setup, base = Setup(Workspace(root), recipe, pool), root / "base"
    setup.workspace.data.mkdir()
    (setup.workspace.data / "training_mix.jsonl").write_text("", encoding="utf-8")
    base.mkdir()
    card = PolicyCard(recipe="q", pool=pool, offered=pool.names, prompting=recipe.prompting, max_completion_tokens=8)
    card.write(base)
    return setup, base


def test_the_command_is_this_python_or_the_deepspeed_launcher(tmp_path: Path) -> None:
    assert command(quick_plan(), tmp_path)[:3] == [sys.executable, "-m", "ops.training.grpo"]
    launched = command(quick_plan(deepspeed="zero3.json", processes=2, micro_batch=64), tmp_path)
    assert "--use_deepspeed" in launched and launched[launched.index("--num_processes") + 1] == "2"
    assert launched[-2:] == ["--run", str(tmp_path)]


def test_a_run_keeps_the_deepspeed_file_that_it_was_launched_with(tmp_path: Path) -> None:
    pool = load_pool(CONFIG, "quickstart")
    quick = load_recipe(CONFIG, "quickstart")
    grpo = quick.grpo.model_copy(update={"deepspeed": "zero3.json", "processes": 2, "micro_batch": 64})
    recipe = quick.model_copy(update={"grpo": grpo})
    zero3, zero2 = ({"zero_optimization": {"stage": stage}} for stage in (3, 2))
    setup, base = _trainable(tmp_path, recipe, pool)
    folder = write_run(setup, base, zero3)
    launched = command(RunPlan.read(folder), folder)
    file = Path(launched[launched.index("--deepspeed_config_file") + 1])
    assert json.loads(file.read_text(encoding="utf-8")) == zero3
    assert write_run(setup, base, zero3) == folder
    assert write_run(setup, base, zero2) != folder


def test_a_plan_round_trips_and_a_missing_one_is_named(tmp_path: Path) -> None:
    plan = quick_plan()
    (tmp_path / "run.json").write_text(json.dumps(plan.model_dump(mode="json")), encoding="utf-8")
    assert RunPlan.read(tmp_path) == plan
    values = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    values["recipe"]["evaluation"]["older"] = 1
    (tmp_path / "run.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(DataError, match=r"recipe\.evaluation\.older: is not usable: Extra inputs .* Delete") as said:
        RunPlan.read(tmp_path)
    assert "\n" not in str(said.value)
    with pytest.raises(DataError, match=r"run\.json"):
        RunPlan.read(tmp_path / "nowhere")


def test_a_plan_for_deepspeed_is_not_trained_by_a_bare_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELERATE_USE_DEEPSPEED", raising=False)
    recipe = load_recipe(CONFIG, "paper")
    plan = plan_of(recipe, root=tmp_path)
    (tmp_path / "run.json").write_text(plan.model_dump_json(), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"ops\.training\.run\.processes --use_deepspeed") as caught:
        train(tmp_path)
    assert caught.value.field == "recipe.grpo.deepspeed"
    assert "--mixed_precision bf16" in str(caught.value)


def test_settings_of_memory_and_patience_keep_a_run_and_others_begin_another(tmp_path: Path) -> None:
    recipe = load_recipe(CONFIG, "quickstart")
    pool = load_pool(CONFIG, "quickstart")
    setup, base = _trainable(tmp_path, recipe, pool)

    def key(**changes: object) -> str:
        changed = recipe.model_copy(update={"grpo": recipe.grpo.model_copy(update=changes)})
        return run_key(replace(setup, recipe=changed), base)

    assert key(vllm_sleep=True, keep_checkpoints=1, collective_timeout_s=60.0) == key()
    assert len({key(), key(worker_samples=3), key(vllm_correction="none"), key(reward_terms={"cost": 0.1})}) == 4


def test_an_interrupted_run_continues_with_a_larger_budget_and_a_finished_one_is_kept(tmp_path: Path) -> None:
    recipe, pool = load_recipe(CONFIG, "quickstart"), load_pool(CONFIG, "quickstart")
    setup, base = _trainable(tmp_path, recipe, pool)

    def written(usd: float) -> RunPlan:
        changed = recipe.model_copy(update={"budget": Budget(run_usd=usd)})
        folder = write_run(replace(setup, recipe=changed), base)
        folders.add(folder)
        return RunPlan.read(folder)

    folders: set[Path] = set()
    assert [written(usd).recipe.budget.run_usd for usd in (5.0, 50.0)] == [5.0, 50.0]
    [folder] = folders
    (folder / "result.json").write_text("{}", encoding="utf-8")
    assert written(500.0).recipe.budget.run_usd == 50.0 and len(folders) == 1


def test_a_trainer_ends_with_its_starter_and_does_not_wait_for_locks_of_ended_processes(tmp_path: Path) -> None:
    mine = name_of(os.getpid())
    assert environment(quick_plan(), tmp_path) == {processes.PARENT: mine}
    lock = tmp_path / EXTENSIONS / "deepspeed_shm_comm" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    variables = environment(quick_plan(deepspeed="zero3.json"), tmp_path)
    assert variables == {processes.PARENT: mine, "TORCH_EXTENSIONS_DIR": str(tmp_path / EXTENSIONS)}
    assert not lock.exists()


def test_two_trainings_with_vllm_on_one_machine_have_ports_of_their_own(tmp_path: Path) -> None:
    plan = quick_plan(vllm=True)
    ports = [environment(plan, tmp_path)["MASTER_PORT"] for _ in range(2)]
    assert len(set(ports)) == 2
    assert "MASTER_PORT" not in environment(quick_plan(vllm=True, deepspeed="zero3.json"), tmp_path)
