"""All exhibits on one evidence, and where their files lie."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ops.core.workspace import Workspace
from ops.reports.evidence import About, Evidence
from ops.reports.exhibit import EXHIBITS, Exhibit, Shown


class Made(NamedTuple):
    """An exhibit and what it shows, or why it shows nothing (`not run: COMMAND`)."""

    exhibit: Exhibit
    shown: Shown | str


def label(about: About) -> str:
    """What stands beside every exhibit of embedded problems."""
    return "synthetic" if about.synthetic else ""


def make_one(exhibit: Exhibit, evidence: Evidence) -> Made:
    """The exhibit, where the evidence has what it needs."""
    missing = exhibit.missing(evidence)
    return Made(exhibit, missing or exhibit.show(evidence))


def make(evidence: Evidence) -> list[Made]:
    """All of them, in their order."""
    return [make_one(exhibit, evidence) for exhibit in EXHIBITS.values()]


def folder(workspace: Workspace) -> Path:
    """Where reports lie, beside the scores."""
    return workspace.outcome / "reports"


def report_file(workspace: Workspace, about: About) -> Path:
    """`reports/POLICY.html`; of a recipe that evaluates another's policy `reports/POLICY-RECIPE.html`."""
    policy = about.policy or about.recipe
    own = policy.startswith(about.recipe)
    return folder(workspace) / f"{policy if own else f'{policy}-{about.recipe}'}.html"
