"""The champion for servers: its version, its files, the destination of its traces, and `podium serve`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import yaml

from ops.config import Serving
from ops.core.atomic import create_folder_atomically
from ops.core.errors import DataError, first_line
from ops.core.workspace import Workspace
from ops.release import mlflow_store
from ops.release.artifacts import RESTORE_ARTIFACTS, check_files, locate_model_folder
from ops.release.lineage import ReleaseRefusedError
from ops.release.trace_writer import TraceWriter
from ops.release.tracing import build_request_trace, store_traces
from ops.serving.loaded_version import VersionFiles

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from ops.serving.http.routes import RequestRecord

_MAX_LISTED_VERSIONS = 5
NO_CHAMPION_YET = f"There is no {mlflow_store.CHAMPION} yet. `podium run` trains and promotes one"
"""The message for a workspace that has never had a champion."""


@contextmanager
def open_registered_versions(workspace: Workspace) -> Iterator[RegisteredVersions]:
    """Yield the registered versions of the workspace, while mlflow's own functions use the workspace's store and
    experiment. Raises `RegistryError` if there is no champion."""
    if not mlflow_store.store_exists(workspace):
        raise mlflow_store.RegistryError(NO_CHAMPION_YET)
    with mlflow_store.connect(workspace) as client:
        champion = RegisteredVersions(workspace, client)
        if champion.find_current() is None:
            raise mlflow_store.RegistryError(champion.explain_missing())
        yield champion


class RegisteredVersions:
    """The versions in MLflow's registry, as a server follows them (`ops.serving.champion_follower.VersionSource`)."""

    def __init__(self, workspace: Workspace, client: MlflowClient) -> None:
        self._workspace, self._client = workspace, client

    def open_trace_writer(self) -> TraceWriter:
        """Return the writer of a server's traces. The caller closes it."""
        return TraceWriter(self._workspace.root, mlflow_store.get_or_create_experiment(self._client, self._workspace))

    def store_trace(self, record: RequestRecord) -> str:
        """Store the trace of one request at once, and return the id that MLflow gave it."""
        home = mlflow_store.get_or_create_experiment(self._client, self._workspace)
        return store_traces(self._workspace.mlflow_uri, home, [build_request_trace(record)])[0]

    def find_current(self) -> str | None:
        """Return the number of the version with the alias `champion`, or None. Raises `RegistryError` if the registry
        does not answer."""
        from mlflow.exceptions import MlflowException

        try:
            version = mlflow_store.find_by_alias(self._client, mlflow_store.CHAMPION)
        except MlflowException as error:
            raise mlflow_store.RegistryError(f"the registry cannot be asked for the champion ({error})") from None
        return None if version is None else version.version

    def explain_missing(self) -> str:
        """Return why there is no champion, and the command that makes one. Raises the errors of `find_current`."""
        from mlflow.exceptions import MlflowException

        try:
            found = self._client.search_model_versions(f"name = '{mlflow_store.MODEL_NAME}'")
        except MlflowException as error:
            raise mlflow_store.RegistryError(f"the registry cannot be asked for its versions ({error})") from None
        numbers = sorted((int(each.version) for each in found), reverse=True)
        if not numbers:
            return NO_CHAMPION_YET
        shown = ", ".join(map(str, numbers[:_MAX_LISTED_VERSIONS])) + (
            " …" if len(numbers) > _MAX_LISTED_VERSIONS else ""
        )
        return (
            f"No version of {mlflow_store.MODEL_NAME} has the alias {mlflow_store.CHAMPION}: the gate promoted none "
            "(`podium verdict` says why), the alias was removed, or its version was deleted. "
            f"There are versions {shown}: `podium promote VERSION --by NAME --reason WHY` makes one of them "
            f"{mlflow_store.CHAMPION}"
        )

    def fetch_files(self, version: str) -> VersionFiles:
        """Return the paths of the version's parts on this machine: in place for a local store, otherwise in a copy
        below `.podium`.

        No code of the version is executed. Raises `RegistryError`, `DataError`, and `ReleaseRefusedError` if a file
        differs from the registered one.
        """
        from mlflow.exceptions import MlflowException

        try:
            folder = self._fetch_folder(mlflow_store.read_version(self._client, version))
        except MlflowException as error:
            raise mlflow_store.RegistryError(f"version {version} cannot be fetched ({error})") from None
        file = folder / "MLmodel"
        try:
            flavor = yaml.safe_load(file.read_text(encoding="utf-8"))["flavors"]["python_function"]
            places = {name: folder / flavor["artifacts"][name]["path"] for name in ("policy", "pool")}
            settings = dict(flavor.get("config") or {})
        except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
            said = f"is not the file of a registered version ({type(error).__name__}: {first_line(error)})"
            again = f"or delete version {version} in MLflow and materialize registered_model"
            raise DataError(file, "", said, f"{RESTORE_ARTIFACTS}; {again}") from None
        return VersionFiles(version, places["policy"], places["pool"], settings)

    def _fetch_folder(self, registered: mlflow_store.RegisteredVersion) -> Path:
        place = str(self._client.get_logged_model(registered.model_id).artifact_location)
        parts = urlsplit(place)
        local = parts.scheme in ("", "file")
        folder = Path(unquote(parts.path)) if local else self._workspace.state / "serving" / registered.model_id
        if local or folder.is_dir():
            try:
                check_files(registered.version, folder, registered.tags)
                return folder
            except ReleaseRefusedError:
                if local:
                    raise
                shutil.rmtree(folder, ignore_errors=True)  # a damaged copy is fetched again
        with create_folder_atomically(folder) as part:
            found = locate_model_folder(self._workspace, registered, part)
            check_files(registered.version, found, registered.tags)
        return folder


def serve_champion(
    workspace: Workspace, settings: Serving, host: str, port: int, on_loaded: Callable[[], None] = lambda: None
) -> None:
    """Serve the champion until Ctrl-C or SIGTERM. `on_loaded` is called once, before the first answer.

    Raises `ConfigError` if other machines could connect without a token, `RegistryError` if there is no champion, and
    `PodiumError` if the champion cannot be loaded or the port is in use.
    """
    from ops.serving.http.access import AccessControl

    access = AccessControl.from_environment(host)
    from ops.serving.http.server import ServingApp, run_server

    with open_registered_versions(workspace) as champion:
        traces = champion.open_trace_writer()
        app = ServingApp(workspace, settings, champion, access, traces=traces)
        traces.on_stored, traces.on_dropped = app.metrics.traces_stored.inc, app.metrics.traces_dropped.inc
        app.metrics.traces_waiting.set_function(traces.count_waiting)
        try:
            run_server(app, host, port, on_loaded)
        finally:
            traces.close()
