"""`podium data`: the data stages that dvc.yaml calls, and inspection of the data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from ops.core.workspace import Workspace
from pipelines.commands.lazy import OrderedGroup
from pipelines.commands.options import (
    AS_JSON,
    data_recipe_argument,
    dry_run_option,
    recipe_option,
    seed_option,
    yes_option,
)
from pipelines.commands.shown import print_json

if TYPE_CHECKING:
    from rich.table import Table


@click.group(cls=OrderedGroup)
def data() -> None:
    """The data, stage by stage, and its checks.

    The stages are those of dvc.yaml: `dvc repro` runs the ones that are out of date, in order. A command without RECIPE
    uses the recipe and the seed of the recorded data, or the quickstart before there is any.
    """


@data.command()
@data_recipe_argument
@seed_option
def settings(recipe: str, seed: int | None) -> None:
    """Write data/settings.yaml, what the data depends on.

    `dvc repro` then makes the data of this recipe. Without RECIPE the settings are read again from the recipe that the
    file names.
    """
    from ops.config import Setup
    from ops.versioning.settings import write_settings

    setup = Setup.read(Workspace.find(), recipe, seed)
    write_settings(setup.workspace, setup.recipe, setup.pool, recipe)


@data.command()
@data_recipe_argument
@seed_option
def raw(recipe: str, seed: int | None) -> None:
    """Load every benchmark into data/raw."""
    from ops.config import Setup
    from ops.stages.data import load_raw_once

    setup = Setup.read(Workspace.find(), recipe, seed)
    for name in setup.recipe.benchmarks:
        loaded = load_raw_once(setup, name)
        if loaded is None:
            click.echo(f"{name}: unchanged")
            continue
        click.echo(f"{name}: {len(loaded.train)} to train on, {len(loaded.test)} to evaluate on")
        if loaded.graded_on:
            click.echo(f"  graded on {loaded.graded_on}")
        if loaded.quarantine:
            files = ", ".join(map(str, loaded.quarantine))
            failing = f" and {loaded.failing_gold} with a failing gold answer" if loaded.failing_gold else ""
            click.echo(f"  {loaded.quarantined} malformed rows{failing} left out: {files}")


@data.command()
@data_recipe_argument
@seed_option
def shortlist(recipe: str, seed: int | None) -> None:
    """Choose the decontaminated candidates."""
    from ops.config import Setup
    from ops.stages.data import make_shortlist_once

    chosen = make_shortlist_once(Setup.read(Workspace.find(), recipe, seed))
    if chosen is None:
        click.echo("shortlist: unchanged")
        return
    click.echo(f"shortlist: {len(chosen.problems)} problems, {len(chosen.report['pairs'])} candidates removed")


@data.command()
@data_recipe_argument
@dry_run_option
@yes_option
def responses(recipe: str, dry_run: bool, yes: bool) -> None:
    """Ask every worker every candidate, or show the cost."""
    from contextlib import ExitStack

    from ops.benchmarks.graded import configure_grading
    from ops.config import Setup
    from ops.core.progress import bar
    from ops.local_models.vllm_server import serving
    from ops.precaching.opening import open_client
    from ops.stages.data import are_precached
    from ops.stages.responses import (
        estimate_responses,
        estimate_without_problems,
        materialize_responses,
        remove_other_workers,
        shortlist_file,
    )
    from pipelines.asking import confirm_spending

    setup = Setup.read(Workspace.find(), recipe)
    configure_grading(setup.recipe, setup.workspace.root, setup.workspace.cache)
    if dry_run and not shortlist_file(setup.workspace).is_file():
        click.echo(estimate_without_problems(setup, recipe))
        return
    if not dry_run and are_precached(setup):
        remove_other_workers(setup)
        click.echo("responses: unchanged")
        return
    client, asks = open_client(setup, "precache"), setup.recipe.asks_workers
    expected = estimate_responses(setup, client) if asks else None
    if expected is not None:
        click.echo(expected)
    if dry_run:
        return
    confirm_spending(setup, yes, expected.usd if expected else None)
    with ExitStack() as servers, bar() as on_progress:
        for pool in (setup.pool, *setup.judge_pools.values()) if asks else ():
            servers.enter_context(serving(pool, setup.workspace))
        rows = materialize_responses(setup, client, on_progress=on_progress)
    counts = client.counts
    click.echo(
        f"{sum(map(len, rows.values()))} responses: {counts.live} calls, {counts.cached} from the cache, "
        f"{counts.replayed} replayed, ${counts.usd:.4f}"
    )


@data.command()
@data_recipe_argument
def profiles(recipe: str) -> None:
    """Measure the workers from their responses."""
    from ops.config import Setup
    from ops.stages.data import make_profiles_once

    measured = make_profiles_once(Setup.read(Workspace.find(), recipe))
    if measured is None:
        click.echo("profiles: unchanged")
        return
    click.echo(f"{len(measured.workers)} profiles, forecast of the training signal {measured.signal_forecast:.0%}")


@data.command()
@data_recipe_argument
@seed_option
def mix(recipe: str, seed: int | None) -> None:
    """Choose the training mix and write its card."""
    from ops.config import Setup
    from ops.stages.data import make_mix_once

    made = make_mix_once(Setup.read(Workspace.find(), recipe, seed))
    if made is None:
        click.echo("training mix: unchanged")
        return
    click.echo(f"training mix: {len(made.problems)} problems, solved alone by: {made.agreement}")


@data.command()
@data_recipe_argument
def check(recipe: str) -> None:
    """Run every quality suite; exit code 1 if one fails.

    Checks the files in data/ with Great Expectations and grades the gold answers. Writes the Data Docs pages.
    """
    from pipelines.commands.quality import check_all

    sys.exit(0 if check_all(Workspace.find(), recipe) else 1)


@data.command()
@data_recipe_argument
@click.option(
    "--answers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Labelled answers for judges: rows with problem (school/7), answer, right.",
)
@click.option(
    "--questions",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Without --answers: the most gold answers for each judge; as many wrong ones are made from them.",
)
@dry_run_option
@yes_option
def gold(recipe: str, answers: Path | None, questions: int, dry_run: bool, yes: bool) -> None:
    """Grade every gold answer of data/raw and report.

    A judge is measured against labelled answers, which costs its calls: how many right answers it accepts, and how many
    wrong ones it rejects. The gate needs this.
    """
    from pipelines.commands.quality import measure_judges, report_gold

    workspace = Workspace.find()
    if not dry_run:
        report_gold(workspace, recipe)
    measure_judges(workspace, recipe, answers, questions, dry_run=dry_run, yes=yes)


@data.command()
@click.argument("problem")
@click.argument("response", type=click.File(encoding="utf-8"), default="-")
@recipe_option
def grade(problem: str, response: TextIO, recipe: str) -> None:
    """Grade one response to one problem.

    The exit code is 1 where it is wrong. PROBLEM is a key of data/raw (livecodebench/v1/1873_A), RESPONSE a file
    (default: what is piped in). For a program, the first failing test is shown; for a confidential benchmark
    without its content.
    """
    from pipelines.commands.quality import grade_one

    sys.exit(0 if grade_one(Workspace.find(), recipe, problem, response.read()) else 1)


@data.command()
@AS_JSON
def benchmarks(as_json: bool) -> None:
    """Show the benchmarks: sources, licences, cautions."""
    from rich.console import Console

    if as_json:
        print_json(benchmark_facts())
        return
    Console().print(benchmark_table())


def benchmark_facts() -> list[dict[str, object]]:
    """Return every benchmark for JSON."""
    from ops.benchmarks.registry import BENCHMARKS

    return [
        {
            "benchmark": name,
            "domain": entry.domain,
            "confidential": entry.is_confidential,
            "grader": entry.grader,
            "dataset": entry.hub.id,
            "splits": entry.hub.splits,
            "licence": entry.licence,
            "citation": entry.citation,
            "cautions": entry.cautions,
        }
        for name, entry in BENCHMARKS.items()
    ]


def benchmark_table() -> Table:
    """Return every benchmark with its source, splits, kind of question, grading, licence, citation and caveats."""
    from rich.table import Table

    from ops.benchmarks.registry import BENCHMARKS
    from ops.grading import GRADERS

    shown = Table(title="Benchmarks", title_justify="left", show_lines=True)
    shown.add_column("benchmark", no_wrap=True)
    for head in ("hub dataset and splits", "asked and graded", "licence and citation", "cautions"):
        shown.add_column(head, overflow="fold", ratio=1)
    for name, entry in BENCHMARKS.items():
        splits = [
            f"{split}: {part.config or 'default'}/{part.split}, {part.rows:,} problems"
            for split, part in entry.hub.splits.items()
        ]
        task = f"{entry.task}. {GRADERS[entry.grader].answer_format}\nGrader: {entry.grader}"
        shown.add_row(
            f"{name}\n({'confidential' if entry.is_confidential else entry.domain})",
            "\n".join([entry.hub.id, *splits, f"read from {entry.hub.documented_by}"]),
            task,
            f"{entry.licence}\n{entry.citation}",
            "\n".join(entry.cautions),
        )
    return shown
