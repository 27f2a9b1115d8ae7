"""`podium serve`: serve the registry's champion and follow its changes."""

from __future__ import annotations

from collections.abc import Callable

from ops.config import Serving
from ops.core.workspace import Workspace


def serve(
    workspace: Workspace, settings: Serving, host: str, port: int, when_loaded: Callable[[], None] = lambda: None
) -> None:
    """Serve until Ctrl-C or SIGTERM; `when_loaded` is called before the first answer.

    Raises `ConfigError` if other machines could connect without a token, `RegistryError` without a champion, and
    `PodiumError` if it cannot be loaded or the port is taken.
    """
    from ops.serving.http.access import Access

    access = Access.of(host)
    from ops.release.champion import champion_of
    from ops.serving.http.app import ServingApp
    from ops.serving.http.server import run

    with champion_of(workspace) as champion:
        traces = champion.traces()
        app = ServingApp(workspace, settings, champion, access, traces=traces)
        traces.on_stored, traces.on_dropped = app.metrics.traces_stored.inc, app.metrics.traces_dropped.inc
        app.metrics.traces_waiting.set_function(traces.waiting)
        try:
            run(app, host, port, when_loaded)
        finally:
            traces.close()
