"""Recipe files: errors, bases, the shipped recipes' stated differences from the paper, and the changes of studies."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.config import Recipe, Setup, Snapshot, dump_settings, load_pool, load_recipe, load_settings
from ops.config.studies import STUDIES, Change, Changes, apply_change, load_studies
from ops.core.errors import ConfigError
from ops.core.registry import entry_names
from ops.core.workspace import Workspace
from ops.planning.plan_text import describe_recipe
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import run_key
from tests.unit.training.plans import CONFIG, QUICK, write_mix

ON_GPUS = (
    "paper", "paper-code", "paper-3b", "paper-server", "paper-async", "open", "files",
    "paper-3b-1x80", "paper-2x80", "paper-8x80", "paper-8x141", "paper-adaptive", "paper-recursive", "paper-baselines",
)  # fmt: skip


REAL = {"name": "real", "workers": [{"name": "w", "model": "openai/w", "price": {"input": 1, "output": 1}}]}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Make a folder with the quickstart's recipe, the shipped pools, and one of a real worker."""
    (tmp_path / "recipes").mkdir()
    for name in ("deepspeed", "promotion.yaml", "recipes/quickstart.yaml"):
        (tmp_path / name).symlink_to(CONFIG / name)
    shutil.copytree(CONFIG / "pools", tmp_path / "pools")
    (tmp_path / "pools" / "real.yaml").write_text(yaml.safe_dump(REAL), encoding="utf-8")
    return tmp_path


def write(config: Path, stem: str, **values: Any) -> Path:
    file = config / "recipes" / f"{stem}.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"grpo": {"step": 3}}, "grpo.step", "not a known key"),
        ({"grpo": {"steps": "many"}}, "grpo.steps", "integer"),
        ({"execution": {"recursion": {"rounds": 1}}}, "execution.recursion", "not a known key"),
        ({"grpo": {"micro_batch": 7}}, "grpo", "not a multiple"),
        ({"pool": None}, "pool", "string"),
        ({"benchmarks": {"mmlu": {}, "mmul": {}}}, "benchmarks", "unknown benchmark mmul. Did you mean mmlu?"),
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
        load_settings(Recipe, file)
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
        load_settings(Recipe, file)
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings(Recipe, tmp_path / "absent.yaml")


def test_a_recipe_overrides_its_base_and_inherits_the_rest(config: Path) -> None:
    write(config, "short", base="quickstart", name="short", grpo={"steps": 7}, benchmarks={"mmlu": {"test": 5}})
    write(config, "shorter", base="short", name="shorter", grpo={"micro_batch": 64}, evaluation={"baselines": ["x"]})
    write(config, "shortest", base="shorter", evaluation={"baselines": ["best_single"]}, grpo={"steps": 3})
    short, shortest = load_recipe(config, "short"), load_recipe(config, "shortest", seed=9)
    assert short.grpo == QUICK.grpo.model_copy(update={"steps": 7})
    assert short.benchmarks["mmlu"] == QUICK.benchmarks["mmlu"].model_copy(update={"test": 5})
    assert {**short.benchmarks, "mmlu": None} == {**QUICK.benchmarks, "mmlu": None}
    assert (shortest.name, shortest.seed) == ("shorter", 9)
    assert shortest.grpo == QUICK.grpo.model_copy(update={"steps": 3, "micro_batch": 64})
    assert shortest.evaluation.baselines == ("best_single",)


def test_null_removes_a_value_and_another_kind_of_policy_replaces_the_section(config: Path) -> None:
    write(
        config, "other", base="quickstart", name="other", cold_start=None, benchmarks={"aime25": None},
        policy={"kind": "pretrained", "model": "somewhere"}, grpo={"steps": None},
    )  # fmt: skip
    other = load_recipe(config, "other")
    assert other.cold_start is None
    assert list(other.benchmarks) == [name for name in QUICK.benchmarks if name != "aime25"]
    assert other.policy.model_dump(exclude_unset=True) == {"kind": "pretrained", "model": "somewhere"}
    assert other.grpo.steps == 200  # the default


def test_the_resolved_recipe_and_a_snapshot_stand_alone(config: Path, tmp_path: Path) -> None:
    write(config, "short", base="quickstart", name="short", grpo={"steps": 7})
    recipe = load_recipe(config, "short")
    values = yaml.safe_load(dump_settings(recipe))
    assert Recipe.model_validate(values) == recipe
    assert "base" not in values
    snapshot = Snapshot.capture(config, "short", None, "commit")
    snapshot.write(tmp_path / "snapshots")
    assert Snapshot.read(tmp_path / "snapshots", snapshot.key).recipe == recipe


@pytest.mark.parametrize(
    ("below", "above", "wrong", "field", "words"),
    [
        ({"steps": "many"}, {"micro_batch": 64}, "below", "grpo.steps", "integer"),
        ({}, {"micro_batches": 64}, "above", "grpo.micro_batches", "not a known key"),
        ({}, {"micro_batch": 7}, "above", "grpo", "not a multiple"),
    ],
)
def test_a_mistake_is_reported_with_its_file(
    config: Path, below: dict[str, Any], above: dict[str, Any], wrong: str, field: str, words: str
) -> None:
    write(config, "below", base="quickstart", name="below", grpo=below)
    write(config, "above", base="below", name="above", grpo=above)
    with pytest.raises(ConfigError, match=words) as caught:
        load_recipe(config, "above")
    assert caught.value.field == field
    assert str(config / "recipes" / f"{wrong}.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("b", r"is circular: a → b → c → a"),
        ("a", r"is circular: a → a"),
        ("nowhere", r"is not the name of a recipe .*The recipes are: a, b, c, quickstart"),
        (["b"], r"is not the name of a recipe"),
    ],
)
def test_an_invalid_base_is_one_clear_error(config: Path, base: Any, words: str) -> None:
    write(config, "a", base=base)
    write(config, "b", base="c")
    last = write(config, "c", base="a")
    with pytest.raises(ConfigError, match=words) as caught:
        load_recipe(config, "a")
    assert caught.value.field == "base"
    assert str(last if base == "b" else config / "recipes" / "a.yaml") in str(caught.value)


STATED: dict[str, Any] = {
    "benchmarks": {"math500": {"source": "hub"}, "mmlu": {"source": "embedded"}, "rlpr": None, "aime25": None,
                   "livecodebench": {"source": "hub"}, "gpqa_diamond": None, "bigcodebench": None},
    "curation": {"near_duplicate_jaccard": 0.8},
    "grading": {"isolation": "bubblewrap"},
}  # fmt: skip
"""What a recipe with real workers must change in the quickstart; one benchmark keeps generated problems."""


@pytest.mark.parametrize(
    ("left_out", "field", "remedy"),
    [
        (("benchmarks", "aime25"), "benchmarks.aime25.source", "source: hub"),
        (("benchmarks", "math500"), "benchmarks.math500.source", "state it in this recipe"),
        (("curation",), "curation.near_duplicate_jaccard", "Write 0.8"),
        (("grading",), "grading.isolation", "Write bubblewrap"),
    ],
)
def test_a_recipe_with_real_workers_inherits_nothing_that_only_the_synthetic_one_may_do(
    config: Path, left_out: tuple[str, ...], field: str, remedy: str
) -> None:
    said = copy.deepcopy(STATED)
    del (said[left_out[0]] if left_out[1:] else said)[left_out[-1]]
    file = write(config, "mine", base="quickstart", name="mine", pool="real", **said)
    with pytest.raises(ConfigError) as caught:
        load_recipe(config, "mine")
    assert (caught.value.field, str(file) in str(caught.value)) == (field, True)
    assert remedy in str(caught.value) and "quickstart.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_stated_or_synthetic_values_may_be_inherited(config: Path) -> None:
    write(config, "mine", base="quickstart", name="mine", pool="real", **STATED)
    write(config, "further", base="mine", name="further", grpo={"steps": 7})
    assert load_recipe(config, "further").benchmarks["mmlu"].source == "embedded", "stated with real workers"
    write(config, "synthetic", base="quickstart", name="synthetic", grpo={"steps": 7})
    assert load_recipe(config, "synthetic").grading.isolation == "resource_limits"
    own = {"curation": {"near_duplicate_jaccard": 1.0}, "grading": {"isolation": "resource_limits"}}
    write(config, "knowing", base="quickstart", name="knowing", pool="real", **(STATED | own))
    assert load_recipe(config, "knowing").grading.isolation == "resource_limits"


def test_a_default_of_a_synthetic_base_counts_as_inherited(config: Path) -> None:
    policy = {"policy": {"kind": "scratch"}, "cold_start": {}}
    write(config, "bare", name="bare", pool="quickstart", benchmarks={"mmlu": {}}, **policy)
    write(config, "mine", base="bare", name="mine", pool="real", benchmarks={"mmlu": {"train": 5}})
    with pytest.raises(ConfigError, match=r"benchmarks\.mmlu\.source"):
        load_recipe(config, "mine")


@pytest.mark.parametrize("name", sorted(file.stem for file in (CONFIG / "recipes").glob("*.yaml")))
def test_every_shipped_recipe_is_read(name: str) -> None:
    assert load_recipe(CONFIG, name).name == name


def test_the_paper_recipe_is_appendix_a1() -> None:
    recipe = load_recipe(CONFIG, "paper")
    grpo = recipe.grpo
    assert (grpo.steps, grpo.questions_per_step, grpo.rollouts_per_question) == (200, 4, 64)
    assert (grpo.temperature, grpo.max_completion_tokens, grpo.clip, grpo.kl) == (1.0, 1024, 0.2, 0.0)
    assert (grpo.learning_rate, grpo.schedule, grpo.warmup_ratio) == (1e-6, "cosine", 0.03)
    assert (grpo.adam_beta1, grpo.adam_beta2, grpo.processes) == (0.9, 0.999, 2)
    assert (recipe.curation.per_domain, recipe.prompting.max_steps) == (240, 5)
    text = describe_recipe(Setup(Workspace(CONFIG.parent), recipe, load_pool(CONFIG, recipe.pool)))
    assert "51,200 rollouts" in text and "960 training questions" in text and "zero3-offload.json" in text


def differences(one: Any, other: Any, path: str = "") -> dict[str, Any]:
    """Return path → value in `other` for every difference."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return {} if one == other else {path: other}
    found: dict[str, Any] = {}
    for name in one.keys() | other.keys():
        found |= differences(one.get(name), other.get(name), f"{path}.{name}".lstrip("."))
    return found


def between(base: str, name: str) -> dict[str, Any]:
    """Return the settings of a recipe that differ from those of `base`."""
    one, other = (load_recipe(CONFIG, recipe).model_dump() for recipe in (base, name))
    return {path: value for path, value in differences(one, other).items() if path not in ("name", "description")}


def test_the_authors_configuration_is_the_papers_but_for_what_they_released() -> None:
    assert between("paper", "paper-code") == {
        "seed": 42,
        "curation.selector": "uniform",
        "curation.shortlist_factor": 1.0,
        "prompting.shuffle_ordinals": False,
        "policy.model": "Qwen/Qwen2.5-7B-Instruct",
        "grpo.loss": "bnpo",
        "grpo.vllm_memory": 0.5,
        "grpo.vllm_sleep": True,
        "grpo.vllm_correction": "none",
        "grpo.checkpoint_every": 20,
        "evaluation.repeats": 3,
        "evaluation.questions": 2000,
        "evaluation.benchmarks.bigcodebench": {"repeats": 5, "questions": None, "target_error": None, "pool": None},
        "budget.run_usd": 2500.0,
    }


def test_the_scale_study_and_the_server_change_the_machine_alone() -> None:
    small = {"policy.model": "Qwen/Qwen2.5-3B", "grpo.deepspeed": "zero3.json", "grpo.keep_checkpoints": 2}
    assert between("paper", "paper-3b") == small
    server = {"grpo.vllm_mode": "server", "grpo.vllm_server_url": "http://127.0.0.1:8000"}
    assert between("paper", "paper-server") == server
    assert between("paper", "paper-async") == server | {"grpo.staleness": 1}


def test_the_unconstrained_evaluation_changes_only_its_own_workers() -> None:
    pools = between("paper", "paper-unconstrained")
    assert pools.pop("evaluation.benchmarks.bigcodebench")["pool"] == "paper:unconstrained-bigcodebench"
    assert pools == {"trained_as": "paper", "evaluation.pool": "paper:unconstrained", "budget.run_usd": 70000.0}


@pytest.mark.parametrize("name", ["paper-3b-1x80", "paper-2x80", "paper-8x80", "paper-8x141"])
def test_the_recipes_for_gpus_of_a_size_keep_the_papers_training_and_offload_nothing(name: str) -> None:
    engine = ("micro_batch", "processes", "deepspeed", "vllm_memory", "vllm_sleep", "vllm_tensor_parallel")
    paths = {path for path in between("paper", name) if path.split(".")[0] not in ("evaluation", "budget", "pool")}
    assert paths - {"policy.model"} <= {f"grpo.{field}" for field in engine}
    deepspeed = Snapshot.capture(CONFIG, name, None, "commit").deepspeed
    assert deepspeed is not None and "offload_optimizer" not in deepspeed["zero_optimization"]


def test_offload_moves_the_optimizer_and_nothing_else() -> None:
    plain, offloaded = (Snapshot.capture(CONFIG, name, None, "commit").deepspeed for name in ("paper-3b", "paper"))
    moved = {"zero_optimization.offload_optimizer": {"device": "cpu", "pin_memory": True}}
    assert differences(plain, offloaded) == moved


def keys(root: Path, name: str) -> tuple[str, str]:
    """Return the keys of a recipe's base policy and of its run."""
    snapshot = Snapshot.capture(CONFIG, name, None, "commit")
    setup = Setup(Workspace(root), snapshot.recipe, snapshot.pool)
    write_mix(setup.workspace, [])
    base = base_policy_folder(setup)
    return base.name, run_key(setup, base)


@pytest.mark.parametrize(
    ("name", "section"),
    [("paper-adaptive", "adaptive"), ("paper-recursive", "recursive"), ("paper-baselines", "evaluation")],
)
def test_a_further_stage_of_the_papers_finds_the_policy_that_it_goes_on_from(
    tmp_path: Path, name: str, section: str
) -> None:
    assert {path.split(".")[0] for path in between("paper-2x80", name)} - {"budget"} == {"trained_as", section}
    base, run = keys(tmp_path, "paper-2x80")
    assert keys(tmp_path, name) == (base, run)
    assert keys(tmp_path, "paper-8x80")[1] != run


def test_the_open_recipe_needs_no_key_of_a_provider_and_no_gated_benchmark() -> None:
    snapshot = Snapshot.capture(CONFIG, "open", None, "commit")
    assert "gpqa_diamond" not in snapshot.recipe.benchmarks
    assert all(worker.api_key_env is None and worker.api_base for worker in snapshot.pool.workers)
    sections = {path.split(".")[0] for path in between("paper", "open")}
    assert sections == {"pool", "benchmarks", "evaluation", "budget"}


@pytest.mark.parametrize("name", ON_GPUS)
def test_pool_deepspeed_file_and_room_for_a_prompt_are_there(name: str) -> None:
    snapshot = Snapshot.capture(CONFIG, name, None, "commit")
    grpo = snapshot.recipe.grpo
    assert snapshot.deepspeed is not None and grpo.vllm
    assert grpo.vllm_max_model_length == 8192 + grpo.max_completion_tokens
    assert Recipe.model_validate_json(snapshot.recipe.model_dump_json()) == snapshot.recipe


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("reproduction", {"evaluation.baselines"}, id="every baseline"),
        pytest.param("many-questions", {f"benchmarks.{name}.test" for name in QUICK.benchmarks}, id="more questions"),
    ],
)
def test_a_larger_evaluation_finds_the_quickstarts_policies(name: str, changes: set[str]) -> None:
    assert load_recipe(CONFIG, name).policy_name == "quickstart"
    assert set(between("quickstart", name)) == {"trained_as", "budget.run_usd", *changes}


def test_many_questions_asks_four_times_the_quickstarts_questions() -> None:
    many = load_recipe(CONFIG, "many-questions").benchmarks
    assert {name: source.test for name, source in many.items()} == {
        name: 4 * source.test for name, source in QUICK.benchmarks.items()
    }


KNOWN = load_studies(CONFIG).studies
CHANGES = [(name, each) for name, study in KNOWN.items() if isinstance(study, Changes) for each in study.changes]


@pytest.mark.parametrize(("study", "name"), CHANGES)
def test_a_change_leaves_another_recipe_that_asks_for_as_many_rollouts(study: str, name: str) -> None:
    entry = KNOWN[study]
    assert isinstance(entry, Changes)
    before = load_recipe(CONFIG, entry.recipe)
    after = apply_change(before, entry.changes[name], CONFIG / STUDIES)
    assert after != before
    assert after.grpo.steps * after.grpo.rollouts_per_step == before.grpo.steps * before.grpo.rollouts_per_step


def test_no_study_of_the_file_has_the_name_of_one_of_the_code() -> None:
    assert not {*KNOWN} & {*entry_names("ops.evaluation.studies")}
    assert {study.recipe for study in KNOWN.values()} <= {file.stem for file in (CONFIG / "recipes").glob("*.yaml")}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompting": {"subtask": False}}, "prompting.subtask"),
        ({"prompting": {"access": "fine"}}, "prompting.access"),
        ({"policy": {"hidden": 8}}, "policy.scratch.hidden"),
        ({"grpo": {"stepz": 3}}, "grpo.stepz"),
    ],
)
def test_a_change_that_leaves_no_recipe_names_file_and_field(change: Change, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_change(QUICK, change, CONFIG / STUDIES)
    assert (caught.value.field, Path(str(caught.value).partition(":")[0]).name) == (field, STUDIES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("studies: {a b: {kind: rounds, title: t, recipe: recursive}}", r"studies\.a b"),
        ("studies: {a: {kind: round, title: t, recipe: recursive}}", r"studies\.a\.kind.*Did you mean rounds\?"),
        ("studies: {a: {kind: changes, title: t, recipe: quickstart, seeds: []}}", r"studies\.a\.changes\.seeds"),
        ("studies: {a: {kind: changes, title: t, recipe: r, baselines: [best]}}", r"baselines.*unknown baseline best"),
        ("studies: {a: {kind: changes, title: t, recipe: r, claimed: [b]}}", r"claimed: 'b' is none of the changes"),
        ("studies: {a: {kind: changes, title: t, recipe: r, changes: {as it is: {}}}}", r"'as it is' names the unch"),
    ],
)
def test_a_study_that_cannot_be_names_its_field(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / STUDIES).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        load_studies(tmp_path)
