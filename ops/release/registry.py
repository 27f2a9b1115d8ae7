"""Read and write the versions of the Conductor in MLflow's registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ops.core.digests import DIGEST_SUFFIX, check_digest
from ops.core.errors import DataError, first_line
from ops.core.workspace import Workspace
from ops.core.workspace_parts import record_parts
from ops.release.artifacts import RESTORE_ARTIFACTS
from ops.release.lineage import FINE_TUNED_FROM, Lineage
from ops.release.mlflow_store import (
    CHALLENGER,
    CHAMPION,
    MODEL_NAME,
    RegisteredVersion,
    RegistryError,
    connect,
    find_by_alias,
    read_version,
    store_exists,
)
from ops.release.version_facts import REPORT, store_facts

if TYPE_CHECKING:
    import polars as pl
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

    from ops.config import Pool, Recipe
    from ops.release.dossier import Dossier
    from ops.release.promotion import GateDecision
    from ops.results.table import Rows

SCORES_FILE = "scores.parquet"
"""The artifact with a version's scores. A file beside it holds its digest."""
VERDICT_FILE = "verdict.json"
"""The artifact with the last decision about a version."""


def register_version(
    workspace: Workspace,
    policy: Path,
    pool: Pool,
    rows: Rows,
    lineage: Lineage,
    *,
    tags: Mapping[str, str] | None = None,
    recipe: Recipe | None = None,
    training_runs: Mapping[str, str] | None = None,
    checkpoint: str | None = None,
) -> RegisteredVersion:
    """Log the serving agent with its policy, pool and scores, and register it as challenger.

    The parameters of the version come from `recipe`. The training runs (stage → run in this store) and the logged model
    of `checkpoint` are linked with it. The same policy, pool and scores on the same questions are registered once; a
    second call returns the existing version. Texts of answers are not stored, so that no question of a confidential
    benchmark reaches the store.

    Raises `DataError` if the folder holds no policy or a damaged one, and `RegistryError` if a server or its artifact
    store does not accept the model; no version is registered then.
    """
    from ops.conductor.policy import PolicyCard, check_policy
    from ops.release.model_card import Release
    from ops.release.new_version import compute_content_key, log_version

    check_policy(policy)
    card, content = PolicyCard.read(policy), compute_content_key(policy, pool, rows)
    with connect(workspace) as client:
        model_version = _find_same_content(client, content, lineage)
        if model_version is None:
            texts = {**lineage.as_tags(), **(tags or {}), "content": content}
            release = Release(
                card, pool, rows, lineage, recipe, texts.get("seed", ""), training_runs,
                fine_tuned_from=texts.get(FINE_TUNED_FROM, ""), checkpoint=checkpoint,
            )  # fmt: skip
            with _shorten_server_errors(workspace):
                model_version = log_version(workspace, client, policy, release, texts)
        client.set_registered_model_alias(MODEL_NAME, CHALLENGER, model_version.version)
        registered = read_version(client, model_version.version)
    record_parts(workspace)
    return registered


def assign_analysis_number(workspace: Workspace, champion: RegisteredVersion | None, version: str) -> int:
    """Return the number, from 1, of the interim analysis in which a version is compared with a champion (None if there
    is none).

    The number is written to the version before the comparison and does not change. A version is a policy with its
    scores, so a second comparison, or one after a crash, is the same analysis. Analyses on different questions are
    counted together, because they share the probability that a worse version replaces this champion. Raises
    `RegistryError` if there is no such version.
    """
    from ops.release.lock import lock_champion
    from ops.release.promotion import NO_CHAMPION

    tag = f"analysis_against_{champion.version if champion else NO_CHAMPION}"
    with lock_champion(workspace), connect(workspace) as client:
        known = read_version(client, version).tags.get(tag)
        if known is not None:
            return int(known)
        others = client.search_model_versions(f"name = '{MODEL_NAME}'")
        analysis = 1 + max((int(other.tags[tag]) for other in others if tag in other.tags), default=0)
        client.set_model_version_tag(MODEL_NAME, version, tag, str(analysis))
    return analysis


def load_decision(workspace: Workspace, version: str) -> GateDecision:
    """Return the last decision about a version, or "not promoted" if there was none. Raises `RegistryError` if there is
    no such version."""
    from ops.release.promotion import GateDecision

    if not store_exists(workspace):
        raise RegistryError(f"There is no version {version} of {MODEL_NAME}: nothing is registered yet")
    with connect(workspace) as client, TemporaryDirectory() as folder:
        facts = _load_json_artifact(client, read_version(client, version), VERDICT_FILE, Path(folder))
    return GateDecision(promote=False, checks=()) if facts is None else GateDecision.from_dict(facts)


def load_dossier(workspace: Workspace, version: str) -> Dossier | None:
    """Return the evidence of the last decision about a version; None if none was stored. Raises `RegistryError`."""
    from ops.release.dossier import DOSSIER_FILE, Dossier

    with connect(workspace) as client, TemporaryDirectory() as folder:
        facts = _load_json_artifact(client, read_version(client, version), DOSSIER_FILE, Path(folder))
    return None if facts is None else Dossier.from_dict(facts)


def get_version(workspace: Workspace, version: str) -> RegisteredVersion:
    """Return the version with that number. Raises `RegistryError` if there is none."""
    if not store_exists(workspace):
        raise RegistryError(f"There is no version {version} of {MODEL_NAME}: nothing is registered yet")
    with connect(workspace) as client:
        return read_version(client, version)


def attach_file(workspace: Workspace, registered: RegisteredVersion, file: Path, folder: str) -> None:
    """Add a file to the artifacts of a version. It replaces a file of the same name."""
    with connect(workspace) as client:
        client.log_artifact(registered.run_id, str(file), folder)


def attach_to_policy(workspace: Workspace, policy: str, files: Sequence[Path], folder: str) -> list[str]:
    """Add files to the artifacts of every version with that policy, and link the first one in the version's description
    as its report. They replace files of the same names.

    Returns these versions, the oldest first; the list is empty if the policy is not registered.
    """
    if not store_exists(workspace):
        return []
    with connect(workspace) as client:
        found = client.search_model_versions(f"name = '{MODEL_NAME}' and tags.policy = '{policy}'")
        for model_version in found:
            for file in files:
                client.log_artifact(str(model_version.run_id), str(file), folder)
            home = client.get_run(str(model_version.run_id)).info.experiment_id
            place = f"#/experiments/{home}/runs/{model_version.run_id}/artifacts/{folder}/{files[0].name}"
            store_facts(client, str(model_version.version), {REPORT: f"[{files[0].name}]({place})"})
        return sorted((str(model_version.version) for model_version in found), key=int)


def find_versions(workspace: Workspace, policy: str) -> list[RegisteredVersion]:
    """Return the versions whose policy has that key, the oldest first."""
    return find_versions_by_tag(workspace, "policy", policy)


def find_versions_by_tag(workspace: Workspace, tag: str, value: str) -> list[RegisteredVersion]:
    """Return the versions that have a tag with that value, the oldest first."""
    if not store_exists(workspace):
        return []
    with connect(workspace) as client:
        found = client.search_model_versions(f"name = '{MODEL_NAME}' and tags.{tag} = '{value}'")
        return [read_version(client, version) for version in sorted((str(each.version) for each in found), key=int)]


def find_champion(workspace: Workspace) -> RegisteredVersion | None:
    """Return the version with the alias `champion`, or None. A missing store is not created."""
    return _find_by_alias(workspace, CHAMPION)


def find_challenger(workspace: Workspace) -> RegisteredVersion | None:
    """Return the version that was registered last, or None."""
    return _find_by_alias(workspace, CHALLENGER)


def get_latest_version(workspace: Workspace) -> RegisteredVersion:
    """Return the challenger, or the champion if there is no challenger. Raises `RegistryError` if there is neither."""
    known = find_challenger(workspace) or find_champion(workspace)
    if known is None:
        raise RegistryError("There is neither a challenger nor a champion: `podium run` registers one")
    return known


def get_challenger_with_policy(workspace: Workspace, policy: str) -> RegisteredVersion:
    """Return the challenger, after checking that it has the policy with that key, because a decision applies to these
    scores only.

    Raises `RegistryError`.
    """
    known = find_challenger(workspace)
    if known is None:
        raise RegistryError("There is no challenger. Materialize registered_model first")
    if (held := known.tags.get("policy")) != policy:
        raise RegistryError(
            f"The challenger, version {known.version}, holds policy {held or 'of an unknown key'}; the scores are of "
            f"{policy}. Materialize registered_model first"
        )
    return known


def _find_by_alias(workspace: Workspace, alias: str) -> RegisteredVersion | None:
    if not store_exists(workspace):
        return None
    with connect(workspace) as client:
        return find_by_alias(client, alias)


def load_scores(workspace: Workspace, registered: RegisteredVersion) -> pl.LazyFrame:
    """Return the scores of each question that are stored with a version. Completions and answers in them are empty.

    Raises `DataError` if the file was changed since the registration.
    """
    from ops.results.table import scan_rows

    remedy = f"{RESTORE_ARTIFACTS}, or delete version {registered.version} in MLflow"
    with connect(workspace) as client, TemporaryDirectory() as folder:
        _download_artifact(client, registered.run_id, f"{SCORES_FILE}{DIGEST_SUFFIX}", Path(folder))
        file = Path(client.download_artifacts(registered.run_id, SCORES_FILE, folder))
        return scan_rows(file, remedy, undigested="accepted").collect().lazy()


@contextmanager
def _shorten_server_errors(workspace: Workspace) -> Iterator[None]:
    """Turn a failure of an MLflow server into a one-line error; errors of a local store are unchanged."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:  # requests' errors are OSErrors
        if not workspace.mlflow_uri.startswith("http"):
            raise
        raise RegistryError(
            f"MLflow ({workspace.mlflow_uri}) did not accept the model ({first_line(error)}); no version was "
            "made. Check the server and its artifact store, and run the same command again"
        ) from error


def _find_same_content(client: MlflowClient, content: str, lineage: Lineage) -> ModelVersion | None:
    """Return the newest version of that content that was scored on the same questions, as far as its tags state
    them."""
    versions = [
        each
        for each in client.search_model_versions(f"name = '{MODEL_NAME}' and tags.content = '{content}'")
        if each.tags.get("evaluation", lineage.evaluation) == lineage.evaluation
    ]
    return max(versions, key=lambda model_version: int(model_version.version), default=None)


def _load_json_artifact(client: MlflowClient, registered: RegisteredVersion, name: str, folder: Path) -> Any:
    """Return a JSON file among the artifacts of a version's run; None if there is none. Raises `RegistryError` for one
    that is not what was written."""
    try:
        _download_artifact(client, registered.run_id, f"{name}{DIGEST_SUFFIX}", folder)
        text = _download_artifact(client, registered.run_id, name, folder)
        if text is None:
            return None
        check_digest(folder / name, RESTORE_ARTIFACTS, missing="accepted")
        return json.loads(text)
    except (DataError, ValueError, OSError) as error:
        place = client.get_run(registered.run_id).info.artifact_uri
        said = error.problem if isinstance(error, DataError) else first_line(error)
        raise RegistryError(
            f"{place}/{name}: is not what was written about version {registered.version} ({said}). {RESTORE_ARTIFACTS}"
        ) from error


def _download_artifact(client: MlflowClient, run: str, name: str, folder: Path) -> str | None:
    if name not in {file.path for file in client.list_artifacts(run)}:
        return None
    return Path(client.download_artifacts(run, name, str(folder))).read_text(encoding="utf-8")
