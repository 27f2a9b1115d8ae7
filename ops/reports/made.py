"""All exhibits on one evidence, and the files that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ops.core.atomic import write_text
from ops.core.workspace import Workspace
from ops.reports.evidence import About, Evidence
from ops.reports.exhibit import EXHIBITS, Exhibit, Shown, Table


class Made(NamedTuple):
    """An exhibit and what it shows, or why it shows nothing (`not run: COMMAND`)."""

    exhibit: Exhibit
    shown: Shown | str


def label(about: About) -> str:
    """What stands beside every exhibit of embedded problems."""
    return "miniature" if about.miniature else ""


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


def write_page(workspace: Workspace, evidence: Evidence, made: Sequence[Made]) -> Path:
    """The HTML as `report_file`, whole or not at all."""
    from ops.reports.page import page

    file = report_file(workspace, evidence.about)
    write_text(file, page(evidence, made))
    return file


def write_pictures(workspace: Workspace, evidence: Evidence, made: Sequence[Made]) -> list[Path]:
    """Every chart as `reports/POLICY/EXHIBIT-NUMBER.png`."""
    from ops.reports.style import png

    home = report_file(workspace, evidence.about).with_suffix("")
    home.mkdir(parents=True, exist_ok=True)
    files = []
    for exhibit, shown in made:
        for number, part in enumerate(shown.parts if isinstance(shown, Shown) else (), start=1):
            if not isinstance(part, Table):
                files.append(home / f"{exhibit.name}-{number}.png")
                files[-1].write_bytes(png(part, label(evidence.about)))
    return files
