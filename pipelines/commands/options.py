"""Arguments and options shared by several commands, with shell completion of names, and `podium completion`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from ops.core.errors import PodiumError
from ops.core.installation import resources_folder
from ops.core.workspace import Workspace
from ops.core.workspace_parts import ACCEPT_OPTION
from pipelines.commands.help import Command
from pipelines.confirmation import record_agreement

EXIT_NOT_PROMOTED = 3
"""Exit code of a run whose challenger the gate did not promote."""


def find_workspace_or_defaults() -> Workspace:
    """Return the workspace; outside a workspace, the read-only configuration of the package."""
    try:
        return Workspace.find()
    except PodiumError:
        return Workspace(resources_folder())


class _ConfigFileName(click.ParamType):
    """The name of a YAML file in one folder of `config/`."""

    def __init__(self, what: str, folder: str) -> None:
        self.name, self._folder = what, folder

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = sorted(file.stem for file in (find_workspace_or_defaults().config / self._folder).glob("*.yaml"))
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


RECIPE, POOL = _ConfigFileName("recipe", "recipes"), _ConfigFileName("pool", "pools")

POOL_HELP = "Use this pool, a file in config/pools, instead of the recipe's own pool."

SEED = click.IntRange(0, 2**31 - 1)
"""The seed, with the bounds of `ops.config`."""


F = TypeVar("F", bound=Callable[..., Any])


def add_recipe_argument(command: F) -> F:
    """Give a command the argument `recipe`, a file in config/recipes without `.yaml`, and `--pool`, which joins it as
    "RECIPE@POOL"."""

    @wraps(command)
    def joined(*arguments: Any, recipe: str, pool: str | None, **options: Any) -> Any:
        from ops.config import with_pool

        return command(*arguments, recipe=with_pool(recipe, pool), **options)

    replaced = click.option("--pool", type=POOL, help=POOL_HELP)
    return cast("F", click.argument("recipe", type=RECIPE, default="quickstart")(replaced(joined)))


def add_optional_recipe_argument(command: F) -> F:
    """Give a command the arguments of `add_recipe_argument`; without a recipe it gets None."""

    @wraps(command)
    def joined(*arguments: Any, recipe: str | None, pool: str | None, **options: Any) -> Any:
        from ops.config import with_pool

        if recipe is None and pool is not None:
            raise click.UsageError("--pool needs a RECIPE, whose pool it replaces.")
        return command(*arguments, recipe=None if recipe is None else with_pool(recipe, pool), **options)

    replaced = click.option("--pool", type=POOL, help=POOL_HELP)
    return cast("F", click.argument("recipe", type=RECIPE, required=False)(replaced(joined)))


def add_data_recipe_argument(command: F) -> F:
    """Give a command of `podium data` the arguments of `add_recipe_argument`, by default the recipe of the recorded
    data.

    If the command has a seed, its default is the seed of that data, too. `dvc repro` calls the commands so.
    """

    @wraps(command)
    def joined(*arguments: Any, recipe: str | None, pool: str | None, **options: Any) -> Any:
        from ops.config import with_pool
        from ops.versioning.settings import read_recorded_recipe

        if recipe is None:
            recipe, seed = read_recorded_recipe(Workspace.find())
            if "seed" in options and options["seed"] is None:
                options["seed"] = seed
        return command(*arguments, recipe=with_pool(recipe, pool), **options)

    replaced = click.option("--pool", type=POOL, help=POOL_HELP)
    return cast("F", click.argument("recipe", type=RECIPE, required=False)(replaced(joined)))


recipe_option = click.option(
    "--recipe", type=RECIPE, default="quickstart", show_default=True,
    help="Use the settings of this recipe, the name of a file in config/recipes without .yaml.",
)  # fmt: skip
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
wide_option = click.option(
    "--wide", is_flag=True, help="Show all columns of a table, each row in one line, however wide the terminal is."
)
seed_option = click.option("--seed", type=SEED, metavar="N", help="Use this seed instead of the recipe's own seed.")
accept_missing_option = click.option(
    ACCEPT_OPTION, is_flag=True, expose_value=False,
    callback=lambda context, _, value: record_agreement(context, value),
    help="Continue although the ledger, the store of responses or the registry is missing, and begin a new one.",
)  # fmt: skip


def add_yes_option(command: F) -> F:
    """Give a command that spends `--yes` and `--accept-missing`."""
    return click.option("--yes", is_flag=True, help="Spend money without asking for confirmation.")(
        accept_missing_option(command)
    )


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what the command would do and cost, without doing it."
)


@click.command(
    cls=Command,
    examples=(
        ("Complete commands, recipes and pools in every new bash.",
         """echo 'eval "$(podium completion bash)"' >> ~/.bashrc"""),
        ("Do the same in fish.", "podium completion fish > ~/.config/fish/completions/podium.fish"),
    ),
)  # fmt: skip
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands in your shell.

    With it, the tab key completes the names of commands, options, recipes and pools.
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None  # click's own choices
    click.echo(script(ctx.find_root().command, {}, "podium", "_PODIUM_COMPLETE").source())
