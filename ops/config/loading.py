"""YAML files to settings, with errors that name the file, the field and the remedy.

A recipe's file states what differs from its `base`. A value that is safe in the synthetic environment alone is not
inherited: a recipe for real workers has to state it itself.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ops.config.alerts import Alerts
from ops.config.base import KEY_SHAPE, NAME, Settings, has_hub_token, is_key_name, is_refused_by_hub
from ops.config.graders import FunctionGrader, JudgeGrader
from ops.config.operations import PromotionGate, Retraining, Serving
from ops.config.pool import Pool, PoolFile, Revisions, Worker, revised_model_name
from ops.config.recipe import BenchmarkSource, Recipe
from ops.config.training import ColdStart, Policy, PromptedPolicy, StaticPolicy
from ops.core.cpython import parse
from ops.core.errors import ConfigError, find_similar_name, suggest_name
from ops.core.registry import hub_dataset
from ops.core.settings_files import find_line, parse_yaml, read_json, read_settings_text

BASE_FIELD = "base"
"""The field that names the other recipe."""
_AT = "@"


def with_pool(recipe: str, pool: str | None) -> str:
    """Return the name "RECIPE@POOL" of a recipe with another pool than its own; without a pool, the recipe's name."""
    return f"{split_pool(recipe)[0]}{_AT}{pool}" if pool else recipe


def split_pool(name: str) -> tuple[str, str]:
    """Return the recipe and the pool of "RECIPE@POOL"; the pool is "" if the name has none."""
    recipe, _, pool = name.partition(_AT)
    return recipe, pool


class RecipeLayer(NamedTuple):
    """The contents of one file."""

    file: Path
    values: dict[str, Any]


def take_base(layer: RecipeLayer, above: list[RecipeLayer]) -> Path | None:
    """Remove the `base` field from the layer's values and return the file that it names; None without a base.

    `above`: the layers that lead here. Raises `ConfigError` for a base that is not a recipe, and for a circle of bases.
    """
    name = layer.values.pop(BASE_FIELD, None)
    if name is None:
        return None
    if not isinstance(name, str) or not re.fullmatch(NAME, name) or not layer.file.with_name(f"{name}.yaml").exists():
        known = sorted(path.stem for path in layer.file.parent.glob("*.yaml"))
        raise ConfigError(
            layer.file, BASE_FIELD, f"is not the name of a recipe ({name!r:.60})",
            suggest_name(str(name), known, "recipes", "podium recipes list"), find_line_in_file(layer.file, BASE_FIELD),
        )  # fmt: skip
    file = layer.file.with_name(f"{name}.yaml")
    chain = [*(each.file for each in above), layer.file]
    if file in chain:
        circle = " → ".join(path.stem for path in (*chain[chain.index(file) :], file))
        raise ConfigError(layer.file, BASE_FIELD, f"is circular: {circle}", "Give one of them another base, or none")
    return file


def merge_settings(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return `below` overridden by `above`: mappings are merged, other values are replaced, and null removes a key.

    A mapping of another `kind` has other fields, so it replaces the one below.
    """
    values = dict(below)
    for name, value in above.items():
        under = below.get(name)
        if value is None:
            values.pop(name, None)
        elif isinstance(value, dict) and isinstance(under, dict) and _has_same_kind(under, value):
            values[name] = merge_settings(under, value)
        else:
            values[name] = value
    return values


def _has_same_kind(below: dict[str, Any], above: dict[str, Any]) -> bool:
    return "kind" not in above or above["kind"] == below.get("kind")


def find_stating_file(layers: list[RecipeLayer], place: tuple[str | int, ...]) -> Path:
    """Return the topmost file of `layers` that has the value at `place`, or else the longest part of its path."""
    return max(layers, key=lambda layer: _depth(layer.values, place)).file


def _depth(values: Any, place: tuple[str | int, ...]) -> int:
    for depth, name in enumerate(place):
        if not isinstance(values, dict) or name not in values:
            return depth
        values = values[name]
    return len(place)


SYNTHETIC_PREFIX = "local/"
"""Prefix of the model names of embedded workers."""


class UnsafeValue(NamedTuple):
    """A value that a recipe inherits from its base, and its remedy."""

    field: str
    value: str
    remedy: str


def check_inherited(layers: Sequence[RecipeLayer], values: dict[str, Any], synthetic: Callable[[str], bool]) -> None:
    """Raise `ConfigError` for the first value of `values` that is only safe in the synthetic environment and that a
    recipe with real workers inherits from a synthetic base.

    `layers`: the recipe's file first, then its bases; `values`: all of them merged. `synthetic` returns whether every
    worker of a pool is embedded. A value that is stated by a layer with real workers may be inherited.
    """
    for unsafe, place in _find_unsafe_values(values):
        stated = _find_stating_layer(layers, place)
        if stated and not synthetic(_find_pool(layers)) and synthetic(_find_pool(layers[stated:])):
            problem = (
                f"is {unsafe.value}, taken from {layers[stated].file.name}: that is safe with embedded workers and "
                f"generated problems alone, and pool {_find_pool(layers)!r} has other workers"
            )
            raise ConfigError(layers[0].file, unsafe.field, problem, unsafe.remedy)


def _find_unsafe_values(values: dict[str, Any]) -> Iterator[tuple[UnsafeValue, tuple[str, ...]]]:
    keep = "to keep it, state it in this recipe"
    for name, source in _mapping(values, "benchmarks").items():
        if isinstance(source, dict) and source.get("source", "embedded") == "embedded":
            remedy = f"Name real rows there (source: hub, or file), leave the benchmark out (null), or, {keep}"
            yield UnsafeValue(f"benchmarks.{name}.source", "embedded", remedy), ("benchmarks", name, "source")
    if _mapping(values, "curation").get("near_duplicate_jaccard") == 1:
        remedy = f"Write 0.8, which removes near duplicates of evaluation questions; or, {keep}"
        yield UnsafeValue("curation.near_duplicate_jaccard", "1.0", remedy), ("curation", "near_duplicate_jaccard")
    if _mapping(values, "grading").get("isolation") == "resource_limits":
        remedy = f"Write bubblewrap, which keeps programs of language models away from this machine; or, {keep}"
        yield UnsafeValue("grading.isolation", "resource_limits", remedy), ("grading", "isolation")


def _mapping(values: dict[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    return found if isinstance(found, dict) else {}


def _find_stating_layer(layers: Sequence[RecipeLayer], place: tuple[str, ...]) -> int:
    """Return the topmost layer that has the value at `place`; for a default, the lowest layer that has the section
    around it."""
    if found := [number for number, layer in enumerate(layers) if _has_value(layer.values, place)]:
        return found[0]
    return max((number for number, layer in enumerate(layers) if _has_value(layer.values, place[:-1])), default=0)


def _has_value(values: Any, place: tuple[str, ...]) -> bool:
    for name in place:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _find_pool(layers: Sequence[RecipeLayer]) -> str:
    return next((str(layer.values["pool"]) for layer in layers if "pool" in layer.values), "")


S = TypeVar("S", bound=Settings)


def load_settings(model: type[S], file: Path) -> S:
    """Read one YAML file into `model`. Raises `ConfigError` naming file, field and remedy."""
    values = _read(model, file)
    try:
        return model.from_file_values(values)
    except ValidationError as error:
        raise validation_error(file, model, error) from None


def find_line_in_file(file: Path, *place: str | int) -> int | None:
    """Return the line of a setting in a YAML file, or of the nearest section around it (`find_line`); None if the file
    cannot be read or has neither."""
    try:
        return find_line(read_settings_text(file), file, place)
    except (ConfigError, OSError, yaml.YAMLError):
        return None


def load_or_default(model: type[S], file: Path) -> S:
    """Load a file like `load_settings`, or return the defaults if there is none. Anything else in its place is an
    error."""
    return load_settings(model, file) if os.path.lexists(file) else model()


def find_named_file(folder: Path, name: str) -> Path:
    """Return the file `NAME.yaml` of a folder. Raises `ConfigError` for an invalid name: a path, an empty or too long
    one."""
    if not re.fullmatch(NAME, name):
        problem = f"{name!r:.60} is not the name of a file there"
        raise ConfigError(folder, "", problem, _suggest_file(folder, name, ".yaml"))
    return folder / f"{name}.yaml"


def _read(model: type[Settings], file: Path) -> dict[str, Any]:
    """Return the contents of a file for `model`. Raises `ConfigError`."""
    try:
        text = read_settings_text(file)
    except FileNotFoundError:
        raise _missing_file_error(file) from None
    values = parse_yaml(text, file)
    if not isinstance(values, dict):
        raise ConfigError(file, "", "is not a mapping", f"Write the fields of {model.__name__}")
    if KEY_SHAPE.search(text):
        raise ConfigError(
            file,
            "",
            "seems to hold an API key",
            "Put it in the environment and name the variable in api_key_env",
        )
    return values


def _missing_file_error(file: Path) -> ConfigError:
    name = file.name.removesuffix(".yaml")
    return ConfigError(file, "", "does not exist", _suggest_file(file.parent, name, file.suffix))


def _suggest_file(folder: Path, name: str, suffix: str) -> str:
    """Return the remedy for the name of a file that a folder does not have."""
    known = sorted(path.name.removesuffix(".yaml") for path in folder.glob(f"*{suffix}"))
    listed = folder.name in ("recipes", "pools")
    what, listing = (folder.name, f"podium {folder.name} list") if listed else ("files there", "")
    return suggest_name(name, known, what, listing)


REFERENCE = "docs/reference/configuration.md"
REFERENCE_SECTIONS = {
    "Recipe": "configrecipesnameyaml",
    "PoolFile": "configpoolsnameyaml",
    "PromotionGate": "configpromotionyaml",
    "Serving": "configservingyaml",
    "Retraining": "configretrainingyaml",
    "Alerts": "configalertsyaml",
    "Studies": "configstudiesyaml",
}
"""The model of a file → its section of `REFERENCE`. The section of a model within one has the model's name."""
_LISTED_KEYS = 12
"""The largest number of keys of a section that an error lists; the reference lists all."""


def describe_known_keys(model: type[Settings], place: Sequence[str | int]) -> str:
    """Return the remedy for an unknown key at `place`: the most similar known key, or else all that may stand there,
    and the section of the reference that describes them."""
    found = find_models_at(model, place[:-1])
    known = sorted({name for each in found for name in each.model_fields})
    section = REFERENCE_SECTIONS.get(found[0].__name__, found[0].__name__.lower())
    page = f" (see {REFERENCE}#{section})" if model.__name__ in REFERENCE_SECTIONS else ""
    if similar := find_similar_name(str(place[-1]), known):
        return f"Did you mean {similar}?{page}"
    listed = f", or use one of {', '.join(known)}" if len(known) <= _LISTED_KEYS or not page else ""
    return f"Remove it{listed}{page}"


def find_models_at(model: type[Settings], place: Sequence[str | int]) -> list[type[Settings]]:
    """Return the models that may describe the section at `place` of a file of `model`.

    Parts of `place` that name no field are the keys of a mapping, the numbers of a list, or the tags of a choice.
    """
    found = [model]
    for part in place:
        if inner := [each.model_fields[part].annotation for each in found if part in each.model_fields]:
            found = list(dict.fromkeys(below for annotation in inner for below in _iterate_models(annotation))) or found
        elif chosen := [each for each in found if _has_tag(each, part)]:
            found = chosen
    return found


def _iterate_models(annotation: Any) -> Iterator[type[Settings]]:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    for inner in get_args(annotation):
        yield from _iterate_models(inner)


def _has_tag(model: type[Settings], tag: str | int) -> bool:
    """Return whether a model is the one that a choice between models marks with `tag`."""
    return "kind" in model.model_fields and tag in get_args(model.model_fields["kind"].annotation)


def validation_error(file: Path, model: type[Settings], error: ValidationError) -> ConfigError:
    """Return the first of pydantic's errors in a file's values as one line with file, field and remedy."""
    first, more = select_error(error), error.error_count() - 1
    place = first["loc"]
    problem = clean_validation_message(first)
    if first["type"] == "union_tag_invalid":
        place = (*place, "kind")
        problem = f"should be one of {first['ctx']['expected_tags']}"
    field = ".".join(str(part) for part in place)
    if first["type"] == "extra_forbidden":
        problem = "is not a known key"
        remedy = describe_known_keys(model, first["loc"])
    elif first["type"] == "missing":
        problem, remedy = "is missing", "Add it"
    elif any(is_key_name(str(part)) or str(part).endswith("_env") for part in first["loc"]) or "key" in problem:
        remedy = "Write the variable's name here, and put the key itself only into the environment"
    else:
        remedy = suggest_correction(first["input"], first.get("ctx"))
    mistakes = f". The file has {more} more mistake{'s' * (more > 1)}" if more else ""
    return ConfigError(file, field, problem, remedy + mistakes, find_line_in_file(file, *place))


def select_error(error: ValidationError) -> ErrorDetails:
    """Return the error to report first: an unknown key before the others, because a misspelt key is also missing."""
    return min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")


def clean_validation_message(error: ErrorDetails) -> str:
    """Return the message of one of pydantic's errors without its fixed openings."""
    return error["msg"].removeprefix("Value error, ").replace("Input should", "should", 1)


def suggest_correction(value: object, context: Mapping[str, Any] | None = None) -> str:
    """Return the remedy for a wrong value; a mapping or a list is not quoted, since it can be a whole file, nor a URL,
    since it can hold a secret. `context` is the `ctx` of pydantic's error, which lists the values of a choice."""
    expected = re.findall(r"'([^']*)'", str((context or {}).get("expected", (context or {}).get("expected_tags", ""))))
    written = str((context or {}).get("tag", value))
    if expected and (similar := find_similar_name(written, expected)):
        return f"Did you mean {similar}?"
    if isinstance(value, Mapping | list | tuple) or "://" in str(value):
        return "Correct it (fields and limits: docs/reference/configuration.md)"
    return f"Correct the value {value!r:.80}"


def pool_file(config: Path, name: str) -> Path:
    """Return the file of a pool "NAME" or of its variant "NAME:VARIANT". Raises `ConfigError` for an invalid name."""
    return find_named_file(config / "pools", name.partition(":")[0])


def load_pool(config: Path, name: str) -> Pool:
    """Load the pool "NAME" of `config/pools/NAME.yaml`, or its variant "NAME:VARIANT", with the revisions that
    `config/revisions.yaml` notes for drifted models.

    Raises `ConfigError`.
    """
    file = pool_file(config, name)
    pool_of_file = load_settings(PoolFile, file)
    variant = name.partition(":")[2]
    if variant and variant not in pool_of_file.variants:
        remedy = suggest_name(variant, sorted(pool_of_file.variants), "variants there")
        raise ConfigError(file, f"variants.{variant}", "does not exist", remedy)
    return Revisions.read(config).apply_to(pool_of_file.resolve(variant))


def load_recipe(config: Path, name: str, seed: int | None = None) -> Recipe:
    """Load `config/recipes/NAME.yaml` over the recipe that its `base` names, if any, optionally with another seed.

    "NAME@POOL" is the recipe with that pool in place of its own.

    Raises `ConfigError`, which names the wrong file of the chain, also if a recipe with real workers inherits a value
    that is only safe in the synthetic environment (`check_inherited`).
    """
    layers: list[RecipeLayer] = []
    name, pool = split_pool(name)
    file: Path | None = find_named_file(config / "recipes", name)
    while file is not None:
        layer = RecipeLayer(file, _read(Recipe, file))
        file = take_base(layer, layers)
        layers.append(layer)
    if pool:
        layers.insert(0, RecipeLayer(pool_file(config, pool), {"pool": pool}))
    values = reduce(merge_settings, (layer.values for layer in reversed(layers)))
    if seed is not None:
        values["seed"] = seed
    try:
        recipe = Recipe.from_file_values(values)
    except ValidationError as error:
        raise validation_error(find_stating_file(layers, select_error(error)["loc"]), Recipe, error) from None
    check_inherited(layers, values, lambda pool: _is_synthetic(config, pool))
    return recipe


def _is_synthetic(config: Path, pool: str) -> bool:
    return all(worker.model.startswith(SYNTHETIC_PREFIX) for worker in load_pool(config, pool).workers)


class Omission(NamedTuple):
    """A benchmark or a worker that a recipe goes without, why, and what to do about it."""

    what: str
    why: str
    remedy: str
    agreed: bool = True
    """False: the recipe does not say that it may go without it, so that a run is refused."""


class ResolvedRecipe(NamedTuple):
    """A recipe with the benchmarks that can be had and a named writer, its pools, and what was left out."""

    recipe: Recipe
    pool: Pool
    evaluation_pools: dict[str, Pool]
    left_out: tuple[Omission, ...]


def resolve_recipe(config: Path, name: str, seed: int | None = None) -> ResolvedRecipe:
    """Load a recipe like `load_recipe`, and its pools, without what its `optional` and `max_output_price` leave out.

    Raises `ConfigError`, also where no benchmark or no worker is left.
    """
    recipe = load_recipe(config, name, seed)
    pool = load_pool(config, recipe.pool)
    gated = _find_gated_benchmarks(recipe)
    costly = tuple(worker.name for worker in pool.workers if _costs_more(worker, recipe.max_output_price))
    left_out = (
        *(Omission(name, f"is gated, {why}, and the recipe goes without it", _TOKEN) for name, why in gated.items()),
        *(_omit_costly_worker(recipe, name) for name in costly),
    )
    if len(costly) == len(pool.workers):
        problem = f"is below the price of every worker of pool {pool.name!r}"
        raise ConfigError(f"recipe {recipe.name!r}", "max_output_price", problem, "Raise it, or take a cheaper pool")
    left = tuple(worker for worker in pool.workers if worker.name not in costly)
    kept = {name: source for name, source in recipe.benchmarks.items() if name not in gated}
    evaluation_pools = load_evaluation_pools(config, recipe, pool.model_copy(update={"workers": left}))
    scored = [*left, *(worker for each in evaluation_pools.values() for worker in each.workers)]
    benchmarks = {name: resolve_grader(config, recipe, name, source, scored) for name, source in kept.items()}
    recipe = recipe.model_copy(
        update={
            "benchmarks": benchmarks,
            "policy": _name_writer(recipe.policy, left),
            "cold_start": _name_teacher(recipe.cold_start, left),
        }
    )
    pool = pool.model_copy(update={"workers": left})
    check_against_pool(recipe, pool)
    return ResolvedRecipe(recipe, pool, evaluation_pools, left_out)


def _omit_costly_worker(recipe: Recipe, worker: str) -> Omission:
    why = f"costs more than {recipe.max_output_price:g} USD per million output tokens, and is not asked"
    if worker in recipe.without:
        return Omission(worker, why, "Set max_output_price higher in a recipe over this one, and its budget")
    names = ", ".join([*recipe.without, worker])
    remedy = (
        f"If the comparison may go without it, write `without: [{names}]` into the recipe or into one over it (`base: "
        f"{recipe.name}`); otherwise set max_output_price higher there, and the budget"
    )
    return Omission(worker, why, remedy, agreed=False)


def _find_gated_benchmarks(recipe: Recipe) -> dict[str, str]:
    """Return optional benchmark → why the hub does not provide it here."""
    optional = [name for name, source in recipe.benchmarks.items() if source.optional]
    if not optional or not has_hub_token():
        return dict.fromkeys(optional, "there is no HF_TOKEN")
    return {
        name: "the account of the hub's token has not accepted its terms"
        for name in optional
        if is_refused_by_hub(hub_dataset(name))
    }


_TOKEN = "To ask it, accept its terms on its page on the hub and set HF_TOKEN"


def resolve_grader(
    config: Path, recipe: Recipe, name: str, source: BenchmarkSource, scored: Sequence[Worker]
) -> BenchmarkSource:
    """Return the benchmark's source with its grader's function read, or its judge found. `scored`: the workers whose
    answers are graded. Raises `ConfigError`."""
    if source.grader is None:
        return source
    place = RecipeField(f"recipe {recipe.name!r}", f"benchmarks.{name}.grader")
    if isinstance(source.grader, FunctionGrader):
        found: Any = {"source": _read_function(config, source.grader, place)}
    else:
        found = {"asked": _find_judge(config, recipe, source.grader, scored, place)}
    return source.model_copy(update={"grader": source.grader.model_copy(update=found)})


class RecipeField(NamedTuple):
    """A recipe and a field of it, for an error."""

    recipe: str
    field: str

    def error(self, part: str, problem: str, remedy: str) -> ConfigError:
        """Return the error of one of the field's parts."""
        return ConfigError(self.recipe, f"{self.field}.{part}", problem, remedy)


def _read_function(config: Path, grader: FunctionGrader, place: RecipeField) -> str:
    """Return the text of the function's file, which must define it."""
    file = config.parent / Path(grader.file).expanduser()
    try:
        text = read_settings_text(file)
    except OSError as error:
        raise place.error("file", f"cannot be read ({file}: {error.strerror})", "Name a Python file there") from None
    if KEY_SHAPE.search(text):
        raise place.error("file", f"{file} seems to hold an API key", "Remove it: the sandbox reaches no provider")
    try:
        parsed = parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise place.error("file", f"{file} is no Python ({error})", "Correct it") from None
    if grader.function not in {each.name for each in parsed.body if isinstance(each, ast.FunctionDef)}:
        problem = f"{grader.function!r} is not defined at the top level of {file}"
        raise place.error("function", problem, f"Write `def {grader.function}(problem, answer):` there")
    return text


def _find_judge(
    config: Path, recipe: Recipe, grader: JudgeGrader, scored: Sequence[Worker], place: RecipeField
) -> Worker:
    """Return the judge, which is not to grade its own answers unless the recipe says so."""
    pool = load_pool(config, grader.pool or recipe.pool)
    if grader.worker not in pool.names:
        problem = f"names {grader.worker!r}, which pool {pool.name!r} does not have"
        raise place.error("worker", problem, suggest_name(grader.worker, pool.names, "workers of the pool"))
    judge = pool.worker(grader.worker)
    own = next((worker for worker in scored if revised_model_name(worker) == revised_model_name(judge)), None)
    if own is not None and not grader.scored_too:
        problem = f"{judge.name} would grade its own model's answers: the recipe asks {own.name}, which is {own.model}"
        remedy = "Name a worker of another pool (`pool: NAME`), or state `scored_too: true`"
        raise place.error("worker", problem, remedy)
    if any(worker.name == judge.name and worker.identity != judge.identity for worker in scored):
        problem = f"{judge.name} is also the name of another worker, which the recipe asks"
        raise place.error("worker", problem, "Rename one of the two in its pool")
    return judge


def _costs_more(worker: Worker, max_output_price: float | None) -> bool:
    return (
        max_output_price is not None and worker.price is not None and worker.price.rates_on().output > max_output_price
    )


def _name_teacher(cold_start: ColdStart | None, workers: Sequence[Worker]) -> ColdStart | None:
    if cold_start is None or cold_start.teacher is None:
        return cold_start
    named = _name_writer(cold_start.teacher.policy, workers)
    return cold_start.model_copy(update={"teacher": cold_start.teacher.model_copy(update={"policy": named})})


def _name_writer(policy: Policy, workers: Sequence[Worker]) -> Policy:
    """Name the worker that writes, if the policy names none: the first of the median price."""
    if not isinstance(policy, PromptedPolicy) or policy.worker:
        return policy
    prices = [worker.price.output if worker.price else 0.0 for worker in workers]
    writer = workers[prices.index(sorted(prices, reverse=True)[(len(prices) - 1) // 2])]
    return policy.model_copy(update={"worker": writer.name})


def load_evaluation_pools(config: Path, recipe: Recipe, pool: Pool) -> dict[str, Pool]:
    """Return name → pool for the pools that the recipe's evaluation names.

    Raises `ConfigError`, also for a pool whose workers have other names than `pool`'s, because a Conductor identifies
    its workers by name.
    """
    pools = {name: load_pool(config, name) for name in recipe.evaluation.pools}
    for name, other in pools.items():
        if differing := sorted(set(other.names) ^ set(pool.names)):
            problem = f"{name} does not have the workers of {recipe.pool}: {', '.join(differing)}"
            remedy = f"Name {recipe.pool}, a variant of it, or a pool with workers of the same names"
            raise ConfigError(f"recipe {recipe.name!r}", "evaluation.pool", problem, remedy)
    return pools


def check_against_pool(recipe: Recipe, pool: Pool) -> None:
    """Raise `ConfigError` where the adaptive stage offers more workers than the pool has, or an untrained policy names
    a worker that the pool lacks."""
    adaptive, workers = recipe.adaptive, len(pool.workers)
    if adaptive is not None and max(adaptive.smallest, adaptive.largest or 0) > workers:
        problem = f"offers up to {adaptive.largest or adaptive.smallest} workers, and pool {pool.name!r} has {workers}"
        remedy = f"Set adaptive.smallest and adaptive.largest to {workers} at most"
        raise ConfigError(f"recipe {recipe.name!r}", "adaptive", problem, remedy)
    named = _list_named_workers("policy", recipe.policy)
    if recipe.cold_start is not None and recipe.cold_start.teacher is not None:
        named += _list_named_workers("cold_start.teacher.policy", recipe.cold_start.teacher.policy)
    for field, worker in named:
        if worker not in pool.names:
            problem = f"names {worker!r}, which pool {pool.name!r} does not have"
            remedy = suggest_name(worker, pool.names, "workers of the pool")
            raise ConfigError(f"recipe {recipe.name!r}", field, problem, remedy)


def _list_named_workers(place: str, policy: Policy) -> list[tuple[str, str]]:
    """The field and the worker's name of each worker that a policy names."""
    if isinstance(policy, PromptedPolicy):
        return [(f"{place}.worker", policy.worker)]
    if isinstance(policy, StaticPolicy):
        return [(f"{place}.workflow.{number}.worker", step.worker) for number, step in enumerate(policy.workflow)]
    return []


def load_gate(config: Path) -> PromotionGate:
    """Load `config/promotion.yaml`. Raises `ConfigError`."""
    return load_settings(PromotionGate, config / "promotion.yaml")


def load_alerts(config: Path) -> Alerts:
    """Load `config/alerts.yaml`; without the file, alerts only go to the log. Raises `ConfigError`."""
    return load_or_default(Alerts, config / "alerts.yaml")


def load_retraining(config: Path) -> Retraining:
    """Load `config/retraining.yaml`, or the defaults if the workspace has none. Raises `ConfigError`."""
    return load_or_default(Retraining, config / "retraining.yaml")


def load_serving(config: Path) -> Serving:
    """Load `config/serving.yaml`, or the defaults if there is none. Raises `ConfigError`."""
    return load_or_default(Serving, config / "serving.yaml")


def load_deepspeed(config: Path, recipe: Recipe) -> dict[str, Any] | None:
    """Load the recipe's DeepSpeed file; `None`: the recipe names none. Raises `ConfigError`."""
    name = recipe.grpo.deepspeed
    if name is None:
        return None
    file = config / "deepspeed" / name
    try:
        settings = read_json(file)
    except FileNotFoundError:
        raise _missing_file_error(file) from None
    if not isinstance(settings, dict):
        raise ConfigError(file, "", "is not a JSON object", "Write DeepSpeed's settings there")
    return settings


def dump_settings(settings: Settings) -> str:
    """Return the resolved settings as YAML with defaults written out; a copy is stored with each run."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
