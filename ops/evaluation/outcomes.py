"""The outcome table: every answer of every system, for plots, tests and audits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ops.benchmarks.store import evaluation_questions
from ops.conductor.policy import policy_key
from ops.config import Setup
from ops.core.atomic import replacing
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.evaluation.alone import asked_alone, of_worker, stored_answers
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.stored import COLD_START, CONDUCTOR, stored_scores
from ops.evaluation.stored_baselines import BaselineStore, baseline_stores

if TYPE_CHECKING:
    from pandas import DataFrame

Systems = Mapping[str, Sequence[OutcomeRow]]
"""System → rows: `conductor`, `cold_start`, `worker NAME`, and each `WorkflowBaseline` by its name."""
COLUMNS = (
    "system", "policy", "pool", "benchmark", "problem", "domain", "repeat", "correct", "unscorable", "status",
    "format_ok", "steps", "calls", "tokens", "cost_usd", "grading_usd", "latency_s", "shape", "trace",
)  # fmt: skip


def systems(setup: Setup, policy: Path, base_policy: Path | None) -> dict[str, list[OutcomeRow]]:
    """Read the rows of every system of this evaluation. Raises `DataError` if a part is missing or stale."""
    rows: dict[str, list[OutcomeRow]] = {}
    for read in sources(setup, policy, base_policy).values():
        rows |= {name: list(own) for name, own in read().items()}
    return rows


def sources(setup: Setup, policy: Path, base_policy: Path | None) -> dict[str, Callable[[], Systems]]:
    """Return source → a function that reads its rows and may raise `DataError`.

    The sources are `conductor`, `cold_start`, `workers`, and each `WorkflowBaseline` by its name.
    """
    questions_of = {name: own for name, own in evaluation_questions(setup.workspace, setup.recipe).items() if own}
    made: dict[str, Callable[[], Systems]] = {
        CONDUCTOR: lambda: {CONDUCTOR: stored_scores(setup, policy, CONDUCTOR, list(questions_of))}
    }
    if (taught := base_policy) is not None and setup.recipe.cold_start is not None:
        made[COLD_START] = lambda: {COLD_START: stored_scores(setup, taught, COLD_START, list(questions_of))}
    made["workers"] = partial(_workers, setup)
    return made | {store.entry.name: partial(_baseline, store, questions_of) for store in baseline_stores(setup)}


def _workers(setup: Setup) -> Systems:
    asked = asked_alone(setup)
    answers = stored_answers(setup, asked)
    return {f"worker {name}": of_worker(answers, name) for name in asked}


def _baseline(store: BaselineStore, questions_of: Mapping[str, Sequence[Problem]]) -> Systems:
    return {store.entry.name: store.rows(questions_of)}


def outcomes_file(workspace: Workspace, policy: Path) -> Path:
    """Return the path `scores/outcomes/POLICY.parquet`, where POLICY is the policy's key."""
    return workspace.scores / "outcomes" / f"{policy_key(policy)}.parquet"


def write_outcomes(setup: Setup, policy: Path, base_policy: Path | None) -> Path:
    """Write the table atomically to `outcomes_file` and return its path.

    The table contains no question, answer or workflow. Raises `DataError` if scores are missing or stale.
    """
    file = outcomes_file(setup.workspace, policy)
    policies = {CONDUCTOR: policy_key(policy), COLD_START: policy_key(base_policy) if base_policy else ""}
    made = table(setup, systems(setup, policy, base_policy), policies)
    with replacing(file) as temporary:
        made.to_parquet(temporary, index=False)
    return file


def table(setup: Setup, rows: Systems, policies: Mapping[str, str]) -> DataFrame:
    """Make the table with one line per answer and the columns `COLUMNS`.

    Tokens, USD and seconds (of the critical path) are those of the single answer. `correct` is empty for unscorable
    rows; `pool` is the answers key of the benchmark's pool; `policy` is empty for systems without a policy; `trace` is
    the tag of the trace in MLflow.
    """
    import pandas as pd

    pools = {name: setup.asked_on(name).pool.answers_key for name in setup.recipe.benchmarks}
    lines = [
        (
            system, policies.get(system, ""), pools[row.benchmark], row.benchmark, row.problem_key, row.domain,
            row.repeat, None if row.unscorable else bool(row.correct), row.unscorable, row.status, row.format_ok,
            row.steps, len(row.usage), row.tokens, row.cost_usd, row.grading_usd, row.latency_s, row.shape, row.trace,
        )
        for system, own in rows.items()
        for row in own
    ]  # fmt: skip
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype({"correct": "boolean"})
