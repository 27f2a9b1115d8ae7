"""`podium ask`, `serve`, `verdict`, `promote`, `rollback`: ask, serve, explain and change the champion of MLflow's
registry."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ops.core.errors import format_figure
from ops.core.workspace import Workspace
from pipelines.commands.help import Command
from pipelines.commands.options import AS_JSON, accept_missing_option, wide_option
from pipelines.commands.output import print_json, print_table, print_text
from pipelines.confirmation import begin_missing_parts_if_accepted, confirm

if TYPE_CHECKING:
    from ops.release.mlflow_store import RegisteredVersion

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show which version would become the champion, without changing anything."
)
yes_option = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation. Without a terminal, the command never asks."
)


@click.command(
    cls=Command,
    examples=(
        ("Promote the challenger although the gate did not.",
         'podium promote --by Ana --reason "The test set has too few questions of our kind."'),
        ("Show which version would become the champion, without changing anything.",
         'podium promote 3 --by Ana --reason "A trial." --dry-run'),
    ),
)  # fmt: skip
@click.argument("version", required=False)
@click.option("--by", "name", required=True, metavar="NAME", help="The name of the person who decides this.")
@click.option("--reason", required=True, metavar="TEXT", help="The reason, which is recorded with the version.")
@dry_run_option
@yes_option
def promote(version: str | None, name: str, reason: str, dry_run: bool, yes: bool) -> None:
    """Make a version the champion, whatever the gate decided.

    The champion is the version that is served. Normally the promotion gate decides at the end of `podium run` whether a
    new version becomes the champion. With this command a person decides it. VERSION is the number of the version; the
    default is the challenger. The name, the reason and the time are recorded with the version.
    """
    from ops.release import registry
    from ops.release.promotion import NO_CHAMPION
    from ops.release.way_back import describe_way_back
    from ops.stages.release import find_version_to_promote, promote_manually
    from pipelines.release import make_promotion_observation, publish_pages, report_observation

    workspace = Workspace.find()
    known, champion = find_version_to_promote(workspace, version), registry.find_champion(workspace)
    if champion is None or champion.version != known.version:
        said = f"version {known.version} becomes champion{_describe_replaced(champion)}; the gate's verdict on it: "
        if not _confirm_change(said + known.tags.get("verdict", "not judged"), dry_run, yes):
            return
    elif dry_run:
        print_text(f"Version {known.version} is the champion already. Nothing was changed")
        return
    outcome = promote_manually(
        workspace, known.version, name, reason, against=champion.version if champion else NO_CHAMPION
    )
    if not outcome.has_changed:
        print_text(f"Champion    version {outcome.version} is the champion already: nothing was changed")
        return
    report_observation(workspace, make_promotion_observation(outcome))
    publish_pages(workspace, outcome.version)
    print_text(f"Champion    models:/conductor@champion is version {outcome.version}, promoted by {name.strip()}")
    print_text(f"Verdict     of the gate: {outcome.verdict}; report: {outcome.page}")
    if back := describe_way_back(workspace):
        print_text(f"Go back     {back.replace('`', '')}")


@click.command(
    cls=Command,
    examples=(
        ("Serve the previous version again.", 'podium rollback --reason "The champion answers chemistry worse."'),
        ("Show which version this is, without changing anything.", 'podium rollback --reason "A trial." --dry-run'),
    ),
)
@click.option("--by", "name", default="", metavar="NAME", help="The name of the person who decides this.")
@click.option(
    "--reason", required=True, metavar="TEXT", help="The reason, which is recorded with the version that is replaced."
)
@dry_run_option
@yes_option
def rollback(name: str, reason: str, dry_run: bool, yes: bool) -> None:
    """Make the previous champion the champion again.

    After that, only `podium promote` can make the replaced version the champion.
    """
    from ops.release import registry
    from ops.release.aliases import find_rollback_target
    from ops.release.way_back import explain_unfit
    from ops.stages.release import roll_back
    from pipelines.release import make_rollback_observation, publish_pages, report_observation

    workspace = Workspace.find()
    gone, target = registry.find_champion(workspace), find_rollback_target(workspace)
    said = f"version {target.version} becomes champion again{_describe_replaced(gone)}"
    if gone is not None and (unfit := explain_unfit(target, gone)):
        said += f"; {unfit}"
    if not _confirm_change(said, dry_run, yes):
        return
    back = roll_back(workspace, reason, name, against=gone.version if gone else None)
    report_observation(workspace, make_rollback_observation(back, name, reason))
    publish_pages(workspace, back.version)
    print_text(f"Champion    models:/conductor@champion is version {back.version} again")
    if gone is not None:
        print_text(f"Undo        podium promote {gone.version} --by NAME --reason WHY")


def _describe_replaced(champion: RegisteredVersion | None) -> str:
    return f", in place of version {champion.version}" if champion else ""


def _confirm_change(what: str, dry_run: bool, yes: bool) -> bool:
    """Say what would be done, or ask a person at a terminal; return whether to do it."""
    if dry_run:
        print_text(f"{what}. Nothing was changed")
        return False
    confirm(what, yes or not sys.stdin.isatty())
    return True


@click.command(
    cls=Command,
    examples=(
        ("Explain the decision on the newest version.", "podium verdict"),
        ("Print the decision on version 2 as JSON.", "podium verdict 2 --json"),
    ),
)
@click.argument("version", required=False)
@AS_JSON
@wide_option
def verdict(version: str | None, as_json: bool, wide: bool) -> None:
    """Show why the gate promoted a version or did not.

    The command lists every check of the promotion gate with its value and its bound. VERSION is the number of a
    version. The default is the challenger, or the champion if there is no challenger. The exit code is 3 if the gate
    did not promote the version.
    """
    from ops.release import registry
    from pipelines.commands.options import EXIT_NOT_PROMOTED

    workspace = Workspace.find()
    known = registry.get_version(workspace, version) if version else registry.get_latest_version(workspace)
    decision = registry.load_decision(workspace, known.version)
    dossier = registry.load_dossier(workspace, known.version)
    pool_change = dossier.pool_change if dossier else ""
    page = workspace.reports / f"verdict-version-{known.version}.html"
    said = known.tags.get("verdict", "not judged")
    if as_json:
        print_json({
            "version": known.version, "aliases": known.aliases, "verdict": said, **decision.as_dict(),
            "pool_change": pool_change,
        })  # fmt: skip
    else:
        names = f" ({', '.join(known.aliases)})" if known.aliases else ""
        print_text(f"version {known.version}{names}: {said}")
        rows = [
            ("passed" if each.passed else "FAILED", each.name, format_figure(each.value), format_figure(each.bound),
             each.explanation)
            for each in decision.checks
        ]  # fmt: skip
        if rows:
            head = ("", "check", "value", "bound", "explanation")
            print_table(head, rows, ("value", "bound"), optional=(), wide=wide)
        if pool_change:
            print_text(f"change of the pool: {pool_change}")
        if decision.override:
            print_text(f"override by {decision.override.name}: {decision.override.reason}")
        if page.is_file():
            print_text(f"page: {page.relative_to(workspace.root)}")
    if not decision.promote:
        raise click.exceptions.Exit(EXIT_NOT_PROMOTED)


@click.command(
    cls=Command,
    examples=(
        ("Serve the champion on this machine.", "podium serve"),
        ("Serve it on another port.", "podium serve --port 8080"),
    ),
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
    help="Listen on this address. An address that other machines can reach requires PODIUM_SERVE_TOKENS.",
)  # fmt: skip
@click.option(
    "--port", type=int, default=5001, show_default=True, metavar="N",
    help="Listen on this port. With 0 the system chooses a free one.",
)  # fmt: skip
@click.option(
    "--pool",
    metavar="POOL",
    help="Ask the workers of this pool, a file in config/pools, instead of the champion's own.",
)
@accept_missing_option
def serve(host: str, port: int, pool: str | None) -> None:
    """Serve the champion as one model over OpenAI's API.

    Clients send their questions to /v1/chat/completions or /v1/responses. The settings are in config/serving.yaml. If
    another version becomes the champion, the server serves that version from then on. It runs until you press Ctrl-C.
    """
    from ops.config import load_serving
    from ops.release.champion import serve_champion
    from pipelines.startup import restore_garbage_collection, silence_tools

    silence_tools()
    workspace = Workspace.find()
    begin_missing_parts_if_accepted(workspace)
    settings = load_serving(workspace.config)
    chosen = settings if pool is None else settings.model_copy(update={"pool": pool})
    serve_champion(workspace, chosen, host, port, on_loaded=restore_garbage_collection)


@click.command(
    cls=Command,
    examples=(
        ("Ask a question.",
         'podium ask "Ana is taller than Bo. Chen is shorter than Bo. Dara is taller than Ana. Who is the tallest?"'),
        ("Ask a question with given choices.",
         'podium ask "Which metal is liquid at 20 degrees?" --choice iron --choice mercury --choice tin'),
    ),
)  # fmt: skip
@click.argument("question")
@click.option(
    "--grader", metavar="NAME",
    help="The form of the answer that you want: open, text, math, choice or code. The default is open.",
)  # fmt: skip
@click.option(
    "--choice", "choices", multiple=True, metavar="TEXT",
    help="One of the answers to choose from. Give this option once for each of them.",
)  # fmt: skip
@accept_missing_option
def ask(question: str, grader: str | None, choices: tuple[str, ...]) -> None:
    """Ask the promoted Conductor a question.

    The command prints the workflow, the response of each worker, the answer and the cost. The exit code is 1 if there
    is no answer.
    """
    from rich.console import Console

    from ops.release import ask as champion

    workspace = Workspace.find()
    begin_missing_parts_if_accepted(workspace)
    response = champion.ask_champion(workspace, question, {"grader": grader, "choices": list(choices)})
    champion.print_answer(response, Console())
    sys.exit(0 if response.get("status") == "completed" else 1)
