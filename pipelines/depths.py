"""What rounds add: a Conductor at each depth, before and after the recursive stage, into docs/reference."""

from __future__ import annotations

from pathlib import Path

from assets.depths import Extent, measured
from assets.resources import Podium
from ops.core.workspace import Workspace
from ops.evaluation.experiment_report import markdown
from ops.evaluation.report import Columns
from ops.stages.depths import NAME, check
from pipelines.pages import MEASUREMENTS, write_between
from pipelines.run import live, materialize

MARK = "<!-- made by `podium depths` -->"
HEAD = ["recipe", "the stage", "rounds after the first", "in-domain, %", "minus none, points", "unseen, %",
        "minus none, points", "calls a question", "USD a question", "kept, %", "the rounds end by, %"]  # fmt: skip


def write_table(workspace: Workspace, recipe: str, seed: int, deepest: int, per_benchmark: int | None) -> Path:
    """Live the recipe and write what its policies do at depths 0 to `deepest` between the marks, on so many questions
    of each benchmark (None: all). Raises `PodiumError` for a recipe without the stage."""
    podium, extent = (
        Podium(root=str(workspace.root), recipe=recipe, seed=seed),
        Extent(deepest=deepest, questions=per_benchmark),
    )
    check(podium.load())
    live(workspace, recipe, seed)
    materialize(workspace, recipe, seed, [NAME], {NAME: extent.model_dump(exclude_none=True)})
    lines: list[list[str | int | float]] = [[recipe, *row] for row in measured(podium, extent).summary.rows]
    write_between(workspace.root / MEASUREMENTS, MARK, markdown(Columns(HEAD, lines)))
    return MEASUREMENTS
