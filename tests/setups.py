"""A setup for the stages of data that no worker is asked for."""

from __future__ import annotations

from ops.config import Pool, Recipe, Setup, Worker
from ops.core.workspace import Workspace

UNUSED_POOL = Pool(name="unused", workers=(Worker(name="unused", model="local/unused"),))


def without_workers(workspace: Workspace, recipe: Recipe) -> Setup:
    """The recipe in that checkout, with a pool that nothing may ask."""
    return Setup(workspace, recipe, UNUSED_POOL)
