"""`podium recipes` and `podium config`: list and show recipes, check every file of config/."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from pipelines.commands.help import OrderedGroup
from pipelines.commands.options import AS_JSON, RECIPE, find_workspace_or_defaults, wide_option
from pipelines.commands.output import print_json, print_table, print_text


@click.group(
    cls=OrderedGroup,
    examples=(
        ("List the recipes.", "podium recipes list"),
        ("Show all settings of a recipe.", "podium recipes show quickstart"),
    ),
)
def recipes() -> None:
    """List the recipes and show their settings.

    A recipe is a file in config/recipes that names all settings of a training and an evaluation.
    """


@recipes.command(
    "list",
    examples=(
        ("List the recipes.", "podium recipes list"),
        ("Print the list as JSON.", "podium recipes list --json"),
    ),
)
@AS_JSON
@wide_option
def list_recipes(as_json: bool, wide: bool) -> None:
    """List the recipes with their pools, policies and budgets."""
    from ops.config import load_recipe

    config = find_workspace_or_defaults().config
    facts = []
    for file in sorted((config / "recipes").glob("*.yaml"), key=lambda file: file.stem):
        recipe = load_recipe(config, file.stem)
        facts.append({
            "recipe": file.stem, "pool": recipe.pool, "policy": recipe.policy.kind,
            "benchmarks": list(recipe.benchmarks), "run_usd": recipe.budget.run_usd, "description": recipe.description,
        })  # fmt: skip
    if as_json:
        print_json(facts)
        return
    head = ("recipe", "pool", "policy", "benchmarks", "budget, USD", "what it is")
    rows = [
        (each["recipe"], each["pool"], each["policy"], len(each["benchmarks"]), f"{each['run_usd']:,.2f}",
         each["description"]) for each in facts
    ]  # fmt: skip
    print_table(head, rows, ("benchmarks", "budget, USD"), optional=("benchmarks", "policy", "pool"), wide=wide)


@recipes.command(
    examples=(
        ("Show all settings of the quickstart.", "podium recipes show quickstart"),
        ("Print those of the paper's recipe as JSON.", "podium recipes show paper --json"),
    ),
)
@click.argument("recipe", type=RECIPE)
@AS_JSON
def show(recipe: str, as_json: bool) -> None:
    """Show all settings of a recipe.

    The command also prints the settings that RECIPE inherits from another recipe, and the defaults.
    """
    import yaml

    from ops.config import load_recipe

    values = load_recipe(find_workspace_or_defaults().config, recipe).model_dump(mode="json")
    if as_json:
        print_json(values)
    else:
        click.echo(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), nl=False)


@click.group(
    cls=OrderedGroup,
    examples=(
        ("Check all configuration files.", "podium config validate"),
        ("Print the mistakes as JSON.", "podium config validate --json"),
    ),
)
def config() -> None:
    """Check the configuration files in config/."""


@config.command(
    examples=(
        ("Check all configuration files.", "podium config validate"),
        ("Print the mistakes as JSON.", "podium config validate --json"),
    ),
)
@AS_JSON
def validate(as_json: bool) -> None:
    """Check every file in config/ for mistakes.

    For each mistake the command prints one line with the file, the setting and the remedy. The exit code is 1 if there
    is a mistake. No model is called.
    """
    checked = [(file, _find_mistake(load)) for file, load in _list_config_files(find_workspace_or_defaults())]
    wrong = {str(file): said for file, said in checked if said}
    if as_json:
        print_json({"files": len(checked), "mistakes": wrong})
    else:
        for said in wrong.values():
            print_text(f"error: {said}")
        print_text(f"{len(checked)} files checked, {len(wrong)} with a mistake")
    if wrong:
        raise click.exceptions.Exit(1)


def _find_mistake(load: Callable[[], Any]) -> str:
    try:
        load()
    except PodiumError as error:
        return str(error)
    return ""


def _list_config_files(workspace: Workspace) -> Iterator[tuple[Path, Callable[[], Any]]]:
    """Every file of config/ that Podium reads, and what loads it."""
    from ops.config import Setup, load_alerts, load_deepspeed, load_gate, load_pool, load_retraining, load_serving
    from ops.config import load_settings as load_file
    from ops.config.studies import load_studies
    from ops.planning.model_shape import MODELS_FILE, ModelShapes
    from ops.workers.pool_checks import find_unsent_settings

    config = workspace.config

    def pool(file: Path) -> None:
        for worker in load_pool(config, file.stem).workers:
            for error in find_unsent_settings(worker, file):
                raise error

    def recipe(file: Path) -> None:
        load_deepspeed(config, Setup.read(workspace, file.stem).recipe)

    yield from ((file, partial(pool, file)) for file in sorted((config / "pools").glob("*.yaml")))
    yield from ((file, partial(recipe, file)) for file in sorted((config / "recipes").glob("*.yaml")))
    for name, load in {
        "alerts": load_alerts, "promotion": load_gate, "retraining": load_retraining, "serving": load_serving,
        "studies": load_studies,
    }.items():  # fmt: skip
        if (file := config / f"{name}.yaml").is_file():
            yield file, partial(load, config)
    if (models := config / MODELS_FILE).is_file():
        yield models, partial(load_file, ModelShapes, models)
