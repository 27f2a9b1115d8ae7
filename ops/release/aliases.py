"""The aliases `champion` and `previous`, changed by one process at a time."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ops.core.digests import DIGEST_SUFFIX
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from ops.release.artifacts import fetch_model_folder
from ops.release.dossier import DOSSIER_FILE, Dossier
from ops.release.lineage import check_lineage
from ops.release.lock import lock_champion
from ops.release.mlflow_store import (
    CHAMPION,
    MODEL_NAME,
    PREVIOUS,
    RegisteredVersion,
    RegistryError,
    connect,
    find_by_alias,
    read_version,
    store_exists,
)
from ops.release.promotion import NO_CHAMPION, GateDecision
from ops.release.registry import VERDICT_FILE
from ops.release.version_facts import DECISION, GAIN, describe_gain, store_facts

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ROLLBACK_RUN_TAG = "rolled_back_by_run"
"""Tag of a replaced version: the Dagster run that requested the rollback."""
_NOTHING_TO_ROLL_BACK = "There is no champion to roll back. Promote a version first"


class ChampionChangedError(RegistryError):
    """The decision no longer applies, because another version became champion after the version was judged or after the
    person decided."""


def promote_version(workspace: Workspace, version: str, decision: GateDecision, dossier: Dossier | None = None) -> bool:
    """Store the gate's decision with the version and, if the version passed, make it the champion. Return whether it is
    the champion now.

    The tag `decision` holds the gate's decision. If a person overrides the gate, that tag stays as it is, and the tags
    `decision` ("overridden"), `override` (name and reason) and `overridden_at` are added. A version that was rolled
    back is promoted again only by an override. Nothing is written if the version is already the champion.

    Raises `RegistryError` if there is no such version, `ChampionChangedError` if the champion is no longer the one in
    `decision.against`, `ReleaseRefusedError` if the version's lineage is incomplete or a file differs from the
    registered one (an override does not change that), and `ChampionLockedError` if another process keeps the lock of
    the champion for too long.
    """
    with lock_champion(workspace), connect(workspace) as client:
        known = read_version(client, version)
        now = find_by_alias(client, CHAMPION)
        if now is not None and now.version == known.version:
            return True
        champion = now.version if now is not None else NO_CHAMPION
        if decision.against not in (None, champion):
            raise ChampionChangedError(
                f"Version {champion} became champion meanwhile; version {version} was judged against "
                f"{decision.against}. Nothing was changed: materialize promotion again, or repeat the override"
            )
        _log_decision(client, known, decision, dossier)
        obstacles = [check.name for check in decision.failed]
        if "rolled_back" in known.tags:
            obstacles.append(f"rolled back ({known.tags['rolled_back']})")
        promoted = decision.override is not None or (decision.promote and not obstacles)
        if promoted:
            check_lineage(version, known.tags)
            with fetch_model_folder(workspace, known):
                pass
        if decision.override is None:
            tags = {"verdict": "promoted" if promoted else f"not promoted; failed checks: {', '.join(obstacles)}"}
        else:
            tags = {
                "verdict": known.tags.get("verdict", "not judged"),
                "decision": "overridden",
                "override": f"{decision.override.name}: {decision.override.reason}",
                "overridden_at": datetime.now(UTC).isoformat(timespec="seconds"),
            }
        facts = {DECISION: tags.get("override", tags["verdict"])}
        if dossier is not None and (gain := describe_gain(dossier)):
            tags, facts = tags | {"gain": gain}, facts | {GAIN: gain}
        for name, value in tags.items():
            client.set_model_version_tag(MODEL_NAME, version, name, value)
        store_facts(client, version, facts)
        if promoted:
            _set_champion(client, known, now)
    return promoted


def roll_back_champion(
    workspace: Workspace, reason: str, person: str = "", run_id: str = "", *, expected_champion: str | None = None
) -> RegisteredVersion:
    """Make the version with the alias `previous` champion again, and record the person's name and the reason on the
    version that it replaces.

    Afterwards `previous` is the version that the new champion had replaced, if any, so that a second rollback goes one
    version further back. `run_id` is the Dagster run that requests the rollback; a second call by the same run does
    nothing, because two daemons may both start it. `expected_champion` is the version that the caller expects to be
    champion; None accepts any.

    Raises `ChampionChangedError` if another version is champion, `RegistryError` if there is no champion or it replaced
    no version, `ReleaseRefusedError` if a file of the previous version differs from the registered one, `ConfigError`
    if the reason is blank, and `ChampionLockedError`.
    """
    if not reason.strip():
        raise ConfigError(
            "rollback", "reason", "is empty", "State the reason; it is recorded with the replaced version"
        )
    if not store_exists(workspace):
        raise RegistryError(_NOTHING_TO_ROLL_BACK)
    with lock_champion(workspace), connect(workspace) as client:
        now = find_by_alias(client, CHAMPION)
        if now is None:
            raise RegistryError(_NOTHING_TO_ROLL_BACK)
        gone = (
            client.search_model_versions(f"name = '{MODEL_NAME}' and tags.{_ROLLBACK_RUN_TAG} = '{run_id}'")
            if run_id
            else []
        )
        if any(str(version.version) != now.version for version in gone):
            return now
        if expected_champion not in (None, now.version):
            raise ChampionChangedError(
                f"Version {now.version} became champion meanwhile; the rollback was meant for version "
                f"{expected_champion}. Nothing was changed: look at `podium status`, and repeat it if the present "
                "champion is to go"
            )
        before = _find_replaced_version(client, now)
        with fetch_model_folder(workspace, before):
            pass
        client.set_model_version_tag(
            MODEL_NAME, now.version, "rolled_back", ": ".join(part.strip() for part in (person, reason) if part.strip())
        )
        if run_id:
            client.set_model_version_tag(MODEL_NAME, now.version, _ROLLBACK_RUN_TAG, run_id)
        client.set_registered_model_alias(MODEL_NAME, CHAMPION, before.version)
        further = before.tags.get("replaced")
        if further and further != now.version:
            client.set_registered_model_alias(MODEL_NAME, PREVIOUS, further)
        else:
            client.delete_registered_model_alias(MODEL_NAME, PREVIOUS)
        return read_version(client, before.version)


def find_rollback_target(workspace: Workspace) -> RegisteredVersion:
    """Return the version that a rollback would make champion. Raises `RegistryError` if there is none."""
    if not store_exists(workspace):
        raise RegistryError(_NOTHING_TO_ROLL_BACK)
    with connect(workspace) as client:
        now = find_by_alias(client, CHAMPION)
        if now is None:
            raise RegistryError(_NOTHING_TO_ROLL_BACK)
        return _find_replaced_version(client, now)


def _find_replaced_version(client: MlflowClient, champion: RegisteredVersion) -> RegisteredVersion:
    previous = find_by_alias(client, PREVIOUS)
    if previous is not None and previous.version != champion.version:
        return previous
    # The champion itself, if a process died between two steps of `_set_champion`.
    replaced = champion.tags.get("replaced")
    if not replaced or replaced == champion.version:
        raise RegistryError(
            f"Champion version {champion.version} did not replace another version: a rollback is not possible"
        )
    return read_version(client, replaced)


def _set_champion(client: MlflowClient, new: RegisteredVersion, previous: RegisteredVersion | None) -> None:
    """Set the champion's alias last, so that a reader meanwhile sees the previous champion intact."""
    if previous is not None:
        client.set_model_version_tag(MODEL_NAME, new.version, "replaced", previous.version)
        client.set_registered_model_alias(MODEL_NAME, PREVIOUS, previous.version)
    client.set_registered_model_alias(MODEL_NAME, CHAMPION, new.version)


def _log_decision(
    client: MlflowClient, known: RegisteredVersion, decision: GateDecision, dossier: Dossier | None
) -> None:
    texts = {VERDICT_FILE: json.dumps(decision.as_dict(), indent=1)}
    if dossier is not None:
        texts[DOSSIER_FILE] = json.dumps(dossier.as_dict(), indent=1, ensure_ascii=False)
    for name, text in texts.items():
        client.log_text(
            known.run_id, f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n", f"{name}{DIGEST_SUFFIX}"
        )
        client.log_text(known.run_id, text, name)
