"""YAML files to settings, with errors that name the file, the field and the remedy."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from ops.config.alerts import Alerts
from ops.config.base import Settings
from ops.config.bases import Layer, base_of, merged, said_in
from ops.config.pool import Pool
from ops.config.promotion import PromotionGate
from ops.config.recipe import Recipe
from ops.config.retraining import Retraining
from ops.config.revisions import Revisions
from ops.config.secret import KEY_SHAPE, names_a_key
from ops.config.variants import PoolFile
from ops.core.errors import ConfigError

S = TypeVar("S", bound=Settings)


def load(model: type[S], file: Path) -> S:
    """Read one YAML file into `model`. Raises `ConfigError` naming file, field and remedy."""
    values = _read(model, file)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise mistake(file, model, error) from None


def _read(model: type[Settings], file: Path) -> dict[str, Any]:
    """What a file says, for `model`. Raises `ConfigError`."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        known = ", ".join(sorted(path.stem for path in file.parent.glob("*.yaml"))) or "none"
        raise ConfigError(file, "(file)", "does not exist", f"Files there: {known}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(file, "(file)", f"is not UTF-8 ({error.reason})", "Save it as UTF-8") from None
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f"line {where.line + 1}" if where else "(file)"
        raise ConfigError(file, line, "is not valid YAML", str(getattr(error, "problem", error))) from None
    if not isinstance(values, dict):
        raise ConfigError(file, "(file)", "is not a mapping", f"Write the fields of {model.__name__}")
    if KEY_SHAPE.search(text):
        raise ConfigError(
            file,
            "(file)",
            "seems to hold an API key",
            "Put it in the environment and name the variable in api_key_env",
        )
    return values


def mistake(file: Path, model: type[Settings], error: ValidationError) -> ConfigError:
    """What is wrong with a file's values: field, problem and remedy of the first of its errors."""
    first, more = error.errors()[0], error.error_count() - 1
    field = ".".join(str(part) for part in first["loc"]) or "(file)"
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        problem, remedy = (
            "is not a known key",
            f"Remove it or mend its spelling (see {model.__name__} in ops/config)",
        )
    elif first["type"] == "missing":
        problem, remedy = "is missing", "Add it"
    elif any(names_a_key(str(part)) or str(part).endswith("_env") for part in first["loc"]) or "key" in problem:
        remedy = "Write the variable's name there, and the key itself nowhere but in the environment"
    else:
        remedy = f"Found {first['input']!r:.120}"
    return ConfigError(file, field, problem, remedy + (f" (and {more} more)" if more else ""))


def pool_file(config: Path, name: str) -> Path:
    """The file of a pool "NAME" or of its variant "NAME:VARIANT"."""
    return config / "pools" / f"{name.partition(':')[0]}.yaml"


def load_pool(config: Path, name: str) -> Pool:
    """The pool "NAME" as `config/pools/NAME.yaml` has it, or its variant "NAME:VARIANT"; of a model that drifted, the
    revision that `config/revisions.yaml` notes. Raises `ConfigError`."""
    file = pool_file(config, name)
    pool_of_file = load(PoolFile, file)
    variant = name.partition(":")[2]
    if variant and variant not in pool_of_file.variants:
        known = ", ".join(sorted(pool_of_file.variants)) or "none"
        raise ConfigError(file, f"variants.{variant}", "does not exist", f"Variants there: {known}")
    return Revisions.read(config).of(pool_of_file.resolve(variant))


def load_recipe(config: Path, name: str, seed: int | None = None) -> Recipe:
    """`config/recipes/NAME.yaml` over the recipe that its `base` names, if it has one; with another seed where one is
    given. Raises `ConfigError`, which names the file of the chain that is wrong."""
    layers: list[Layer] = []
    file: Path | None = config / "recipes" / f"{name}.yaml"
    while file is not None:
        layer = Layer(file, _read(Recipe, file))
        file = base_of(layer, layers)
        layers.append(layer)
    values = reduce(merged, (layer.values for layer in reversed(layers)))
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        raise mistake(said_in(layers, error.errors()[0]["loc"]), Recipe, error) from None
    return recipe if seed is None else recipe.model_copy(update={"seed": seed})


def load_evaluation_pools(config: Path, recipe: Recipe, pool: Pool) -> dict[str, Pool]:
    """Name → pool, of those that the recipe's evaluation names. Raises `ConfigError`, also for one whose workers have
    other names than `pool`'s: a Conductor knows its workers by name."""
    pools = {name: load_pool(config, name) for name in recipe.evaluation.pools}
    for name, other in pools.items():
        if differing := sorted(set(other.names) ^ set(pool.names)):
            problem = f"{name} has not the workers of {recipe.pool}: {', '.join(differing)}"
            remedy = f"Name {recipe.pool}, a variant of it, or a pool with workers of the same names"
            raise ConfigError(f"recipe {recipe.name!r}", "evaluation.pool", problem, remedy)
    return pools


def load_gate(config: Path) -> PromotionGate:
    """`config/promotion.yaml`. Raises `ConfigError`."""
    return load(PromotionGate, config / "promotion.yaml")


def load_alerts(config: Path) -> Alerts:
    """`config/alerts.yaml`; where there is none, nobody but the log is told. Raises `ConfigError`."""
    file = config / "alerts.yaml"
    return load(Alerts, file) if file.exists() else Alerts()


def load_retraining(config: Path) -> Retraining:
    """`config/retraining.yaml`, or the defaults where a workspace has none. Raises `ConfigError`."""
    file = config / "retraining.yaml"
    return load(Retraining, file) if file.is_file() else Retraining()


def load_deepspeed(config: Path, recipe: Recipe) -> dict[str, Any] | None:
    """What the recipe's DeepSpeed file says; `None`: it names none. Raises `ConfigError`."""
    name = recipe.grpo.deepspeed
    if name is None:
        return None
    file = config / "deepspeed" / name
    try:
        settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = ", ".join(sorted(path.name for path in file.parent.glob("*.json"))) or "none"
        raise ConfigError(file, "(file)", "does not exist", f"Files there: {known}") from None
    except ValueError as error:
        raise ConfigError(file, "(file)", f"is not JSON ({error})", "Mend it") from None
    return settings


def resolved(settings: Settings) -> str:
    """The resolved settings as YAML, defaults written out: what lies beside a run."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
