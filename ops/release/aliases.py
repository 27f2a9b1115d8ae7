"""The aliases `champion` and `previous`, changed by one process at a time."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ops.core.digests import DIGEST_SUFFIX
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from ops.release.artifacts import fetched
from ops.release.dossier import DOSSIER, Dossier
from ops.release.lineage import check_complete
from ops.release.lock import alone
from ops.release.mlflow_store import (
    CHAMPION,
    MODEL,
    PREVIOUS,
    Registered,
    RegistryError,
    aliased,
    connected,
    store_exists,
    version_named,
)
from ops.release.promotion import NO_CHAMPION, GateDecision
from ops.release.registry import VERDICT

if TYPE_CHECKING:
    from mlflow import MlflowClient

_BY_RUN = "rolled_back_by_run"
"""Tag of a replaced version: the Dagster run that requested the rollback."""
_NOTHING_TO_ROLL_BACK = "There is no champion to roll back. Promote a version first"


class Overtaken(RegistryError):
    """The decision no longer applies, because another version became champion after the version was judged or after the
    person decided."""


def promote(workspace: Workspace, version: str, verdict: GateDecision, dossier: Dossier | None = None) -> bool:
    """Store the gate's decision with the version and, if the version passed, make it the champion. Return whether it is
    the champion now.

    The tag `verdict` holds the gate's decision. If a person overrides the gate, that tag stays as it is, and the tags
    `decision` ("overridden"), `override` (name and reason) and `overridden_at` are added. A version that was rolled
    back is promoted again only by an override. Nothing is written if the version is already the champion.

    Raises `RegistryError` if there is no such version, `Overtaken` if the champion is no longer the one in
    `verdict.against`, `Refused` if the version's lineage is incomplete or a file differs from the registered one (an
    override does not change that), and `Locked` if another process keeps the lock of the champion for too long.
    """
    with alone(workspace), connected(workspace) as client:
        known = version_named(client, version)
        now = aliased(client, CHAMPION)
        if now is not None and now.version == known.version:
            return True
        champion = now.version if now is not None else NO_CHAMPION
        if verdict.against not in (None, champion):
            raise Overtaken(
                f"Version {champion} became champion meanwhile; version {version} was judged against "
                f"{verdict.against}. Nothing was changed: materialize promotion again, or repeat the override"
            )
        _log(client, known, verdict, dossier)
        obstacles = [check.name for check in verdict.failed]
        if "rolled_back" in known.tags:
            obstacles.append(f"rolled back ({known.tags['rolled_back']})")
        promoted = verdict.override is not None or (verdict.promote and not obstacles)
        if promoted:
            check_complete(version, known.tags)
            with fetched(workspace, known):
                pass
        if verdict.override is None:
            tags = {"verdict": "promoted" if promoted else f"not promoted; failed checks: {', '.join(obstacles)}"}
        else:
            tags = {
                "verdict": known.tags.get("verdict", "not judged"),
                "decision": "overridden",
                "override": f"{verdict.override.name}: {verdict.override.reason}",
                "overridden_at": datetime.now(UTC).isoformat(timespec="seconds"),
            }
        for name, value in tags.items():
            client.set_model_version_tag(MODEL, version, name, value)
        if promoted:
            _move(client, known, now)
    return promoted


def rollback(
    workspace: Workspace, reason: str, by: str = "", run: str = "", *, against: str | None = None
) -> Registered:
    """Make the version with the alias `previous` champion again, and record the person's name and the reason on the
    version that it replaces.

    Afterwards `previous` is the version that the new champion had replaced, if any, so that a second rollback goes one
    version further back. `run` is the Dagster run that requests the rollback; a second call by the same run does
    nothing, because two daemons may both start it. `against` is the version that the caller expects to be champion;
    None accepts any.

    Raises `Overtaken` if another version is champion, `RegistryError` if there is no champion or it replaced no
    version, `Refused` if a file of the previous version differs from the registered one, `ConfigError` if the reason is
    blank, and `Locked`.
    """
    if not reason.strip():
        raise ConfigError(
            "rollback", "reason", "is empty", "State the reason; it is recorded with the replaced version"
        )
    if not store_exists(workspace):
        raise RegistryError(_NOTHING_TO_ROLL_BACK)
    with alone(workspace), connected(workspace) as client:
        now = aliased(client, CHAMPION)
        if now is None:
            raise RegistryError(_NOTHING_TO_ROLL_BACK)
        gone = client.search_model_versions(f"name = '{MODEL}' and tags.{_BY_RUN} = '{run}'") if run else []
        if any(str(version.version) != now.version for version in gone):
            return now
        if against not in (None, now.version):
            raise Overtaken(
                f"Version {now.version} became champion meanwhile; the rollback was meant for version {against}. "
                "Nothing was changed: look at `podium status`, and repeat it if the present champion is to go"
            )
        before = _before(client, now)
        with fetched(workspace, before):
            pass
        client.set_model_version_tag(
            MODEL, now.version, "rolled_back", ": ".join(part.strip() for part in (by, reason) if part.strip())
        )
        if run:
            client.set_model_version_tag(MODEL, now.version, _BY_RUN, run)
        client.set_registered_model_alias(MODEL, CHAMPION, before.version)
        further = before.tags.get("replaced")
        if further and further != now.version:
            client.set_registered_model_alias(MODEL, PREVIOUS, further)
        else:
            client.delete_registered_model_alias(MODEL, PREVIOUS)
        return version_named(client, before.version)


def before_champion(workspace: Workspace) -> Registered:
    """Return the version that a rollback would make champion. Raises `RegistryError` if there is none."""
    if not store_exists(workspace):
        raise RegistryError(_NOTHING_TO_ROLL_BACK)
    with connected(workspace) as client:
        now = aliased(client, CHAMPION)
        if now is None:
            raise RegistryError(_NOTHING_TO_ROLL_BACK)
        return _before(client, now)


def _before(client: MlflowClient, now: Registered) -> Registered:
    previous = aliased(client, PREVIOUS)
    if previous is not None and previous.version != now.version:
        return previous
    # The champion itself, if a process died between two steps of `_move`.
    replaced = now.tags.get("replaced")
    if not replaced or replaced == now.version:
        raise RegistryError(
            f"Champion version {now.version} did not replace another version: a rollback is not possible"
        )
    return version_named(client, replaced)


def _move(client: MlflowClient, to: Registered, before: Registered | None) -> None:
    """Set the champion's alias last, so that a reader meanwhile sees the previous champion intact."""
    if before is not None:
        client.set_model_version_tag(MODEL, to.version, "replaced", before.version)
        client.set_registered_model_alias(MODEL, PREVIOUS, before.version)
    client.set_registered_model_alias(MODEL, CHAMPION, to.version)


def _log(client: MlflowClient, known: Registered, verdict: GateDecision, dossier: Dossier | None) -> None:
    texts = {VERDICT: json.dumps(verdict.as_dict(), indent=1)}
    if dossier is not None:
        texts[DOSSIER] = json.dumps(dossier.as_dict(), indent=1, ensure_ascii=False)
    for name, text in texts.items():
        client.log_text(
            known.run_id, f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n", f"{name}{DIGEST_SUFFIX}"
        )
        client.log_text(known.run_id, text, name)
