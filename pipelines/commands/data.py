"""`podium data`: the data stages that dvc.yaml calls, and inspection of the data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

import click

from ops.core.workspace import Workspace
from ops.spending.bookings import format_usd
from pipelines.commands.help import OrderedGroup
from pipelines.commands.options import (
    AS_JSON,
    add_data_recipe_argument,
    add_yes_option,
    dry_run_option,
    recipe_option,
    seed_option,
)
from pipelines.commands.output import print_json, print_text


@click.group(
    cls=OrderedGroup,
    examples=(
        ("Load the questions of the quickstart's benchmarks.", "podium data raw quickstart"),
        ("Check all data that exists.", "podium data check"),
    ),
)
def data() -> None:
    """Prepare the data, stage by stage, and check it.

    `podium run` executes all stages itself. With the commands settings, raw, shortlist, responses, profiles and mix
    you execute a single stage. This is also their order. They are the stages of dvc.yaml too, and `dvc repro` executes
    those that are out of date. A command without RECIPE uses the recipe and the seed of the data that exists, or the
    quickstart if there is no data yet.
    """


@data.command(
    examples=(
        ("Prepare `dvc repro` for the quickstart with seed 2.", "podium data settings quickstart --seed 2"),
        ("Read the settings of the recorded recipe again, after you have changed it.", "podium data settings"),
    ),
)
@add_data_recipe_argument
@seed_option
def settings(recipe: str, seed: int | None) -> None:
    """Write the settings on which the data depends.

    The command writes the settings of the recipe into data/settings.yaml, and then `dvc repro` makes the data of this
    recipe. Without RECIPE it reads the recipe again that the file names.
    """
    from ops.config import Setup
    from ops.versioning.settings import write_settings

    setup = Setup.read(Workspace.find(), recipe, seed)
    write_settings(setup.workspace, setup.recipe, setup.pool, recipe)


@data.command(
    examples=(
        ("Load the questions of the quickstart's benchmarks.", "podium data raw quickstart"),
        ("Generate other questions of the synthetic environment.", "podium data raw quickstart --seed 2"),
    ),
)
@add_data_recipe_argument
@seed_option
def raw(recipe: str, seed: int | None) -> None:
    """Load the questions of every benchmark of the recipe.

    The command writes them into data/raw. Rows that are malformed are left out and listed in a file.
    """
    from ops.config import Setup
    from ops.stages.data import load_raw_once

    setup = Setup.read(Workspace.find(), recipe, seed)
    for name in setup.recipe.benchmarks:
        loaded = load_raw_once(setup, name)
        if loaded is None:
            print_text(f"{name}: unchanged")
            continue
        print_text(f"{name}: {len(loaded.train)} questions for training, {len(loaded.test)} for the evaluation")
        if loaded.graded_on:
            print_text(f"  graded on {loaded.graded_on}")
        if loaded.quarantine:
            files = ", ".join(map(str, loaded.quarantine))
            failing = f" and {loaded.failing_gold} with a failing gold answer" if loaded.failing_gold else ""
            print_text(f"  {loaded.quarantined} malformed rows{failing} are left out; they are in {files}")


@data.command(
    examples=(
        ("Choose the candidates of the quickstart.", "podium data shortlist quickstart"),
        ("Choose them with another seed.", "podium data shortlist quickstart --seed 2"),
    ),
)
@add_data_recipe_argument
@seed_option
def shortlist(recipe: str, seed: int | None) -> None:
    """Choose the candidates for the training questions.

    Questions that resemble a test question are removed first (decontamination).
    """
    from ops.config import Setup
    from ops.stages.data import make_shortlist_once

    chosen = make_shortlist_once(Setup.read(Workspace.find(), recipe, seed))
    if chosen is None:
        print_text("shortlist: unchanged")
        return
    removed = len(chosen.report["pairs"])
    print_text(
        f"shortlist: {len(chosen.problems)} candidate questions; {removed} were removed because they resemble test "
        "questions or each other"
    )


@data.command(
    examples=(
        ("Show how many calls this takes and what they cost.", "podium data responses quickstart --dry-run"),
        ("Make the calls, without asking for confirmation.", "podium data responses quickstart --yes"),
    ),
)
@add_data_recipe_argument
@dry_run_option
@add_yes_option
def responses(recipe: str, dry_run: bool, yes: bool) -> None:
    """Ask every worker every candidate question (precaching).

    The responses are stored, so that neither this command nor a later training pays for them again.
    """
    from contextlib import ExitStack

    from ops.benchmarks.graded import configure_grading
    from ops.config import Setup
    from ops.core.progress import show_progress
    from ops.local_models.vllm_server import serve_pool
    from ops.precaching.client_setup import open_client
    from ops.stages.data import are_precached
    from ops.stages.responses import (
        estimate_responses,
        estimate_without_problems,
        materialize_responses,
        remove_other_workers,
        shortlist_file,
    )
    from pipelines.confirmation import confirm_spending

    setup = Setup.read(Workspace.find(), recipe)
    configure_grading(setup.recipe, setup.workspace.root, setup.workspace.cache)
    if dry_run and not shortlist_file(setup.workspace).is_file():
        print_text(estimate_without_problems(setup, recipe))
        return
    if not dry_run and are_precached(setup):
        remove_other_workers(setup)
        print_text("responses: unchanged")
        return
    client, asks = open_client(setup, "precache"), setup.recipe.can_call_workers
    expected = estimate_responses(setup, client) if asks else None
    if expected is not None:
        print_text(expected)
    if dry_run:
        return
    confirm_spending(setup, yes, expected.usd if expected else None)
    with ExitStack() as servers, show_progress() as on_progress:
        for pool in (setup.pool, *setup.judge_pools.values()) if asks else ():
            servers.enter_context(serve_pool(pool, setup.workspace))
        rows = materialize_responses(setup, client, on_progress=on_progress)
    counts = client.counts
    print_text(
        f"{sum(map(len, rows.values()))} responses: {counts.live} calls, {counts.cached} from the cache, "
        f"{counts.replayed} replayed, {format_usd(counts.usd)}"
    )


@data.command(
    examples=(
        ("Measure the workers of the quickstart.", "podium data profiles quickstart"),
        ("Measure the workers of the recorded data.", "podium data profiles"),
    ),
)
@add_data_recipe_argument
def profiles(recipe: str) -> None:
    """Measure the accuracy and cost of workers from their responses.

    The command writes data/profiles.json, and prints the share of questions from which GRPO could learn.
    """
    from ops.config import Setup
    from ops.stages.data import make_profiles_once

    measured = make_profiles_once(Setup.read(Workspace.find(), recipe))
    if measured is None:
        print_text("profiles: unchanged")
        return
    print_text(
        f"profiles of {len(measured.workers)} workers; GRPO is expected to see different rewards on "
        f"{measured.signal_forecast:.0%} of the questions"
    )


@data.command(
    examples=(
        ("Choose the training questions of the quickstart.", "podium data mix quickstart"),
        ("Choose them with another seed.", "podium data mix quickstart --seed 2"),
    ),
)
@add_data_recipe_argument
@seed_option
def mix(recipe: str, seed: int | None) -> None:
    """Choose the training questions from the candidates.

    The command writes data/training_mix.jsonl, and a description of the data into data/data_card.md.
    """
    from ops.config import Setup
    from ops.stages.data import make_mix_once

    made = make_mix_once(Setup.read(Workspace.find(), recipe, seed))
    if made is None:
        print_text("training mix: unchanged")
        return
    solved = ", ".join(f"{count} by {name}" for name, count in made.agreement.items())
    print_text(f"training mix: {len(made.problems)} questions; solved by single workers: {solved}")


@data.command(
    examples=(
        ("Check the data that exists.", "podium data check"),
        ("Check it against the settings of the quickstart.", "podium data check quickstart"),
    ),
)
@add_data_recipe_argument
def check(recipe: str) -> None:
    """Check the quality of the data.

    The command checks the files in data/ with Great Expectations, and grades the gold answers, which must all be right.
    It writes the results as web pages and prints where they are. The exit code is 1 if a check fails.
    """
    from pipelines.commands.quality import check_data

    sys.exit(0 if check_data(Workspace.find(), recipe) else 1)


@data.command(
    examples=(
        ("Grade the gold answers of the quickstart.", "podium data gold quickstart"),
        ("Also measure the judges of the recipe on your own labelled answers.",
         "podium data gold --answers answers.jsonl"),
    ),
)  # fmt: skip
@add_data_recipe_argument
@click.option(
    "--answers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure the judges on the labelled answers in this file. Each row has the fields problem (such as school/7), "
    "answer and right.",
)
@click.option(
    "--questions",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="Without --answers, measure each judge on at most N gold answers and as many wrong answers made from them.",
)
@dry_run_option
@add_yes_option
def gold(recipe: str, answers: Path | None, questions: int, dry_run: bool, yes: bool) -> None:
    """Test the graders on the gold answers of the benchmarks.

    Every gold answer in data/raw should be graded as right. The command prints a table with the exceptions and writes
    it into a file. If the recipe has judges (models that grade answers), the command also measures how many right
    answers each judge accepts and how many wrong answers it rejects. This costs the judge's calls, and the promotion
    gate needs it.
    """
    from pipelines.commands.quality import measure_judges, report_gold

    workspace = Workspace.find()
    if not dry_run:
        report_gold(workspace, recipe)
    measure_judges(workspace, recipe, answers, questions, dry_run=dry_run, yes=yes)


@data.command(
    examples=(
        ("Grade the response in a file.", "podium data grade livecodebench/v1/1873_A response.txt"),
        ("Grade a text that another command prints.", "echo 'The answer is 42.' | podium data grade math500/7"),
    ),
)
@click.argument("problem")
@click.argument("response", type=click.File(encoding="utf-8"), default="-")
@recipe_option
def grade(problem: str, response: TextIO, recipe: str) -> None:
    """Grade one response to one question.

    PROBLEM is the key of a question in data/raw, for example livecodebench/v1/1873_A. RESPONSE is a file with the
    response; without it the command reads its standard input. If the response is a program, the command shows the first
    test that fails. The content of a confidential benchmark is not shown. The exit code is 1 if the response is wrong.
    """
    from pipelines.commands.quality import grade_response

    sys.exit(0 if grade_response(Workspace.find(), recipe, problem, response.read()) else 1)


@data.command(
    examples=(
        ("Show the benchmarks.", "podium data benchmarks"),
        ("Print the list as JSON.", "podium data benchmarks --json"),
    ),
)
@AS_JSON
def benchmarks(as_json: bool) -> None:
    """Show the benchmarks that Podium can load.

    The table shows for each benchmark the dataset, its splits, its form of questions and answers, its licence, its
    citation and cautions.
    """
    if as_json:
        print_json(list_benchmark_facts())
        return
    _print_benchmarks()


def list_benchmark_facts() -> list[dict[str, object]]:
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


def _print_benchmarks() -> None:
    """Print every benchmark with its source, splits, kind of question, grading, licence, citation and caveats."""
    from ops.benchmarks.registry import BENCHMARKS
    from ops.grading import GRADERS

    for name, entry in BENCHMARKS.items():
        splits = (
            f"{split}: {part.config or 'default'}/{part.split}, {part.rows:,} problems"
            for split, part in entry.hub.splits.items()
        )
        print_text(f"{name} ({'confidential' if entry.is_confidential else entry.domain})")
        facts = [
            ("dataset", f"{entry.hub.id}, as {entry.hub.documented_by} describes it"),
            *(("split", split) for split in splits),
            ("question", f"{entry.task}."),
            ("answer", f"{GRADERS[entry.grader].answer_format} Grader: {entry.grader}"),
            ("licence", entry.licence),
            ("citation", entry.citation),
            *(("caution", caution) for caution in entry.cautions),
        ]
        for label, text in facts:
            print_text(f"  {label:<10}{text}")
        print_text()
