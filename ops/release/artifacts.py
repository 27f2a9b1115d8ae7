"""Hash the files of a model version at registration, and compare them later.

The check detects a damaged disk, an incomplete upload, and a change by a person who can write the artifacts but not
the registry's database, which holds the hashes. It does not protect against a person who can write both
(docs/security.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.core.atomic import sha256_of
from ops.core.workspace import Workspace
from ops.release.lineage import ReleaseRefusedError
from ops.release.mlflow_store import MODEL_NAME, RegisteredVersion, connect

RESTORE_ARTIFACTS = "Restore the artifacts from a backup (`podium restore FILE --only artifacts --replace`)"
"""What helps if a file of a version is damaged."""
FILES_TAG = "files"
"""The tag of a version that holds the SHA-256 of each of its files, as JSON."""
_HASHED_PARTS = ("artifacts/policy", "artifacts/pool.yaml", "agent.py", "code")
CODE_ENTRY = "code"
"""The entry of the hashes that covers the agent and all of its code together; the files of policy and pool have one
entry each."""


def hash_model_files(model: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of policy and pool in the folder of a logged model, by path, and one hash of all
    its code."""
    return hash_files({name: model / name for name in _HASHED_PARTS})


def hash_files(places: Mapping[str, Path]) -> dict[str, str]:
    """Return the hashes that files and folders will have under the given names in the folder of a logged model."""
    found = {
        (name if file == place else f"{name}/{file.relative_to(place).as_posix()}"): sha256_of(file)
        for name, place in places.items()
        for file in _list_files(place)
    }
    code = sorted([name, value] for name, value in found.items() if not name.startswith("artifacts/"))
    named = {name: value for name, value in found.items() if name.startswith("artifacts/")}
    return {**named, CODE_ENTRY: hashlib.sha256(json.dumps(code).encode()).hexdigest()}


def check_files(version: str, model: Path, tags: Mapping[str, str]) -> None:
    """Raise `ReleaseRefusedError` for the first file that was changed, removed or added since the registration, or if
    no hashes were stored."""
    if FILES_TAG not in tags:
        raise ReleaseRefusedError(
            f"version {version}: its tag {FILES_TAG!r}, which holds the hashes of its files, is missing. Materialize "
            "registered_model again: it registers the policy with them"
        )
    known, found = json.loads(tags[FILES_TAG]), hash_model_files(model)
    for name in sorted(known.keys() | found.keys()):
        if known.get(name) == found.get(name):
            continue
        what = "is gone" if name not in found else "was not registered" if name not in known else "has changed"
        raise ReleaseRefusedError(
            f"{model / name}: {what} since version {version} was registered. "
            f"{RESTORE_ARTIFACTS if name in known else 'Remove that file'}; go back with `podium rollback --reason "
            f"WHY`; or delete version {version} in MLflow and materialize registered_model, which registers the "
            "policy again"
        )


@contextmanager
def fetch_model_folder(workspace: Workspace, registered: RegisteredVersion) -> Iterator[Path]:
    """Yield the folder of the logged model after its files were checked. A local store is read in place; files of a
    remote store are copied into a temporary folder. Raises `ReleaseRefusedError`."""
    with connect(workspace), TemporaryDirectory(prefix="podium-model-") as scratch:
        folder = locate_model_folder(workspace, registered, Path(scratch))
        check_files(registered.version, folder, registered.tags)
        yield folder


def locate_model_folder(workspace: Workspace, registered: RegisteredVersion, scratch: Path) -> Path:
    """Return the folder of the logged model without checking its files.

    The files of a remote store are downloaded into `scratch`. Raises `ReleaseRefusedError` if the store lacks them.
    """
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    uri = f"models:/{MODEL_NAME}/{registered.version}"
    try:
        return Path(download_artifacts(artifact_uri=uri, dst_path=None if _is_local_store(workspace) else str(scratch)))
    except (MlflowException, OSError) as error:
        restore = "Restore them from a backup (`podium restore FILE --only artifacts`)"
        remedy = f"{restore}, or go back with `podium rollback --reason WHY`"
        raise ReleaseRefusedError(
            f"{uri}: its files cannot be read ({type(error).__name__}: {error}). {remedy}"
        ) from error


def _is_local_store(workspace: Workspace) -> bool:
    return workspace.mlflow_uri.startswith("sqlite:///")


def _list_files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return sorted(file for file in place.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
