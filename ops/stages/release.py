"""Change the champion: decide, set the MLflow alias, write the verdict page and send an alert.

Assets, jobs and commands call these functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from ops.alerts import notify
from ops.alerts.catalogue import (
    CHAMPION_FALLS,
    CHAMPION_STAYS_BELOW,
    CHAMPION_TOO_COSTLY,
    FIRST_STEP_INVALID,
    KEPT_BACK,
    PROMOTED,
    ROLLED_BACK,
    TRAIN_ANEW,
)
from ops.alerts.notify import close_alerts
from ops.config import PromotionGate, Setup
from ops.core.atomic import write_text
from ops.core.errors import ConfigError
from ops.core.workspace import Workspace
from ops.evaluation.comparison import read_comparison
from ops.release import aliases, mlflow_store, registry
from ops.release.dossier import Dossier
from ops.release.judgement import apply_gate
from ops.release.lineage import FINE_TUNED_FROM
from ops.release.promotion import NO_CHAMPION, GateDecision, override_decision
from ops.release.way_back import describe_way_back
from ops.reports.decision_page import VersionStatus, render_decision_page
from ops.reports.retraining import retraining_file


@dataclass(frozen=True)
class PromotionOutcome:
    """The result of judging or promoting a registered version."""

    version: str
    is_champion: bool
    """True if the version is the champion now."""
    verdict: str
    """The gate's verdict: "promoted", "not promoted; failed checks: …" or "not judged"."""
    decision: GateDecision
    dossier: Dossier | None
    page: Path
    """The file of the verdict page, which is also stored among the version's artifacts."""
    has_changed: bool = True
    """False if the version was the champion already, so that nothing was written."""


def judge_and_promote(setup: Setup, policy: Path, gate: PromotionGate) -> PromotionOutcome:
    """Judge the challenger by the promotion gate, and make it the champion if it passes.

    The challenger must be the policy in folder `policy`. Raises `RegistryError`, `ReleaseRefusedError`,
    `ChampionChangedError` and `DataError`.
    """
    workspace, tested = setup.workspace, read_comparison(setup, policy)
    challenger = registry.get_challenger_with_policy(workspace, tested.policy)
    judged = apply_gate(setup, challenger, tested, gate)
    promoted = aliases.promote_version(workspace, challenger.version, judged.decision, judged.dossier)
    return _publish_outcome(workspace, challenger, judged.decision, promoted)


def find_version_to_promote(workspace: Workspace, version: str | None) -> mlflow_store.RegisteredVersion:
    """Return the registered version with this number; for None, return the challenger.

    Raises `RegistryError` if there is no such version, and `ConfigError` for a blank number.
    """
    if version is not None and not version.strip():
        raise ConfigError("promote", "version", "is blank", "Name a version, or none for the challenger")
    known = registry.get_version(workspace, version.strip()) if version else registry.find_challenger(workspace)
    if known is None:
        raise mlflow_store.RegistryError("There is no challenger: `podium run` registers one")
    return known


def promote_manually(
    workspace: Workspace, version: str | None, by: str, reason: str, *, against: str | None = None
) -> PromotionOutcome:
    """Make a version the champion regardless of the gate, and record who decided it and why.

    `version` None stands for the challenger. `against` is the champion (or `NO_CHAMPION`) that the person agreed to
    replace; None stands for the present champion. Raises `RegistryError` if there is no such version, `ConfigError` for
    a blank name or reason, `ReleaseRefusedError` and `ChampionChangedError`.
    """
    before, known = registry.find_champion(workspace), find_version_to_promote(workspace, version)
    decision = override_decision(registry.load_decision(workspace, known.version), by, reason)
    decision = replace(decision, against=against or (before.version if before else NO_CHAMPION))
    if before is not None and before.version == known.version:
        page = _publish_page(workspace, known)
        said = known.tags.get("verdict", "")
        return PromotionOutcome(
            known.version, True, said, decision, registry.load_dossier(workspace, known.version), page, False
        )
    return _publish_outcome(workspace, known, decision, aliases.promote_version(workspace, known.version, decision))


def roll_back(
    workspace: Workspace, reason: str, by: str = "", run: str = "", *, against: str | None = None
) -> mlflow_store.RegisteredVersion:
    """Make the previous champion the champion again, and note the reason on the page of the replaced version.

    `run` identifies the caller's run, so that a repeated call changes nothing. `against` is the version that a person
    agreed to replace; None stands for the present champion. Raises `RegistryError` (also if another version became
    champion meanwhile), `ReleaseRefusedError`, and `ConfigError` without a reason.
    """
    gone = registry.find_champion(workspace)
    back = aliases.roll_back_champion(
        workspace, reason, by, run, expected_champion=against or (gone.version if gone else None)
    )
    if gone is not None and gone.version != back.version:
        gone = registry.get_version(workspace, gone.version)
        _publish_page(workspace, gone)
        title = f"rolled back: version {back.version} is champion again"
        closed = _close_alerts_of_champion(workspace, f"version {back.version} is champion again")
        text = "\n".join([
            f"Version {gone.version} goes. {gone.tags['rolled_back']}",
            f"To undo this: podium promote {gone.version} --by NAME --reason WHY",
            *closed,
        ])  # fmt: skip
        notify(workspace, ROLLED_BACK.make_notice(title, text, _link_to_version(workspace, gone)))
    return back


def _publish_outcome(
    workspace: Workspace, before: mlflow_store.RegisteredVersion, decision: GateDecision, promoted: bool
) -> PromotionOutcome:
    """Write the version's verdict page, and send an alert if its verdict or its aliases changed."""
    now = registry.get_version(workspace, before.version)
    page = _publish_page(workspace, now)
    said, summary = now.tags.get("verdict", ""), _summarize_decision(now, decision)
    link = _link_to_version(workspace, now)
    if not link and FINE_TUNED_FROM in now.tags:
        link = str(retraining_file(workspace))
    if (said, now.aliases) == (before.tags.get("verdict"), before.aliases) and decision.override is None:
        pass  # a repeated judgement gave the same result
    elif promoted:
        closed = _close_alerts_of_champion(workspace, f"version {now.version} is champion")
        back = describe_way_back(workspace).replace("`", "")
        text = "\n".join([summary, *([f"{back}."] if back else []), *closed])
        notify(workspace, PROMOTED.make_notice(f"version {now.version} is champion", text, link))
    else:
        title = f"version {now.version} was {said}"
        notify(workspace, KEPT_BACK.make_notice(title, summary, link, subject=now.version, version=now.version))
    return PromotionOutcome(now.version, promoted, said, decision, registry.load_dossier(workspace, now.version), page)


def _close_alerts_of_champion(workspace: Workspace, because: str) -> list[str]:
    """Close the alerts that another champion solves, and return a line about each for the message about it."""
    solved = (CHAMPION_FALLS, CHAMPION_STAYS_BELOW, CHAMPION_TOO_COSTLY, FIRST_STEP_INVALID, KEPT_BACK, TRAIN_ANEW)
    return [f"This closes the alert: {title}" for title in close_alerts(workspace, solved, because)]


def _publish_page(workspace: Workspace, registered: mlflow_store.RegisteredVersion) -> Path:
    tags = registered.tags
    fate = VersionStatus(tags.get("verdict", ""), tags.get("override", ""), tags.get("rolled_back", ""))
    decision = registry.load_decision(workspace, registered.version)
    dossier = registry.load_dossier(workspace, registered.version)
    text = render_decision_page(registered.version, decision, dossier, fate)
    file = workspace.reports / f"verdict-version-{registered.version}.html"
    write_text(file, text)
    registry.attach_file(workspace, registered, file, "report")
    return file


def _summarize_decision(registered: mlflow_store.RegisteredVersion, decision: GateDecision) -> str:
    lines = [f"recipe {registered.tags.get('recipe', '?')}, policy {registered.tags.get('policy', '?')}"]
    if decision.override is not None:
        lines.append(f"override by {decision.override.name}: {decision.override.reason}")
    lines += [f"failed: {check.describe_value()}" for check in decision.failed]
    return "\n".join(lines)


def _link_to_version(workspace: Workspace, registered: mlflow_store.RegisteredVersion) -> str:
    """Return the version's URL in a shared MLflow server, without credentials; "" for a local MLflow store."""
    parts = urlsplit(workspace.mlflow_uri)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        return ""
    port = f":{parts.port}" if parts.port else ""
    where = f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}"
    return f"{where}/#/models/{mlflow_store.MODEL_NAME}/versions/{registered.version}"
