"""The comparison of all systems on the same questions: computed once, stored, and read by the gate and the reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ops.benchmarks.graded import graded_responses, graders_key
from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.benchmarks.store import evaluation_questions, questions_key
from ops.conductor.policy import policy_key
from ops.config import Setup, digest
from ops.core.atomic import sha256_of
from ops.core.checked import read_json, write_json
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.evaluation.alone import asked_alone, of_worker, stored_answers
from ops.evaluation.baseline import Answers, standings
from ops.evaluation.reach import Reach, reach
from ops.evaluation.report import Leaderboard, leaderboard
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.runner import Summary
from ops.evaluation.statistics import MeanEstimate
from ops.evaluation.stored import COLD_START, CONDUCTOR, score_file, scores_key, stored_scores
from ops.evaluation.stored_baselines import baseline_stores, kept
from ops.precaching.profiles import best_single

_REMEDY = "Materialize leaderboard"


@dataclass(frozen=True)
class Comparison:
    """The scores of one policy and of every other system, at the pool's prices."""

    policy: str
    """The key of the Conductor's policy."""
    board: Leaderboard
    conductor: list[OutcomeRow]
    best_worker: str
    best_worker_rows: list[OutcomeRow]
    """The rows that the promotion gate pairs with the Conductor's rows."""
    reach: dict[str, Reach] = field(default_factory=dict)
    """`in-domain` and `OOD` → the share of the answerable questions that the Conductor answers."""
    origin: str = ""
    """A hash of everything that the Conductor's scores depend on: policy, pool, questions, settings."""
    questions: dict[str, str] = field(default_factory=dict)
    """Benchmark → the key of its questions."""
    graders: dict[str, str] = field(default_factory=dict)
    """Benchmark → its graders with their versions."""


def compare(setup: Setup, policy: Path, base_policy: Path | None) -> Comparison:
    """Build the comparison from the stored rows of this policy, its cold start and the workers; store it.

    The best single worker is chosen by the training responses, not by the test. `base_policy` is None if training
    continues from a champion instead of a cold start. Raises `DataError` if scores are missing or stale.
    """
    domains = _domains(setup)
    conductor = stored_scores(setup, policy, CONDUCTOR, list(domains))
    asked = asked_alone(setup)
    alone = stored_answers(setup, asked)
    trained = [row for row in graded_responses(setup.workspace.data / "responses") if row.worker in setup.pool.names]
    best = best_single(trained).worker
    baselines = standings(Answers(alone, trained), setup.recipe.evaluation.baselines, kept(setup))
    taught = base_policy if setup.recipe.cold_start else None
    cold = stored_scores(setup, taught, COLD_START, list(domains)) if taught else None
    board = leaderboard(conductor, baselines, cold)
    singles = [OutcomeRow.of_response(row) for row in alone]
    every = set(asked) == set(setup.pool.names)  # the ceiling needs the answers of every worker
    groups = {"in-domain": training_benchmarks(), "OOD": unseen_benchmarks()} if every else {}
    reaches = {name: reach(conductor, cold or (), singles, benchmarks) for name, benchmarks in groups.items()}
    made = Comparison(
        policy=policy_key(policy),
        board=board,
        conductor=list(conductor),
        best_worker=best,
        best_worker_rows=_with_domains(of_worker(alone, best), domains),
        reach={name: part for name, part in reaches.items() if part is not None},
        origin=_origin(setup, policy),
        questions=question_keys(setup),
        graders=grader_keys(setup),
    )
    facts = _facts(setup, policy) | {
        "best_worker": best,
        "reach": {name: asdict(part) for name, part in made.reach.items()},
        "systems": {
            name: {key: asdict(summary) for key, summary in scores.items()} for name, scores in board.systems.items()
        },
    }
    write_json(comparison_file(setup.workspace, made.policy), facts)
    return made


def stored_comparison(setup: Setup, policy: Path) -> Comparison:
    """Read the comparison that `compare` stored for this policy.

    Raises `DataError` if none is stored, or if scores, prices or workers have changed since.
    """
    file = comparison_file(setup.workspace, policy_key(policy))
    facts = read_json(file, _REMEDY)
    for name, value in _facts(setup, policy).items():
        if facts.get(name) != value:
            raise DataError(file, name, f"is {facts.get(name)!r} there and {value!r} now", _REMEDY)
    domains = _domains(setup)
    best = str(facts["best_worker"])
    return Comparison(
        policy=policy_key(policy),
        board=_board(facts["systems"]),
        conductor=list(stored_scores(setup, policy, CONDUCTOR, list(domains))),
        best_worker=best,
        best_worker_rows=_with_domains(of_worker(stored_answers(setup, [best]), best), domains),
        reach={name: Reach.stored(part) for name, part in facts.get("reach", {}).items()},
        origin=_origin(setup, policy),
        questions=question_keys(setup),
        graders=grader_keys(setup),
    )


def _facts(setup: Setup, policy: Path) -> dict[str, Any]:
    """Return the keys that must be unchanged for a stored comparison to be valid."""
    questions_of = evaluation_questions(setup.workspace, setup.recipe)
    asked = [name for name, own in questions_of.items() if own]
    files = [score_file(setup.workspace, CONDUCTOR, policy, name) for name in asked]
    files += [store.file(name) for store in baseline_stores(setup) for name in asked]
    return {
        "origin": _origin(setup, policy),
        "prices": " ".join(pool.prices_key for pool in (setup.pool, *setup.pools.values())),
        "scores": digest([sha256_of(file) if file.is_file() else None for file in files]),
    }


def _origin(setup: Setup, policy: Path) -> str:
    questions_of = evaluation_questions(setup.workspace, setup.recipe)
    return digest([scores_key(setup.asked_on(name), policy, questions_of[name]) for name in sorted(questions_of)])


def question_keys(setup: Setup) -> dict[str, str]:
    """Return benchmark → the key of its evaluation questions."""
    every = evaluation_questions(setup.workspace, setup.recipe)
    return {name: questions_key(questions) for name, questions in sorted(every.items()) if questions}


def grader_keys(setup: Setup) -> dict[str, str]:
    """Return benchmark → the graders of its evaluation questions with their versions, without spaces."""
    every = evaluation_questions(setup.workspace, setup.recipe)
    keys = {name: graders_key(questions, setup) for name, questions in sorted(every.items()) if questions}
    return {name: key.replace(" ", ",") for name, key in keys.items()}


def _domains(setup: Setup) -> dict[str, str]:
    """Return benchmark → domain for the benchmarks with questions."""
    every = evaluation_questions(setup.workspace, setup.recipe)
    return {name: questions[0].domain for name, questions in every.items() if questions}


def _with_domains(rows: Sequence[OutcomeRow], domains: dict[str, str]) -> list[OutcomeRow]:
    return [replace(row, domain=domains[row.benchmark]) for row in rows]


def comparison_file(workspace: Workspace, policy: str) -> Path:
    """Return the path `scores/comparisons/POLICY.json`, where `policy` is the policy's key."""
    return workspace.scores / "comparisons" / f"{policy}.json"


def _board(systems: dict[str, dict[str, dict[str, Any]]]) -> Leaderboard:
    return Leaderboard({
        name: {key: Summary(**{**row, "accuracy": MeanEstimate(*row["accuracy"])}) for key, row in scores.items()}
        for name, scores in systems.items()
    })  # fmt: skip
