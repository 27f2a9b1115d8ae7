"""Small inputs of the cold start: problems, the answers of two workers, and SFT examples made from them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ops.benchmarks.store import write_problems
from ops.config import ColdStart, Setup, load_pool, load_recipe
from ops.core.problem import Problem
from ops.core.rows import response_file
from ops.core.workspace import Workspace
from ops.precaching.precache import write_responses
from ops.synthetic.problems import generate
from ops.training.cold_start.examples import SftExample, sample_examples
from ops.workflow.team import NO_CLIENT, Team
from tests.builders import make_response
from tests.unit.training.tiny import ROOT

RECIPE = load_recipe(ROOT / "config", "quickstart")
POOL = load_pool(ROOT / "config", RECIPE.pool)
RIGHT, WRONG = 0, 1
"""Ordinals of a worker that is right on every second problem, and of one that is always wrong."""
PROBLEMS = generate("math500", "train", 40, 1)
QUESTIONS = {problem.question: problem for problem in PROBLEMS}


def said(worker: int, problem: Problem) -> str:
    return f"{POOL.names[worker]} of {problem.id}: Answer: {problem.answer}"


def solved(worker: int, problem: Problem) -> bool:
    return worker == RIGHT and PROBLEMS.index(problem) % 2 == 0


def store(workspace: Workspace, workers: Sequence[int] = (RIGHT, WRONG), length: int = 1) -> None:
    """Write the precached answers of these workers, repeated."""
    for worker in workers:
        name = POOL.names[worker]
        rows = [
            make_response(
                worker=name, benchmark=each.benchmark, problem_id=each.id, score=float(solved(worker, each)),
                text=" ".join([said(worker, each)] * length),
            )
            for each in PROBLEMS
        ]  # fmt: skip
        write_responses(rows, response_file(workspace.data / "responses", name, "math500"))


def laid_out(root: Path) -> Setup:
    """Make a workspace with a mix and subtasks, without responses."""
    workspace = Workspace(root)
    write_problems(workspace.data / "training_mix.jsonl", PROBLEMS)
    (workspace.data / "cold_start").mkdir()
    (workspace.data / "cold_start" / "subtasks.yaml").write_text("- {say: Count., about: answer}\n", encoding="utf-8")
    return Setup(workspace, RECIPE, POOL)


def sft_examples(setup: Setup, settings: ColdStart, count: int, **other: object) -> list[SftExample]:
    client = other.pop("client", NO_CLIENT)
    prompting = other.pop("prompting", RECIPE.prompting)
    team = Team(POOL.workers, client, prompting)  # type: ignore[arg-type]
    return asyncio.run(sample_examples(setup, team, settings, count, **other))  # type: ignore[arg-type]
