"""The champion over HTTP: MLflow's own scoring server, in this process."""

from __future__ import annotations

from ops.core.workspace import Workspace
from ops.release import registry


def serve(workspace: Workspace, host: str, port: int) -> None:
    """Answer POSTs of Responses requests to `/invocations` until Ctrl-C; `/ping` says that it is up.

    The champion is the one at the start. Raises `RegistryError` when there is none.
    """
    with registry.loaded(workspace) as model:
        import uvicorn
        from mlflow.pyfunc import scoring_server

        print(f"{registry.CHAMPION} at http://{host}:{port}/invocations, Ctrl-C ends it", flush=True)
        uvicorn.run(scoring_server.init(model), host=host, port=port, log_level="warning")
