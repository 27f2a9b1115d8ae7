"""The connection to MLflow's tracking store, and its model versions and aliases."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ops.core.artifact_paths import repair_artifact_paths
from ops.core.errors import ConfigError, PodiumError, first_line
from ops.core.installation import require_mlflow
from ops.core.sqlite import has_content
from ops.core.workspace import Workspace
from ops.core.workspace_parts import REGISTRY, find_missing_parts

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

MODEL_NAME = "conductor"
"""The name of the registered model."""
EXPERIMENT_NAME = "podium"
"""The name of the experiment that holds the runs and traces of Podium."""
EXPERIMENT_DESCRIPTION = (
    "Released versions and evaluations of the Conductor, and the traces of evaluation and serving. The tag "
    "`podium.purpose` says what a run was for: release, evaluation or study."
)
RUN_SOURCE = "podium"
"""The source that MLflow shows for Podium's runs."""
CHAMPION, CHALLENGER, PREVIOUS = "champion", "challenger", "previous"
"""Aliases. `previous` is the replaced champion, the target of a rollback."""
_QUIET_VARIABLES = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


_open_stores: list[str] = []
"""The stores of the `connect` blocks of this process, innermost last; MLflow uses one at a time."""


class RegistryError(PodiumError):
    """The registry lacks what was requested, for example a version, a champion or a previous champion."""


@dataclass(frozen=True)
class RegisteredVersion:
    """A model version as the registry knows it."""

    version: str
    run_id: str
    """The MLflow run that holds the version's artifacts."""
    model_id: str
    aliases: tuple[str, ...]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    """The metrics of the version's logged model."""


def store_exists(workspace: Workspace) -> bool:
    """Return whether the tracking store can hold anything: it is a server, or the SQLite file exists.

    Raises `DataError` if the workspace's own file once had contents, and is missing or empty now.
    """
    uri = workspace.mlflow_uri
    for missing in () if workspace.rehearsal else find_missing_parts(workspace, REGISTRY):
        raise missing
    return not uri.startswith("sqlite:///") or has_content(Path(uri.removeprefix("sqlite:///")))


@contextmanager
def connect(workspace: Workspace) -> Iterator[MlflowClient]:
    """Yield a client of the workspace's store. Inside the block mlflow's own functions use that store.

    Paths in a workspace's own store are adapted first, if the workspace was moved.
    """
    require_mlflow()
    for name, value in _QUIET_VARIABLES.items():
        os.environ.setdefault(name, value)
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if workspace.mlflow_uri.startswith("sqlite:///"):
        file = Path(workspace.mlflow_uri.removeprefix("sqlite:///"))
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():  # MLflow makes it, with an experiment whose artifacts are in the current folder
            mlflow.MlflowClient(workspace.mlflow_uri).search_experiments(max_results=1)
        repair_artifact_paths(workspace)
    given, uri = os.environ.get("MLFLOW_TRACKING_URI"), workspace.mlflow_uri
    mlflow.set_tracking_uri(uri)
    _open_stores.append(uri)
    try:
        yield mlflow.MlflowClient()
    finally:
        _open_stores.pop()
        if _open_stores:  # nested blocks
            mlflow.set_tracking_uri(_open_stores[-1])
        else:
            # MLflow copies the address into the environment, which `Workspace` reads; this restores the variable.
            mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
            if given is not None:
                os.environ["MLFLOW_TRACKING_URI"] = given


def get_or_create_experiment(client: MlflowClient, workspace: Workspace) -> str:
    """Return the id of Podium's experiment, which is created if it does not exist."""
    existing = client.get_experiment_by_name(EXPERIMENT_NAME)
    if existing is not None:
        return str(existing.experiment_id)
    local = workspace.mlflow_uri.startswith("sqlite:///")  # a server chooses the place of artifacts itself
    place = workspace.mlflow_artifacts.as_uri() if local else None
    return str(client.create_experiment(EXPERIMENT_NAME, place, {"mlflow.note.content": EXPERIMENT_DESCRIPTION}))


def check_stores_all_characters(workspace: Workspace) -> None:
    """Raise `ConfigError` if MLflow's server answers but cannot store every character. A server that does not answer is
    ignored here."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    with connect(workspace) as client:
        from mlflow.exceptions import MlflowException

        try:
            home = get_or_create_experiment(client, workspace)
        except (MlflowException, OSError):  # requests' errors are OSErrors
            return
        try:
            client.set_experiment_tag(home, "podium.characters", "→")
        except (MlflowException, OSError) as error:
            remedy = "Give the server a Postgres database made with ENCODING 'UTF8' TEMPLATE template0"
            problem = f"is a server that does not store every text ({first_line(error)})"
            raise ConfigError("MLFLOW_TRACKING_URI", "", problem, remedy) from error


def find_by_alias(client: MlflowClient, alias: str) -> RegisteredVersion | None:
    """Return the version with that alias, or None."""
    model_version = _find_model_version(client, alias)
    return read_version(client, model_version.version) if model_version else None


def _find_model_version(client: MlflowClient, alias: str) -> ModelVersion | None:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(MODEL_NAME, alias)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def _get_model_version(client: MlflowClient, version: str) -> ModelVersion:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version(MODEL_NAME, version)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        remedy = "The MLflow UI of `podium dev` lists the versions"
        raise RegistryError(f"There is no version {version} of {MODEL_NAME}. {remedy}") from None


def read_version(client: MlflowClient, version: str) -> RegisteredVersion:
    """Return the version with that number. Raises `RegistryError` if there is none."""
    model_version = _get_model_version(client, version)
    # The SQL store keeps the logged model's id in the source alone.
    model_id = model_version.model_id or str(model_version.source).removeprefix("models:/")
    model = client.get_logged_model(model_id)
    return RegisteredVersion(
        version=str(model_version.version),
        run_id=str(model_version.run_id),
        model_id=model_id,
        aliases=tuple(sorted(model_version.aliases)),
        tags=dict(model_version.tags),
        metrics={metric.key: metric.value for metric in model.metrics or []},
    )
