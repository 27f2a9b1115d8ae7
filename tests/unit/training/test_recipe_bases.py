"""A recipe with a base states only the differences; an error names the file that contains it."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.config import Recipe, Snapshot, load_recipe, resolved
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace

CONFIG = Workspace.find().config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "recipes").mkdir()
    for folder in ("pools", "deepspeed"):
        (tmp_path / folder).symlink_to(CONFIG / folder)
    (tmp_path / "promotion.yaml").symlink_to(CONFIG / "promotion.yaml")
    (tmp_path / "recipes" / "quickstart.yaml").symlink_to(CONFIG / "recipes" / "quickstart.yaml")
    return tmp_path


def write(config: Path, stem: str, **values: Any) -> Path:
    file = config / "recipes" / f"{stem}.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return file


def test_a_recipe_overrides_its_base_and_inherits_the_rest(config: Path) -> None:
    quick = load_recipe(config, "quickstart")
    write(config, "short", base="quickstart", name="short", grpo={"steps": 7}, benchmarks={"mmlu": {"test": 5}})
    write(config, "shorter", base="short", name="shorter", grpo={"micro_batch": 64}, evaluation={"baselines": ["x"]})
    write(config, "shortest", base="shorter", evaluation={"baselines": ["best_single"]}, grpo={"steps": 3})
    short, shortest = load_recipe(config, "short"), load_recipe(config, "shortest", seed=9)
    assert short.grpo == quick.grpo.model_copy(update={"steps": 7})
    assert short.benchmarks["mmlu"] == quick.benchmarks["mmlu"].model_copy(update={"test": 5})
    assert {**short.benchmarks, "mmlu": None} == {**quick.benchmarks, "mmlu": None}
    assert (shortest.name, shortest.seed) == ("shorter", 9)
    assert shortest.grpo == quick.grpo.model_copy(update={"steps": 3, "micro_batch": 64})
    assert shortest.evaluation.baselines == ("best_single",)


def test_null_removes_a_value_and_another_kind_of_policy_replaces_the_section(config: Path) -> None:
    write(
        config, "other", base="quickstart", name="other", cold_start=None, benchmarks={"aime25": None},
        policy={"kind": "pretrained", "model": "somewhere"}, grpo={"steps": None},
    )  # fmt: skip
    other, quick = load_recipe(config, "other"), load_recipe(config, "quickstart")
    assert other.cold_start is None
    assert list(other.benchmarks) == [name for name in quick.benchmarks if name != "aime25"]
    assert other.policy.model_dump(exclude_unset=True) == {"kind": "pretrained", "model": "somewhere"}
    assert other.grpo.steps == 200  # the default


def test_the_resolved_recipe_and_a_snapshot_stand_alone(config: Path, tmp_path: Path) -> None:
    write(config, "short", base="quickstart", name="short", grpo={"steps": 7})
    recipe = load_recipe(config, "short")
    text = resolved(recipe)
    assert Recipe.model_validate(yaml.safe_load(text)) == recipe
    assert "base" not in yaml.safe_load(text)
    snapshot = Snapshot.take(config, "short", None, "commit")
    snapshot.write(tmp_path / "snapshots")
    assert Snapshot.read(tmp_path / "snapshots", snapshot.key).recipe == recipe


def test_a_mistake_is_reported_with_its_file(config: Path) -> None:
    below = write(config, "below", base="quickstart", name="below", grpo={"steps": "many"})
    above = write(config, "above", base="below", name="above", grpo={"micro_batch": 64})
    with pytest.raises(ConfigError) as caught:
        load_recipe(config, "above")
    assert (caught.value.field, str(below) in str(caught.value)) == ("grpo.steps", True)
    write(config, "below", base="quickstart", name="below")
    write(config, "above", base="below", name="above", grpo={"micro_batches": 64})
    with pytest.raises(ConfigError) as caught:
        load_recipe(config, "above")
    assert (caught.value.field, str(above) in str(caught.value)) == ("grpo.micro_batches", True)
    write(config, "above", base="below", name="above", grpo={"micro_batch": 7})
    with pytest.raises(ConfigError, match="not a multiple") as caught:
        load_recipe(config, "above")
    assert (caught.value.field, str(above) in str(caught.value)) == ("grpo", True)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("b", r"is circular: a → b → c → a"),
        ("a", r"is circular: a → a"),
        ("nowhere", r"is not the name of a recipe .*Recipes there: a, b, c, quickstart"),
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


REAL = {"name": "real", "workers": [{"name": "w", "model": "openai/w", "price": {"input": 1, "output": 1}}]}
STATED: dict[str, Any] = {
    "benchmarks": {"math500": {"source": "hub"}, "mmlu": {"source": "embedded"}, "rlpr": None, "aime25": None,
                   "livecodebench": {"source": "hub"}, "gpqa_diamond": None, "bigcodebench": None},
    "curation": {"near_duplicate_jaccard": 0.8},
    "grading": {"isolation": "bubblewrap"},
}  # fmt: skip
"""The settings that a recipe with real workers must change in the
quickstart; it keeps generated problems of one benchmark.
"""


@pytest.fixture
def real(config: Path) -> Path:
    (config / "pools").unlink()
    shutil.copytree(CONFIG / "pools", config / "pools")
    (config / "pools" / "real.yaml").write_text(yaml.safe_dump(REAL), encoding="utf-8")
    return config


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
    real: Path, left_out: tuple[str, ...], field: str, remedy: str
) -> None:
    said = copy.deepcopy(STATED)
    del (said[left_out[0]] if left_out[1:] else said)[left_out[-1]]
    file = write(real, "mine", base="quickstart", name="mine", pool="real", **said)
    with pytest.raises(ConfigError) as caught:
        load_recipe(real, "mine")
    assert (caught.value.field, str(file) in str(caught.value)) == (field, True)
    assert remedy in str(caught.value) and "quickstart.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_stated_or_synthetic_values_may_be_inherited(real: Path) -> None:
    write(real, "mine", base="quickstart", name="mine", pool="real", **STATED)
    write(real, "further", base="mine", name="further", grpo={"steps": 7})
    assert load_recipe(real, "further").benchmarks["mmlu"].source == "embedded", "stated by a recipe with real workers"
    write(real, "synthetic", base="quickstart", name="synthetic", grpo={"steps": 7})
    assert load_recipe(real, "synthetic").grading.isolation == "resource_limits"
    own = {"curation": {"near_duplicate_jaccard": 1.0}, "grading": {"isolation": "resource_limits"}}
    write(real, "knowing", base="quickstart", name="knowing", pool="real", **(STATED | own))
    assert load_recipe(real, "knowing").grading.isolation == "resource_limits"


def test_a_default_of_a_synthetic_base_counts_as_inherited(real: Path) -> None:
    policy = {"policy": {"kind": "scratch"}, "cold_start": {}}
    write(real, "bare", name="bare", pool="quickstart", benchmarks={"mmlu": {}}, **policy)
    write(real, "mine", base="bare", name="mine", pool="real", benchmarks={"mmlu": {"train": 5}})
    with pytest.raises(ConfigError, match=r"benchmarks\.mmlu\.source"):
        load_recipe(real, "mine")


def test_every_shipped_recipe_is_read() -> None:
    for file in (CONFIG / "recipes").glob("*.yaml"):
        assert load_recipe(CONFIG, file.stem).name == file.stem
