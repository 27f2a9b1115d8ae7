"""Compare all systems on the same questions.

The comparison is computed once and stored for the gate and the reports; a published table has one line per answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.benchmarks.graded import graders_key, read_graded_responses
from ops.benchmarks.problem_files import questions_key, read_evaluation_questions
from ops.benchmarks.registry import ood_benchmarks, training_benchmarks
from ops.conductor.policy import policy_key
from ops.config import Setup, digest
from ops.core.atomic import replace_atomically, sha256_of
from ops.core.checked_files import read_json, write_json
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.evaluation.baseline import SoloResponses, collect_scores
from ops.evaluation.stored_baselines import BaselineStore, list_baseline_stores, make_score_reader
from ops.evaluation.stored_scores import (
    COLD_START,
    CONDUCTOR,
    list_solo_workers,
    read_policy_scores,
    read_solo_responses,
    read_worker_scores,
    score_file,
    scores_key,
)
from ops.precaching.profiles import find_best_worker
from ops.results.leaderboard import Leaderboard, build_leaderboard
from ops.results.measures import MEANS
from ops.results.reach import Reach, compute_reach
from ops.results.summary import QUESTION_KEY, Summary
from ops.results.table import Rows, concatenate_rows, to_table

if TYPE_CHECKING:
    import polars as pl

_REMEDY = "Materialize leaderboard"


@dataclass(frozen=True)
class Comparison:
    """The scores of one policy and of every other system, at the pool's prices."""

    policy: str
    """The key of the Conductor's policy."""
    leaderboard: Leaderboard
    conductor: pl.LazyFrame = field(compare=False, repr=False)
    """The Conductor's rows."""
    best_worker: str
    best_worker_rows: pl.LazyFrame = field(compare=False, repr=False)
    """The rows that the promotion gate pairs with the Conductor's rows."""
    reach: dict[str, Reach] = field(default_factory=dict)
    """`in-domain` and `OOD` → the share of the answerable questions that the Conductor answers."""
    scores_key: str = ""
    """A hash of everything that the Conductor's scores depend on: policy, pool, questions, settings."""
    questions: dict[str, str] = field(default_factory=dict)
    """Benchmark → the key of its questions."""
    graders: dict[str, str] = field(default_factory=dict)
    """Benchmark → its graders with their versions."""


def compare_systems(setup: Setup, policy: Path, base_policy: Path | None) -> Comparison:
    """Compute the comparison from the stored rows of this policy, its cold start and the workers, and store it.

    The best single worker is chosen by the training responses, not by the test. `base_policy` is None if training
    continues from a champion instead of a cold start. Raises `DataError` if scores are missing or stale.
    """
    domains = _map_domains(setup)
    conductor = read_policy_scores(setup, policy, CONDUCTOR, list(domains))
    asked = list_solo_workers(setup)
    alone = read_solo_responses(setup, asked)
    trained = [
        row for row in read_graded_responses(setup.workspace.data / "responses") if row.worker in setup.pool.names
    ]
    best = find_best_worker(trained).worker
    baselines = collect_scores(
        SoloResponses(alone, trained), setup.recipe.evaluation.baselines, make_score_reader(setup)
    )
    taught = base_policy if setup.recipe.cold_start else None
    cold = read_policy_scores(setup, taught, COLD_START, list(domains)) if taught else None
    board = build_leaderboard(conductor, baselines, cold)
    singles = concatenate_rows(read_worker_scores(setup, name) for name in asked)
    every = set(asked) == set(setup.pool.names)  # the ceiling needs the answers of every worker
    groups = {"in-domain": training_benchmarks(), "OOD": ood_benchmarks()} if every else {}
    others = () if cold is None else cold
    reaches = {name: compute_reach(conductor, others, singles, benchmarks) for name, benchmarks in groups.items()}
    made = Comparison(
        policy=policy_key(policy),
        leaderboard=board,
        conductor=conductor,
        best_worker=best,
        best_worker_rows=_with_domains(read_worker_scores(setup, best), domains),
        reach={name: part for name, part in reaches.items() if part is not None},
        scores_key=_conductor_scores_key(setup, policy),
        questions=question_keys(setup),
        graders=grader_keys(setup),
    )
    facts = _list_validity_keys(setup, policy) | {
        "best_worker": best,
        "reach": {name: asdict(part) for name, part in made.reach.items()},
        "systems": {
            name: {key: summary.as_dict() for key, summary in scores.items()} for name, scores in board.systems.items()
        },
    }
    write_json(comparison_file(setup.workspace, made.policy), facts)
    return made


def read_comparison(setup: Setup, policy: Path) -> Comparison:
    """Read the comparison that `compare_systems` stored for this policy.

    Raises `DataError` if none is stored, or if scores, prices or workers have changed since.
    """
    file = comparison_file(setup.workspace, policy_key(policy))
    facts = read_json(file, _REMEDY)
    for name, value in _list_validity_keys(setup, policy).items():
        if facts.get(name) != value:
            raise DataError(file, name, f"is {facts.get(name)!r} there and {value!r} now", _REMEDY)
    domains = _map_domains(setup)
    best = str(facts["best_worker"])
    return Comparison(
        policy=policy_key(policy),
        leaderboard=_restore_leaderboard(facts["systems"]),
        conductor=read_policy_scores(setup, policy, CONDUCTOR, list(domains)),
        best_worker=best,
        best_worker_rows=_with_domains(read_worker_scores(setup, best), domains),
        reach={name: Reach.from_json(part) for name, part in facts.get("reach", {}).items()},
        scores_key=_conductor_scores_key(setup, policy),
        questions=question_keys(setup),
        graders=grader_keys(setup),
    )


def _list_validity_keys(setup: Setup, policy: Path) -> dict[str, Any]:
    """Return the keys that must be unchanged for a stored comparison to be valid."""
    questions_of = read_evaluation_questions(setup.workspace, setup.recipe)
    asked = [name for name, own in questions_of.items() if own]
    files = [score_file(setup.workspace, CONDUCTOR, policy, name) for name in asked]
    files += [store.file(name) for store in list_baseline_stores(setup) for name in asked]
    return {
        "origin": _conductor_scores_key(setup, policy),
        "prices": " ".join(pool.prices_key for pool in (setup.pool, *setup.pools.values())),
        "scores": digest([sha256_of(file) if file.is_file() else None for file in files]),
    }


def _conductor_scores_key(setup: Setup, policy: Path) -> str:
    questions_of = read_evaluation_questions(setup.workspace, setup.recipe)
    return digest([scores_key(setup.for_benchmark(name), policy, questions_of[name]) for name in sorted(questions_of)])


def question_keys(setup: Setup) -> dict[str, str]:
    """Return benchmark → the key of its evaluation questions."""
    every = read_evaluation_questions(setup.workspace, setup.recipe)
    return {name: questions_key(questions) for name, questions in sorted(every.items()) if questions}


def grader_keys(setup: Setup) -> dict[str, str]:
    """Return benchmark → the graders of its evaluation questions with their versions, without spaces."""
    every = read_evaluation_questions(setup.workspace, setup.recipe)
    keys = {name: graders_key(questions, setup) for name, questions in sorted(every.items()) if questions}
    return {name: key.replace(" ", ",") for name, key in keys.items()}


def _map_domains(setup: Setup) -> dict[str, str]:
    """Return benchmark → domain for the benchmarks with questions."""
    every = read_evaluation_questions(setup.workspace, setup.recipe)
    return {name: questions[0].domain for name, questions in every.items() if questions}


def _with_domains(rows: pl.LazyFrame, domains: dict[str, str]) -> pl.LazyFrame:
    import polars as pl

    return rows.with_columns(domain=pl.col("benchmark").replace_strict(domains, return_dtype=pl.String))


def comparison_file(workspace: Workspace, policy: str) -> Path:
    """Return the path `scores/comparisons/POLICY.json`, where `policy` is the policy's key."""
    return workspace.scores / "comparisons" / f"{policy}.json"


def _restore_leaderboard(systems: dict[str, dict[str, dict[str, Any]]]) -> Leaderboard:
    return Leaderboard({
        name: {key: Summary.from_dict(row) for key, row in scores.items()} for name, scores in systems.items()
    })  # fmt: skip


# ── the rows of every system, and their published table ───────────────────────

RowsBySystem = Mapping[str, Rows]
"""Name of a system → its rows. The names are `conductor`, `cold_start`, `worker NAME`, and those of the
`WorkflowBaseline`s."""
OUTCOME_COLUMNS = {
    **dict.fromkeys(("system", "policy", "pool", "benchmark", "problem", "domain"), "string"), "repeat": "int64",
    "correct": "boolean", "unscorable": "bool", "status": "string", "format_ok": "bool",
    **dict.fromkeys(("steps", "calls", "tokens"), "int64"),
    **dict.fromkeys(("cost_usd", "grading_usd", "latency_s"), "float64"), "shape": "string", "trace": "string",
}  # fmt: skip
"""The columns of the outcome table, each with its type in pandas. Means that are not named here are the last ones."""
OUTCOME_COLUMNS |= {measure.name: "float64" for measure in MEANS if measure.name not in OUTCOME_COLUMNS}


def list_row_sources(setup: Setup, policy: Path, base_policy: Path | None) -> dict[str, Callable[[], RowsBySystem]]:
    """Return name of a source → a function that reads its rows and may raise `DataError`.

    The sources are `conductor`, `cold_start`, `workers`, and each `WorkflowBaseline` by its name.
    """
    questions_of = {name: own for name, own in read_evaluation_questions(setup.workspace, setup.recipe).items() if own}
    made: dict[str, Callable[[], RowsBySystem]] = {
        CONDUCTOR: lambda: {CONDUCTOR: read_policy_scores(setup, policy, CONDUCTOR, list(questions_of))}
    }
    if (taught := base_policy) is not None and setup.recipe.cold_start is not None:
        made[COLD_START] = lambda: {COLD_START: read_policy_scores(setup, taught, COLD_START, list(questions_of))}
    made["workers"] = partial(_read_worker_systems, setup)
    return made | {
        store.entry.name: partial(_read_baseline_system, store, questions_of) for store in list_baseline_stores(setup)
    }


def _read_worker_systems(setup: Setup) -> RowsBySystem:
    return {f"worker {name}": read_worker_scores(setup, name) for name in list_solo_workers(setup)}


def _read_baseline_system(store: BaselineStore, questions_of: Mapping[str, Sequence[Problem]]) -> RowsBySystem:
    return {store.entry.name: store.rows(questions_of)}


def outcomes_file(workspace: Workspace, policy: Path) -> Path:
    """Return the path `scores/outcomes/POLICY.parquet`, where POLICY is the policy's key."""
    return workspace.scores / "outcomes" / f"{policy_key(policy)}.parquet"


def write_outcomes(setup: Setup, policy: Path, base_policy: Path | None) -> Path:
    """Write the outcome table atomically to `outcomes_file` and return its path.

    The table contains no question, answer or workflow. Raises `DataError` if scores are missing or stale.
    """
    file = outcomes_file(setup.workspace, policy)
    policies = {CONDUCTOR: policy_key(policy), COLD_START: policy_key(base_policy) if base_policy else ""}
    read = list_row_sources(setup, policy, base_policy).values()
    with replace_atomically(file) as temporary:
        write_outcome_table(setup, (each for source in read for each in source().items()), policies, temporary)
    return file


def write_outcome_table(
    setup: Setup, systems: Iterable[tuple[str, Rows]], policies: Mapping[str, str], file: Path
) -> None:
    """Write the table with one line per answer and the columns `OUTCOME_COLUMNS`, in parts.

    Tokens, USD and seconds (of the critical path) are those of the single answer. `correct` is empty for unscorable
    rows; `pool` is the answers key of the benchmark's pool; `policy` is empty for systems without a policy; `trace` is
    the tag of the trace in MLflow.
    """
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    pools = {name: setup.for_benchmark(name).pool.answers_key for name in setup.recipe.benchmarks}
    empty = pd.DataFrame(columns=list(OUTCOME_COLUMNS)).astype(OUTCOME_COLUMNS)
    schema = pa.Table.from_pandas(empty, preserve_index=False).schema
    columns = {
        "pool": pl.col("benchmark").replace_strict(pools, return_dtype=pl.String),
        "problem": pl.concat_str(QUESTION_KEY, separator="/"),
        "correct": pl.when(~pl.col("unscorable")).then(pl.col("correct") == 1),
        **{measure.name: measure.expression(pl.col) for measure in MEANS},
    }
    with pq.ParquetWriter(file, schema) as writer:
        for system, rows in systems:
            known = {"system": pl.lit(system), "policy": pl.lit(policies.get(system, ""))}
            for part in to_table(rows).with_columns(**columns, **known).select(list(OUTCOME_COLUMNS)).collect_batches():
                writer.write_table(part.to_arrow().cast(schema))
