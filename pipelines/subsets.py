"""What a Conductor does with parts of its pool, before and after the adaptive stage, into docs/reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assets.resources import Podium
from assets.subsets import Sampling, measured
from ops.core.workspace import Workspace
from ops.evaluation.experiment_report import markdown
from ops.evaluation.report import Columns
from ops.stages.subsets import NAME, check
from pipelines.pages import MEASUREMENTS, write_between
from pipelines.run import live, materialize

MARK = "<!-- made by `podium subsets` -->"
HEAD = ["recipe", "on offer", "parts", "before the stage, %", "valid, %", "after it, %", "valid, %",
        "the stage adds, points", "best of them alone, %"]  # fmt: skip


def write_table(workspace: Workspace, recipes: Sequence[str], seed: int, sampling: Sampling) -> Path:
    """Live each recipe, measure its policies on parts of the pool, and write the table between its marks.

    Raises `PodiumError` for a recipe without the stage or a pool without the unseen worker, and where a training ends
    without a result.
    """
    podiums = {recipe: Podium(root=str(workspace.root), recipe=recipe, seed=seed) for recipe in recipes}
    for podium in podiums.values():
        check(podium.load(), sampling.sampling())
    lines: list[list[str | int | float]] = []
    for recipe, podium in podiums.items():
        live(workspace, recipe, seed)
        materialize(workspace, recipe, seed, [NAME], {NAME: sampling.model_dump()})
        lines += [[recipe, *row] for row in measured(podium, sampling).summary.rows]
        write_between(workspace.root / MEASUREMENTS, MARK, markdown(Columns(HEAD, lines)))
    return MEASUREMENTS
