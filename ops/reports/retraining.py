"""The files of the page of the retrainings, which `ops.retraining` writes, and what `podium status` reads of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from ops.core.workspace import Workspace


class RetrainingSummary(NamedTuple):
    """One retraining in two lines."""

    at: str
    """When it began, in UTC."""
    change: str
    outcome: str
    version: str | None = None
    """The number of the version that it made; None if it made none."""


def retraining_file(workspace: Workspace) -> Path:
    """Return `reports/retraining.html`."""
    return workspace.reports / "retraining.html"


def summaries_file(workspace: Workspace) -> Path:
    """Return the file beside the page with the summaries of its retrainings, which can be read without libraries."""
    return retraining_file(workspace).with_suffix(".json")


def load_last_summary(workspace: Workspace) -> RetrainingSummary | None:
    """Return the summary of the newest retraining on the page; None if there is none."""
    try:
        newest, *_ = json.loads(summaries_file(workspace).read_text(encoding="utf-8"))
        return RetrainingSummary(**newest)
    except (OSError, ValueError, TypeError):
        return None
