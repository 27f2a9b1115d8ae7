"""The head of a report: date, version, the gate's decision, and the result in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from ops.core.workspace import Workspace
from ops.release import registry
from ops.release.lineage import describe_cost
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
    cost: str = ""
    """What `version` cost, in the sentences that its page in MLflow has; empty if it is not known."""


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
    return ReleaseInfo(date, commit, versions[-1].version, name, verdict, describe_cost(tags))


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


def write_sentences(evidence: Evidence, verdict: str = "") -> list[str]:
    """Return what the Conductor is and reaches, how much better it is than the best worker at what price, and whether
    to use it, in a sentence each; empty without scores. `verdict` is the gate's decision."""
    ours, best = evidence.conductor, evidence.systems.get(evidence.best_worker)
    if ours is None:
        return []
    workers = len(evidence.list_systems("worker"))
    team = f"the {workers} workers of the pool" if workers else "the workers of the pool"
    solved = {group: ours.mean_accuracy(over) for group, over in evidence.groups.items()}
    reached = (
        f"{100 * each.mean:.1f} % of the {group} questions (95 % interval {format_interval(each)})"
        for group, each in solved.items()
    )
    task = f"The Conductor writes a workflow of calls to {team} `{evidence.run.pool}` for each question"
    said = [f"{task}, and solves {' and '.join(reached)}."]
    made = test_claims(evidence)
    against = [claim for claim in made if best is not None and claim.against.name == best.name]
    if best is not None and against:
        said.append(
            f"The difference to the best worker ({_system_name(best.title)}) is "
            f"{', and '.join(map(_describe_claim, against))}."
        )
    else:
        prices = (
            f"{format_usd(ours.mean_values(over)['cost_usd'])} for each {group} question"
            for group, over in evidence.groups.items()
        )
        said.append(f"Its workers cost {' and '.join(prices)}, and no single worker was scored for comparison.")
    return [*said, f"{_recommend(against)} {_list_objections(evidence, made, verdict)}"]


def describe_training_cost(evidence: Evidence, version_cost: str = "") -> str:
    """Return sentences with the steps, rollouts, minutes and USD of the training; empty if they are not known.

    `version_cost` is what the registered version cost. Without it, only the USD of the rollouts are known.
    """
    cost = evidence.training_cost
    if cost is None:
        return version_cost
    paid = version_cost or f"Without the cache, the rollouts would have cost {format_usd(cost.rollouts_usd)}."
    took = f"{cost.steps:,} steps with {cost.rollouts:,} rollouts in {cost.seconds / 60:,.1f} minutes"
    return f"Training took {took}. {paid}"


def _recommend(against: Sequence[Claim]) -> str:
    """Whether to use the Conductor in place of the best worker, by the tested claims."""
    if not against:
        return "These measurements do not say whether to use it."
    better = [claim.group for claim in against if claim.verdict == HOLDS]
    if len(better) == len(against):
        return "Use it where this gain is worth the price: it is significant on all questions."
    if better:
        return f"Use it for {' and '.join(better)} questions only: on the others no gain is proven."
    return "Do not use it in place of the best worker: no gain is proven."


def _list_objections(evidence: Evidence, claims: Sequence[Claim], verdict: str) -> str:
    """Say what speaks against the Conductor: cheaper systems that are as accurate, dearer ones that are better, invalid
    workflows, the gate, and problems that are not real."""
    said = []
    for claim in claims:
        points, dearer = format_points(-claim.contrast.difference), claim.their_usd > claim.our_usd
        if claim.verdict == FAILS:
            price = f"{format_usd(claim.their_usd)} instead of {format_usd(claim.our_usd)} a question"
            said.append(f"{claim.against.title} is {points} points more accurate {claim.group} ({price})")
        elif claim.contrast.difference <= 0 and not dearer:
            said.append(f"{claim.against.title} is as accurate {claim.group} and costs no more")
    summaries = evidence.workflow_summaries.values()
    written, answers = sum(each.written for each in summaries), sum(each.rows for each in summaries)
    if written < answers:
        said.append(f"{answers - written} of its {answers:,} workflows are invalid")
    if verdict.startswith("not promoted"):
        said.append("the promotion gate refused it")
    if evidence.run.is_synthetic:
        said.append(
            "the questions are generated and the workers are small programs, so no figure holds for real models"
        )
    return f"What speaks against it: {'; '.join(said)}." if said else "Nothing in these measurements speaks against it."


def _system_name(title: str) -> str:
    return title.removeprefix("worker ")


def _describe_claim(claim: Claim) -> str:
    row = claim.contrast
    tells = "significant" if claim.verdict in (HOLDS, FAILS) else "not significant"
    between = f"95 % interval {format_points(row.low)} to {format_points(row.high)}, {tells}"
    ours, theirs = format_usd(claim.our_usd), format_usd(claim.their_usd)
    times = f"{claim.our_usd / claim.their_usd:.2f} times its price, " if claim.their_usd else ""
    price = f"at {times}{ours} instead of {theirs} a question"
    return f"{format_points(row.difference)} points {claim.group} ({between}) {price}"
