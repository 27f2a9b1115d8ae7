"""`podium recipes` and `podium config`: list and show recipes, check every file of config/."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from pipelines.commands.lazy import OrderedGroup
from pipelines.commands.options import AS_JSON, RECIPE, workspace_or_defaults
from pipelines.commands.shown import print_json


@click.group(cls=OrderedGroup)
def recipes() -> None:
    """Recipes: list, show.

    RECIPE is a file in config/recipes, without .yaml.
    """


@recipes.command("list")
@AS_JSON
def list_recipes(as_json: bool) -> None:
    """List the recipes: pool, policy, benchmarks, budget."""
    from ops.config import load_recipe
    from pipelines.commands.shown import console, table

    config = workspace_or_defaults().config
    facts = []
    for file in sorted((config / "recipes").glob("*.yaml")):
        recipe = load_recipe(config, file.stem)
        facts.append({
            "recipe": file.stem, "pool": recipe.pool, "policy": recipe.policy.kind,
            "benchmarks": list(recipe.benchmarks), "run_usd": recipe.budget.run_usd, "description": recipe.description,
        })  # fmt: skip
    if as_json:
        print_json(facts)
        return
    head = ("recipe", "pool", "policy", "benchmarks", "at most USD", "what it is")
    rows = [
        (each["recipe"], each["pool"], each["policy"], len(each["benchmarks"]), f"{each['run_usd']:,.2f}",
         each["description"]) for each in facts
    ]  # fmt: skip
    console().print(table(head, rows, ("benchmarks", "at most USD")))


@recipes.command()
@click.argument("recipe", type=RECIPE)
@AS_JSON
def show(recipe: str, as_json: bool) -> None:
    """Show a recipe with every default and inherited value."""
    import yaml

    from ops.config import load_recipe

    values = load_recipe(workspace_or_defaults().config, recipe).model_dump(mode="json")
    if as_json:
        print_json(values)
    else:
        click.echo(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), nl=False)


@click.group(cls=OrderedGroup)
def config() -> None:
    """The files of config/: validate."""


@config.command()
@AS_JSON
def validate(as_json: bool) -> None:
    """Check every file of config/; exit code 1 if one is wrong.

    Each mistake is one line with file, field and remedy. No worker is called.
    """
    checked = [(file, _mistake(load)) for file, load in _files(workspace_or_defaults())]
    wrong = {str(file): said for file, said in checked if said}
    if as_json:
        print_json({"files": len(checked), "mistakes": wrong})
    else:
        for said in wrong.values():
            click.echo(f"error: {said}")
        click.echo(f"{len(checked)} files, {len(wrong)} with a mistake")
    if wrong:
        raise click.exceptions.Exit(1)


def _mistake(load: Callable[[], Any]) -> str:
    try:
        load()
    except PodiumError as error:
        return str(error)
    return ""


def _files(workspace: Workspace) -> Iterator[tuple[Path, Callable[[], Any]]]:
    """Every file of config/ that Podium reads, and what loads it."""
    from ops.config import Setup, load_alerts, load_deepspeed, load_gate, load_pool, load_retraining, load_serving
    from ops.config import load as load_file
    from ops.config.studies import load_studies
    from ops.planning.shape import MODELS, Models
    from ops.workers.unsent import unsent

    config = workspace.config

    def pool(file: Path) -> None:
        for worker in load_pool(config, file.stem).workers:
            for error in unsent(worker, file):
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
    if (models := config / MODELS).is_file():
        yield models, partial(load_file, Models, models)
