"""What rounds add: a Conductor at each depth, before and after the recursive stage, as a table in docs/results.md."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean

from assets.adaptive_conductor import adaptive_run
from assets.recursive_conductor import final_run
from assets.resources import Podium, servers
from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.conductor.policy import Conductor
from ops.config import RoundLimits, Setup
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.evaluation.report import percent
from ops.evaluation.rounds import evaluate_in_rounds
from ops.evaluation.runner import ScoreRow
from ops.evaluation.subsets import accuracy, difference
from ops.precaching.opening import open_client
from pipelines.pages import write_between
from pipelines.run import live
from pipelines.seeds import questions

FILE = Path("docs") / "results.md"
MARK = "<!-- made by `podium depths` -->"
HEAD = ("recipe", "the stage", "rounds after the first", "in-domain, %", "minus none, points", "unseen, %",
        "minus none, points", "calls a question", "USD a question", "kept, %", "the rounds end by, %")  # fmt: skip


def write_table(workspace: Workspace, recipe: str, seed: int, deepest: int, per_benchmark: int | None) -> Path:
    """Live the recipe and write what its policies do at depths 0 to `deepest` between the marks, on so many questions
    of each benchmark (None: all). Raises `PodiumError` for a recipe without the stage."""
    podium = Podium(root=str(workspace.root), recipe=recipe, seed=seed)
    if podium.load().recipe.recursive is None:
        raise PodiumError(f"recipe {recipe!r} has no recursive section: there is nothing to compare")
    live(workspace, recipe, seed)
    setup = podium.load()
    asked = sample(questions(setup), per_benchmark, seed)
    lines = [f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}"]
    with servers(setup):
        for name, run in (("before", adaptive_run(podium)), ("after", final_run(podium))):
            for row in rows(setup, run / "policy", asked, deepest):
                lines.append(f"| {recipe} | {name} | {' | '.join(row)} |")
                print(lines[-1], flush=True)
                write_between(workspace.root / FILE, MARK, "\n".join(lines) + "\n")
    return FILE


def sample(every: Sequence[Problem], per_benchmark: int | None, seed: int) -> list[Problem]:
    """So many of each benchmark, drawn by the seed; None: all."""
    if per_benchmark is None:
        return list(every)
    drawn: list[Problem] = []
    for name in dict.fromkeys(problem.benchmark for problem in every):
        own = [problem for problem in every if problem.benchmark == name]
        drawn += Random(seed).sample(own, min(per_benchmark, len(own)))
    return drawn


def rows(setup: Setup, policy: Path, asked: Sequence[Problem], deepest: int) -> list[tuple[str, ...]]:
    """A row a depth, from 0: what the policy does within the recipe's other limits."""
    recipe, conductor = setup.recipe, Conductor.load(policy)
    client = open_client(setup, "evaluation")
    team = conductor.card.team(setup.pool, setup.workspace.data, recipe.execution, client)
    limits = recipe.recursive.limits if recipe.recursive else RoundLimits()
    made: list[tuple[str, ...]] = []
    none: list[ScoreRow] = []
    for depth in range(deepest + 1):
        scores = asyncio.run(
            evaluate_in_rounds(
                conductor, asked, team, recipe.evaluation, limits.model_copy(update={"rounds": depth}),
                seed=recipe.seed, fits=conductor.fits,
            )
        )  # fmt: skip
        none = none or scores
        made.append(_row(depth, scores, none))
    return made


def _row(depth: int, scores: Sequence[ScoreRow], none: Sequence[ScoreRow]) -> tuple[str, ...]:
    cells = [str(depth)]
    asked = {row.benchmark for row in scores}
    for names in (training_benchmarks(), unseen_benchmarks()):
        own = [name for name in names if name in asked]
        cells += [percent(accuracy([scores], own)), "" if depth == 0 else percent(difference([scores], [none], own))]
    ends = Counter(row.stop for row in scores)
    return (
        *cells,
        f"{fmean(len(row.workers) for row in scores):.2f}",
        f"{fmean(row.cost_usd for row in scores):.6f}",
        f"{100 * ends['kept'] / len(scores):.1f}",
        ", ".join(f"{name} {100 * count / len(scores):.1f}" for name, count in ends.most_common()),
    )
