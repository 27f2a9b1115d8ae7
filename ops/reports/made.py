"""Make all exhibits for one `Evidence`, and name their files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ops.core.workspace import Workspace
from ops.reports.evidence import About, Evidence
from ops.reports.exhibit import EXHIBITS, Exhibit, Shown


class Made(NamedTuple):
    """An exhibit and its content, or the reason why it has none (`not run: COMMAND`)."""

    exhibit: Exhibit
    shown: Shown | str


def label(about: About) -> str:
    """Label of every exhibit on embedded problems; empty for other runs."""
    return "synthetic" if about.synthetic else ""


def make_one(exhibit: Exhibit, evidence: Evidence) -> Made:
    """Make the exhibit, or state the missing evidence."""
    missing = exhibit.missing(evidence)
    return Made(exhibit, missing or exhibit.show(evidence))


def make(evidence: Evidence) -> list[Made]:
    """Make all exhibits in report order."""
    return [make_one(exhibit, evidence) for exhibit in EXHIBITS.values()]


def folder(workspace: Workspace) -> Path:
    """Folder of the reports."""
    return workspace.outcome / "reports"


def report_file(workspace: Workspace, about: About) -> Path:
    """`reports/POLICY.html`, or `reports/POLICY-RECIPE.html` if the recipe evaluates another recipe's policy."""
    policy = about.policy or about.recipe
    own = policy.startswith(about.recipe)
    return folder(workspace) / f"{policy if own else f'{policy}-{about.recipe}'}.html"
