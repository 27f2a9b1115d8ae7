"""`podium promote`, `rollback`, `serve`: the champion in MLflow's registry."""

from __future__ import annotations

import click

from ops.core.workspace import Workspace


@click.command()
@click.argument("version", required=False)
@click.option("--by", "name", required=True, help="Who decides so.")
@click.option("--reason", required=True, help="Why; both are recorded with the version.")
def promote(version: str | None, name: str, reason: str) -> None:
    """Make a version champion in spite of the gate.

    VERSION is the challenger's when none is named. Without an override the gate alone promotes, in `podium run`.
    The verdict that was recorded with the version stays, and says who overrode it.
    """
    from ops.release import registry
    from ops.release.promotion import override

    workspace = Workspace.find()
    if version is None and (challenger := registry.challenger(workspace)) is None:
        raise registry.RegistryError("There is no challenger: `podium run` registers one")
    chosen = version or challenger.version
    registry.promote(workspace, chosen, override(registry.recorded_decision(workspace, chosen), name, reason))
    click.echo(f"models:/{registry.MODEL}@{registry.CHAMPION} is version {chosen}")


@click.command()
@click.option("--reason", required=True, help="Why; recorded with the version that goes.")
def rollback(reason: str) -> None:
    """Make the version before champion again.

    The one that goes comes back by `podium promote` only.
    """
    from ops.release import registry

    back = registry.rollback(Workspace.find(), reason)
    click.echo(f"models:/{registry.MODEL}@{registry.CHAMPION} is version {back.version}")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=int, default=5001, show_default=True)
def serve(host: str, port: int) -> None:
    """Serve the champion over HTTP with MLflow, until Ctrl-C.

    POST a Responses request, {"input": [{"role": "user", "content": "…"}]}, to /invocations.
    """
    from ops.release.http import serve
    from pipelines.home import quiet

    quiet()
    serve(Workspace.find(), host, port)
