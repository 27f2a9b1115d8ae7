"""The outcome table: every answer of every system, for plots, tests and audits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from ops.benchmarks.store import evaluation_questions
from ops.conductor.policy import policy_key
from ops.config import Setup
from ops.core.atomic import replacing
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.evaluation.alone import asked_alone, of_worker, stored_answers
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.scores import PART, StoredRows
from ops.evaluation.stored import COLD_START, CONDUCTOR, stored_scores
from ops.evaluation.stored_baselines import BaselineStore, baseline_stores

Systems = Mapping[str, Sequence[OutcomeRow] | StoredRows]
"""System → rows: `conductor`, `cold_start`, `worker NAME`, and each `WorkflowBaseline` by its name."""
COLUMNS = {
    **dict.fromkeys(("system", "policy", "pool", "benchmark", "problem", "domain"), "string"), "repeat": "int64",
    "correct": "boolean", "unscorable": "bool", "status": "string", "format_ok": "bool",
    **dict.fromkeys(("steps", "calls", "tokens"), "int64"),
    **dict.fromkeys(("cost_usd", "grading_usd", "latency_s"), "float64"), "shape": "string", "trace": "string",
}  # fmt: skip
"""The outcome table's columns, each with its type in pandas."""


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
    read = sources(setup, policy, base_policy).values()
    with replacing(file) as temporary:
        write_table(setup, (each for source in read for each in source().items()), policies, temporary)
    return file


def write_table(
    setup: Setup, systems: Iterable[tuple[str, Iterable[OutcomeRow]]], policies: Mapping[str, str], file: Path
) -> None:
    """Write the table with one line per answer and the columns `COLUMNS`, a row group per part of a system's rows.

    Tokens, USD and seconds (of the critical path) are those of the single answer. `correct` is empty for unscorable
    rows; `pool` is the answers key of the benchmark's pool; `policy` is empty for systems without a policy; `trace` is
    the tag of the trace in MLflow.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    pools = {name: setup.asked_on(name).pool.answers_key for name in setup.recipe.benchmarks}
    empty = pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)
    schema = pa.Table.from_pandas(empty, preserve_index=False).schema
    with pq.ParquetWriter(file, schema) as writer:
        for system, rows in systems:
            lines = (
                (
                    system, policies.get(system, ""), pools[row.benchmark], row.benchmark, row.problem_key, row.domain,
                    row.repeat, None if row.unscorable else bool(row.correct), row.unscorable, row.status,
                    row.format_ok, row.steps, len(row.usage), row.tokens, row.cost_usd, row.grading_usd, row.latency_s,
                    row.shape, row.trace,
                )
                for row in rows
            )  # fmt: skip
            while part := list(islice(lines, PART)):
                frame = pd.DataFrame(part, columns=list(COLUMNS)).astype(COLUMNS)
                writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))
