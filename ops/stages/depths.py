"""What rounds add: the policies before and after a recipe's recursive stage, at each depth."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ops.conductor.policy import Conductor
from ops.config import RoundLimits, Setup, digest
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.evaluation.experiment import Findings
from ops.evaluation.experiment_report import bars, benchmark_groups
from ops.evaluation.reading import questions, sample
from ops.evaluation.report import Columns, percent
from ops.evaluation.rounds import evaluate_in_rounds
from ops.evaluation.rows import ScoreRow
from ops.evaluation.statistics import MeanEstimate
from ops.evaluation.stored import scores_origin
from ops.evaluation.subsets import accuracy, difference
from ops.stages.making import Making, rows_once

NAME = "depths"
HEAD = ["the stage", "rounds after the first", "in-domain, %", "minus none, points", "unseen, %",
        "unseen minus none, points", "calls a question", "USD a question", "kept, %",
        "the rounds end by, %"]  # fmt: skip


class Extent(NamedTuple):
    """How much is measured."""

    deepest: int = 3
    """Rounds after the first."""
    per_benchmark: int | None = None
    """Questions of each benchmark, drawn by the recipe's seed; None: all."""


def check(setup: Setup) -> None:
    """Raise `PodiumError` for a recipe without the stage."""
    if setup.recipe.recursive is None:
        raise PodiumError(f"recipe {setup.recipe.name!r} has no recursive section: there is nothing to compare")


def depths(setup: Setup, policies: Mapping[str, Path], extent: Extent, making: Making | None = None) -> Findings:
    """What the policies (name → folder) do at depths 0 to `deepest`, within the recipe's other limits.

    Without `making` what is stored. Raises `PodiumError` for a recipe without the stage, `DataError` where something
    is missing, and as an evaluation does.
    """
    check(setup)
    asked = sample(questions(setup), extent.per_benchmark, setup.recipe.seed)
    lines: list[list[str | int | float]] = []
    shown: dict[str, dict[str, MeanEstimate]] = {}
    total = len(policies) * (extent.deepest + 1)
    for name, policy in policies.items():
        none: list[ScoreRow] = []
        for depth in range(extent.deepest + 1):
            if making is not None:
                making.tell(len(lines), total, f"{name} the stage, {depth} more rounds")
            rows = rows_at(setup, policy, asked, depth, making)
            none = none or rows
            lines.append([name, *_cells(depth, rows, none)])
            shown[f"{name}, {depth}"] = {
                group: accuracy([rows], names) for group, names in benchmark_groups(rows).items() if names
            }
    said = f"{len(asked)} questions, drawn by seed {setup.recipe.seed}." if extent.per_benchmark else ""
    return Findings(Columns(HEAD, lines), Columns([], []), said, bars(shown, "right answers, in %"))


def rows_at(setup: Setup, policy: Path, asked: Sequence[Problem], depth: int, making: Making | None) -> list[ScoreRow]:
    """What the policy does with so many rounds after the first; stored, or made now."""
    stage = setup.recipe.recursive
    limits = (stage.limits if stage else RoundLimits()).model_copy(update={"rounds": depth})
    origin = {**scores_origin(setup, policy, asked), "limits": digest(limits.model_dump())}

    def make() -> list[ScoreRow]:
        assert making is not None
        conductor, recipe = Conductor.load(policy), setup.recipe
        client = making.client(setup, "experiment", beside=NAME)
        team = conductor.card.team(setup.pool, setup.workspace.texts, recipe.execution, client)
        return asyncio.run(
            evaluate_in_rounds(
                conductor, asked, team, recipe.evaluation, limits, seed=recipe.seed, fits=conductor.fits
            )
        )  # fmt: skip

    return rows_once(setup, NAME, origin, make if making is not None else None)


def _cells(depth: int, rows: Sequence[ScoreRow], none: Sequence[ScoreRow]) -> list[str | int | float]:
    cells: list[str | int | float] = [str(depth)]
    for names in benchmark_groups(rows).values():
        cells += [percent(accuracy([rows], names)), "" if depth == 0 else percent(difference([rows], [none], names))]
    ends = Counter(row.stop for row in rows)
    return [
        *cells,
        f"{fmean(len(row.workers) for row in rows):.2f}",
        f"{fmean(row.cost_usd for row in rows):.6f}",
        f"{100 * ends['kept'] / len(rows):.1f}",
        ", ".join(f"{name} {100 * count / len(rows):.1f}" for name, count in ends.most_common()),
    ]
