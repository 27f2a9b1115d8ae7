"""The head of a report: date, version, the gate's decision, and the result in words."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from ops.core.workspace import Workspace
from ops.release import registry
from ops.reports.claims import FAILS, HOLDS, Claim, test_claims
from ops.reports.evidence import Evidence
from ops.reports.exhibit import format_interval, format_points
from ops.spending.bookings import format_usd


class ReleaseInfo(NamedTuple):
    """A report's date and commit, and what the registry knows about its policy."""

    date: str
    commit: str
    version: str = ""
    """The newest version of the policy in MLflow; empty if it is not registered."""
    champion: str = ""
    """The version with the alias `champion`; empty if there is none."""
    verdict: str = ""
    """The gate's decision about `version`; empty if there was none."""


def load_release_info(workspace: Workspace, policy: str, commit: str, now: datetime) -> ReleaseInfo:
    """Read what the registry knows at present about the policy with the key `policy`."""
    champion = registry.find_champion(workspace)
    date, name = f"{now:%Y-%m-%d %H:%M} UTC", champion.version if champion else ""
    if not (versions := registry.find_versions(workspace, policy)):
        return ReleaseInfo(date, commit, champion=name)
    tags = versions[-1].tags
    verdict = tags.get("verdict", "")
    if by := tags.get("override"):
        verdict = f"{verdict} (overridden by {by})"
    return ReleaseInfo(date, commit, versions[-1].version, name, verdict)


def list_facts(release: ReleaseInfo) -> dict[str, str]:
    """Return the facts about the release, as term → text."""
    if not release.champion:
        champion = "none"
    elif release.champion == release.version:
        champion = f"version {release.champion}, the policy of this report"
    else:
        champion = f"version {release.champion}, another policy"
    return {
        "date": release.date,
        "commit": re.sub(r"^([0-9a-f]{12})[0-9a-f]+", r"\1", release.commit) or "unknown",
        "version": release.version or "not registered",
        "champion": champion,
        "verdict": release.verdict or "not judged",
    }


def write_sentences(evidence: Evidence) -> list[str]:
    """Return the result in sentences: accuracy, difference to the best worker, price; empty without scores."""
    ours = evidence.conductor
    if ours is None:
        return []
    solved = {group: ours.mean_accuracy(over) for group, over in evidence.groups.items()}
    reached = (
        f"{100 * each.mean:.1f} % of the {group} questions (95 % interval {format_interval(each)})"
        for group, each in solved.items()
    )
    said = [f"The Conductor solves {' and '.join(reached)}."]
    best = evidence.systems.get(evidence.best_worker)
    against = [claim for claim in test_claims(evidence) if best is not None and claim.against.name == best.name]
    if best is not None and against:
        said.append(
            f"The difference to the best worker ({_system_name(best.title)}) is "
            f"{' and '.join(map(_describe_claim, against))}."
        )
    prices = [
        f"{format_usd(ours.mean_usage(over).usd)} for each {group} question"
        + (
            f" ({ours.mean_usage(over).usd / best.mean_usage(over).usd:.2f} times the best worker's price)"
            if best
            else ""
        )
        for group, over in evidence.groups.items()
        if best is None or best.mean_usage(over).usd
    ]
    return [*said, f"Its workers cost {' and '.join(prices)}."] if prices else said


def _system_name(title: str) -> str:
    return title.removeprefix("worker ")


def _describe_claim(claim: Claim) -> str:
    row = claim.contrast
    tells = "significant" if claim.verdict in (HOLDS, FAILS) else "not significant"
    between = f"95 % interval {format_points(row.low)} to {format_points(row.high)}"
    return f"{format_points(row.difference)} points {claim.group} ({between}; {tells} after adjustment)"
