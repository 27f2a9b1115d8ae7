"""Measure the policies of `podium train smollm2` (`python -m tests.bench.pretrained`, `make pretrained`).

The policies answer the evaluation questions greedily: the base model (with the recipe's prompt, and with the one that
explains the grammar and shows examples), after its cold start, and after GRPO. The tables, with the duration of
training, are written into docs/reference.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from assets.conductor import get_run_folder
from assets.resources import RunResource
from ops.benchmarks.graded import configure_grading
from ops.benchmarks.problem_files import read_evaluation_questions
from ops.benchmarks.registry import ood_benchmarks, training_benchmarks
from ops.conductor.policy import Conductor
from ops.config import Recipe, Setup
from ops.core.documents import MEASUREMENTS, format_markdown_table, replace_marked_text
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.evaluation.runner import evaluate
from ops.precaching.client_setup import open_client
from ops.results.leaderboard import Leaderboard, format_accuracy
from ops.results.outcome_rows import OutcomeRow
from ops.results.statistics import estimate_mean
from ops.results.summary import summarize
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.cold_start.validation import ColdStartRecord
from ops.training.run.training_run import RunResult, read_curve

MARK = "<!-- made by `make pretrained` -->"
UNTRAINED, EXPLAINED = 30, 10
"""Number of questions of a benchmark for the base model, without and
with the long prompt; it generates to the limit.
"""
THINKING = 256
"""Maximum tokens of a completion if the prompt asks for thinking first."""
BLOCK = 10
"""Number of GRPO steps that a row of the table averages."""
Rows = Sequence[OutcomeRow]


def main() -> int:
    """Measure the policies of the recipe `smollm2` and write the tables; exit code 1 if it was not trained."""
    workspace = Workspace.find()
    podium = RunResource(root=str(workspace.root), recipe="smollm2")
    setup = podium.load_setup()
    configure_grading(setup.recipe, workspace.root)
    folder = get_run_folder(podium)
    trained, record = RunResult.read(folder), ColdStartRecord.read(base_policy_folder(setup))
    if trained is None or record is None:
        print("error: smollm2 has not been trained here: `podium train smollm2`", file=sys.stderr)
        return 1
    systems = {
        "base model": _untrained(setup, UNTRAINED),
        "base model, prompted with grammar and examples": _untrained(
            setup, EXPLAINED, style="full", few_shots="out_of_distribution"
        ),
        "cold start": _read(setup, base_policy_folder(setup)),
        "Conductor": _read(setup, folder / "policy"),
    }
    parts = (_scores(systems), _steps(read_curve(folder)), _facts(record, trained))
    replace_marked_text(workspace.root / MEASUREMENTS, MARK, "\n".join(parts))
    return 0


def _untrained(setup: Setup, count: int, **prompting: str) -> Rows:
    values = setup.recipe.model_dump() | {"name": "untrained", "cold_start": None}
    if prompting:
        values["prompting"] |= prompting
        values["grpo"] |= {"max_completion_tokens": THINKING}
    bare = Setup(setup.workspace, Recipe.model_validate(values), setup.pool)
    policy = make_base_policy(bare, open_client(bare, "evaluation"))
    return _read(bare, policy, count)


def _read(setup: Setup, policy: Path, count: int | None = None) -> Rows:
    """Return the results of a policy's workflows on the first `count` questions of each benchmark, or on all."""
    conductor, recipe = Conductor.load(policy), setup.recipe
    client = open_client(setup, "evaluation")
    team = conductor.card.build_team(setup.pool, setup.workspace.data, recipe.execution, client)
    asked: list[Problem] = []
    for questions in read_evaluation_questions(setup.workspace, recipe).values():
        asked += questions[:count]
    settings = recipe.evaluation.model_copy(update={"batch": 16} if count else {})
    return asyncio.run(evaluate(conductor, asked, team, settings, seed=recipe.seed))


def _scores(systems: Mapping[str, Rows]) -> str:
    board = Leaderboard({name: summarize(rows) for name, rows in systems.items()})
    head = ("greedy", "questions", "in-domain, %", "OOD, %", "valid, %", "right if valid, %", "steps")
    table = []
    for name, rows in systems.items():
        written = [row for row in rows if row.format_ok]
        table.append((
            name,
            len(rows),
            *(format_accuracy(board.mean_accuracy(name, names())) for names in (training_benchmarks, ood_benchmarks)),
            f"{100 * len(written) / len(rows):.1f}",
            f"{100 * fmean(row.correct for row in written):.1f}" if written else "–",
            f"{fmean(row.steps for row in written):.2f}" if written else "–",
        ))  # fmt: skip
    seen, unseen = (_gain(systems, names()) for names in (training_benchmarks, ood_benchmarks))
    gain = f"GRPO adds {seen} points in-domain and {unseen} out of distribution, paired by question."
    return f"{format_markdown_table(head, table)}\n\n{gain}\n"


def _gain(systems: Mapping[str, Rows], names: Sequence[str]) -> str:
    """Return the Conductor's accuracy minus its cold start's, in points ± a standard error over questions."""
    pairs = zip(systems["Conductor"], systems["cold start"], strict=True)
    gains = [after.correct - before.correct for after, before in pairs if after.benchmark in names]
    return format_accuracy(estimate_mean(gains))


def _steps(curve: Sequence[Mapping[str, Any]]) -> str:
    columns: Mapping[str, Callable[[Mapping[str, Any]], str | float]] = {
        "reward": lambda row: row["reward"],
        "valid, %": lambda row: 100 * (1 - row["share/invalid"]),
        "right if valid, %": lambda row: 100 * row.get("right_if_valid", 0.0),
        "groups alike, %": lambda row: 100 * row["zero_variance_groups"],
        "steps": lambda row: row["steps"],
        "tokens": lambda row: row["completion_tokens"],
        "s a step": lambda row: row["seconds"],
        "writing": lambda row: row["seconds/generation"],
        "workers": lambda row: row["seconds/workers"],
        "updating": lambda row: row["seconds/update"],
    }
    table = []
    for first in range(0, len(curve), BLOCK):
        rows = curve[first : first + BLOCK]
        means = {name: fmean(float(read(row)) for row in rows) for name, read in columns.items()}
        cells = (f"{mean:.3f}" if name == "reward" else f"{mean:.1f}" for name, mean in means.items())
        table.append((f"{first + 1} to {first + len(rows)}", *cells))
    return format_markdown_table(("steps of GRPO", *columns), table) + "\n"


def _facts(record: ColdStartRecord, trained: RunResult) -> str:
    speed = record.tokens / record.seconds
    taught = (
        f"Cold start: {record.examples:,} examples, {record.tokens:,} tokens in {record.seconds / 60:.1f} minutes "
        f"({speed:.0f} tokens/s), loss {record.loss[0]:.2f} → {record.loss[-1]:.2f} nats a token, at most "
        f"{record.peak_gib:.1f} GiB; then {record.validation}."
    )
    return f"{taught} GRPO: {trained.rollouts:,} rollouts in {trained.seconds / 60:.1f} minutes.\n"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
