"""The file of the page of retrainings, which `ops.retraining` writes and messages name."""

from __future__ import annotations

from pathlib import Path

from ops.core.workspace import Workspace


def retraining_file(workspace: Workspace) -> Path:
    """Return `reports/retraining.html`."""
    return workspace.reports / "retraining.html"
