"""`podium ask`, `serve`, `promote`, `rollback`: ask, serve and change the champion of MLflow's registry."""

from __future__ import annotations

import sys

import click

from ops.core.workspace import Workspace


@click.command()
@click.argument("version", required=False)
@click.option("--by", "name", required=True, help="Who decides so.")
@click.option("--reason", required=True, help="Why. Both are recorded with the version.")
def promote(version: str | None, name: str, reason: str) -> None:
    """Make a version champion regardless of the gate.

    VERSION is the challenger by default. Without this command only the gate promotes, in `podium run`. The version
    records the gate's verdict and the override: name, reason and time.
    """
    from ops.stages.release import promote_by_hand
    from pipelines.release import observe, promotion_seen

    workspace = Workspace.find()
    outcome = promote_by_hand(workspace, version, name, reason)
    if not outcome.changed:
        click.echo(f"Champion    version {outcome.version} is the champion already: nothing was changed")
        return
    observe(workspace, promotion_seen(outcome))
    click.echo(f"Champion    models:/conductor@champion is version {outcome.version}, promoted by {name.strip()}")
    click.echo(f"Verdict     of the gate: {outcome.verdict}; report: {outcome.page}")
    click.echo("Go back     podium rollback --reason WHY")


@click.command()
@click.option("--by", "name", default="", help="Who decides so.")
@click.option("--reason", required=True, help="Why. Both are recorded with the version that goes.")
def rollback(name: str, reason: str) -> None:
    """Make the previous version champion again.

    Only `podium promote` makes the replaced version champion again.
    """
    from ops.release import registry
    from ops.stages.release import roll_back
    from pipelines.release import observe, rollback_seen

    workspace = Workspace.find()
    gone = registry.champion(workspace)
    back = roll_back(workspace, reason, name)
    observe(workspace, rollback_seen(back, name, reason))
    click.echo(f"Champion    models:/conductor@champion is version {back.version} again")
    if gone is not None:
        click.echo(f"Undo        podium promote {gone.version} --by NAME --reason WHY")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Beyond loopback only with PODIUM_SERVE_TOKENS.")
@click.option("--port", type=int, default=5001, show_default=True, help="0: any that is free.")
@click.option("--pool", metavar="NAME", help="A pool of config/pools to ask instead of the champion's own.")
def serve(host: str, port: int, pool: str | None) -> None:
    """Serve the champion as one model on OpenAI's routes, until Ctrl-C.

    POST to /v1/chat/completions or /v1/responses; MLflow's agent server answers at /invocations. Settings:
    config/serving.yaml. When the alias champion moves, the server follows it.
    """
    from ops.config import load_serving
    from ops.release.champion import serve
    from pipelines.quiet import quiet, restore_gc

    quiet()
    workspace = Workspace.find()
    settings = load_serving(workspace.config)
    chosen = settings if pool is None else settings.model_copy(update={"pool": pool})
    serve(workspace, chosen, host, port, when_loaded=restore_gc)


@click.command()
@click.argument("question")
@click.option("--grader", type=click.Choice(["text", "math", "choice", "code"]), help="Form of the answer (text).")
@click.option("--choice", "choices", multiple=True, metavar="TEXT", help="A choice; give it repeatedly.")
def ask(question: str, grader: str | None, choices: tuple[str, ...]) -> None:
    """Ask the champion a question.

    Exit code 0 with an answer, 1 without one.
    """
    from rich.console import Console

    from ops.release import ask as champion

    response = champion.ask(Workspace.find(), question, {"grader": grader, "choices": list(choices)})
    champion.show(response, Console())
    sys.exit(0 if response.get("status") == "completed" else 1)
