"""`podium seeds`, `ablations`, `experiments`, `subsets`, `depths`, `baselines`: what ends as tables in docs."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace
from pipelines.commands.options import SEED, recipe_option, seed_option


@click.command()
@click.argument("seeds", type=int, nargs=-1)
def seeds(seeds: tuple[int, ...]) -> None:
    """Run the quickstart on several seeds, as a table.

    SEEDS are 1 2 3 4 5 when none is named. The table goes into docs/reference/measurements.md.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.seeds import write_table

    click.echo(f"written to {write_table(Workspace.find(), seeds or (1, 2, 3, 4, 5))}")


@click.command()
@click.argument("changes", nargs=-1)
@click.option("--seed", "seeds", type=SEED, multiple=True, default=(1,), show_default=True, help="May be repeated.")
def ablations(changes: tuple[str, ...], seeds: tuple[int, ...]) -> None:
    """Train with one thing changed at a time, as a table.

    CHANGES are names in config/ablations.yaml, all of them when none is named. The table goes into
    docs/reference/measurements.md.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.ablations import write_table

    click.echo(f"written to {write_table(Workspace.find(), changes, seeds)}")


@click.command()
@click.argument("names", nargs=-1)
@recipe_option
@seed_option
def experiments(names: tuple[str, ...], recipe: str, seed: int | None) -> None:
    """Take a Conductor apart, a mechanism at a time.

    NAMES are files of ops/evaluation/experiments, which train nothing and need a policy that was trained and scored
    (`podium run`); all of them when none is named. Or names in config/experiments.yaml, each of which is trained anew.
    What was run before is not run again. The tables go into docs/reference/measurements.md.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.experiments import write_tables

    click.echo(f"written to {write_tables(Workspace.find(), names, recipe, seed)}")


@click.command()
@click.argument("recipes", nargs=-1)
@click.option("--seed", type=SEED, default=1, show_default=True)
@click.option("--per-size", type=click.IntRange(1), default=3, show_default=True, help="Parts of each size.")
@click.option("--questions", type=click.IntRange(1), default=50, show_default=True, help="Of each benchmark.")
@click.option("--unseen", default="solver", show_default=True, help="A worker to keep from training; '' for none.")
@click.option("--retrained", type=click.IntRange(0), default=1, show_default=True, help="Parts to train anew for.")
def subsets(recipes: tuple[str, ...], seed: int, per_size: int, questions: int, unseen: str, retrained: int) -> None:
    """Hold Conductors to parts of their pool, as a table.

    RECIPES have an adaptive section; adaptive and adaptive-cards when none is named. What was run before is not run
    again. The table goes into docs/reference/measurements.md.
    """
    from pipelines.quiet import quiet

    quiet()
    from assets.subsets import Sampling
    from pipelines.subsets import write_table

    sampling = Sampling(per_size=per_size, questions=questions, unseen=unseen, retrained=retrained)
    click.echo(f"written to {write_table(Workspace.find(), recipes or ('adaptive', 'adaptive-cards'), seed, sampling)}")


@click.command()
@click.argument("recipe", default="recursive")
@click.option("--seed", type=SEED, default=1, show_default=True)
@click.option("--deepest", type=click.IntRange(0), default=3, show_default=True, help="Rounds after the first.")
@click.option("--questions", type=click.IntRange(1), help="Of each benchmark; all of them when not given.")
def depths(recipe: str, seed: int, deepest: int, questions: int | None) -> None:
    """Let a Conductor go on from its own answers, as a table.

    RECIPE has a recursive section. Its policies before and after that stage are read at every depth. What was run
    before is not run again. The table goes into docs/reference/measurements.md.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.depths import write_table

    click.echo(f"written to {write_table(Workspace.find(), recipe, seed, deepest, questions)}")


@click.command()
@click.option("--score", "recipe", help="Also let the baselines that this recipe names answer, as a table.")
@click.option("--seed", type=SEED, help="Replaces the recipe's seed.")
def baselines(recipe: str | None, seed: int | None) -> None:
    """List what the Conductor is measured against, as a table.

    `--score` needs a training mix and its responses (`podium run`), and writes into docs/reference/measurements.md.
    """
    from pipelines.quiet import quiet

    quiet()
    from pipelines.baselines import registry_table, write_scores

    if recipe is None:
        click.echo(registry_table(), nl=False)
    else:
        click.echo(f"written to {write_scores(Workspace.find(), recipe, seed)}")
