"""Scores state their policy, pool and questions: scores of others are never used for a judgement."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from ops.benchmarks.problem_files import read_evaluation_questions
from ops.conductor.policy import policy_key
from ops.config import Evaluation, Pool, Price, Recipe, Setup, Worker
from ops.core.digests import DIGEST_SUFFIX, write_digest
from ops.core.errors import DataError
from ops.core.once import InputMismatchError
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow, response_file
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.evaluation import comparison
from ops.evaluation.comparison import (
    OUTCOME_COLUMNS,
    compare_systems,
    read_comparison,
    write_outcome_table,
    write_outcomes,
)
from ops.evaluation.stored_scores import COLD_START, CONDUCTOR, score_file, scores_key
from ops.precaching.precache import write_responses
from ops.precaching.stored_profiles import evaluation_folder, responses_key
from ops.results.outcome_rows import CallUsage, OutcomeRow
from ops.results.table import iterate_records, load_rows, reprice_rows, save_rows
from ops.stages.raw_problems import materialize_raw
from ops.workers.pool import reprice_responses as responses_at_prices
from tests.setups import without_workers

ORACLE = ("oracle (upper bound)", "oracle (by chance)")
TRAINED = ("math500", "mmlu", "rlpr", "livecodebench")
RECIPE = Recipe.model_validate({
    "name": "small", "pool": "two", "policy": {"kind": "scratch"}, "cold_start": {},
    "benchmarks": {name: {"train": 4, "test": 3} for name in TRAINED},
})  # fmt: skip
POOL = Pool(
    name="two",
    workers=tuple(Worker(name=name, model=f"local/{name}", price=Price(input=1, output=2)) for name in ("ann", "bob")),
)


def changed(number: int, **fields: object) -> Pool:
    """Return the pool with these fields of one worker changed."""
    workers = list(POOL.workers)
    workers[number] = workers[number].model_copy(update=fields)
    return Pool(name="two", workers=tuple(workers))


COSTLIER = changed(0, price=Price(input=10, output=20))


class Evaluated(NamedTuple):
    """A checkout with all scores."""

    workspace: Workspace
    policy: Path
    base: Path

    def compare(self, pool: Pool = POOL, policy: Path | None = None) -> comparison.Comparison:
        return compare_systems(Setup(self.workspace, RECIPE, pool), policy or self.policy, self.base)

    def stored(self, pool: Pool = POOL, policy: Path | None = None) -> comparison.Comparison:
        return read_comparison(Setup(self.workspace, RECIPE, pool), policy or self.policy)


def score(problem: Problem, correct: int) -> OutcomeRow:
    return OutcomeRow(
        benchmark=problem.benchmark, problem_id=problem.id, repeat=0, domain=problem.domain, correct=correct,
        format_ok=True, failure="", status="answered", steps=1, workers=("ann",), tokens=150, cost_usd=0.5,
        latency_s=1.0, completion="c", answer="a", unscorable=False, usage=(CallUsage("ann", Usage(100, 50)),),
    )  # fmt: skip


def answer(worker: str, problem: Problem, right: float) -> ResponseRow:
    response = Response("t", Usage(100, 50), 0.5, 1.0, "stop")
    return ResponseRow(worker, problem.benchmark, problem.id, 0, "ok", response, right)


def save_scores(workspace: Workspace, name: str, policy: Path, correct: int, pool: Pool = POOL) -> None:
    for benchmark, questions in read_evaluation_questions(workspace, RECIPE).items():
        rows = [score(problem, correct) for problem in questions]
        key = scores_key(Setup(workspace, RECIPE, pool), policy, questions)
        save_rows(rows, score_file(workspace, name, policy, benchmark), key=key)


@pytest.fixture
def evaluated(tmp_path: Path) -> Evaluated:
    workspace = Workspace(tmp_path)
    for benchmark in TRAINED:
        materialize_raw(without_workers(workspace, RECIPE), benchmark)
    policy, base = workspace.runs / "small-1" / "policy", workspace.policies / "small-0"
    save_scores(workspace, CONDUCTOR, policy, 1)
    save_scores(workspace, COLD_START, base, 0)
    setup = Setup(workspace, RECIPE, POOL)
    for benchmark, questions in read_evaluation_questions(workspace, RECIPE).items():
        for worker in POOL.workers:
            rows = [answer(worker.name, problem, float(worker.name == "bob")) for problem in questions]
            key = responses_key(worker, questions, 1, setup)
            write_responses(rows, response_file(evaluation_folder(workspace), worker.name, benchmark), key)
            write_responses(rows, response_file(workspace.data / "responses", worker.name, benchmark))
    return Evaluated(workspace, policy, base)


def test_a_stored_comparison_is_read_and_not_computed_again(
    evaluated: Evaluated, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = evaluated.compare()
    monkeypatch.setattr(comparison, "build_leaderboard", None)  # a call would fail
    read = evaluated.stored()
    assert (read.policy, read.best_worker) == ("small-1", "bob")
    assert str(read) == str(made)  # what is unknown is NaN, which equals nothing


def test_without_baselines_only_the_gates_opponent_must_have_answered(evaluated: Evaluated) -> None:
    """The promotion gate compares the Conductor with the best single worker; nothing else is read."""
    shutil.rmtree(evaluation_folder(evaluated.workspace) / "ann")
    with pytest.raises(DataError, match="ann"):
        evaluated.compare()
    none = RECIPE.model_copy(update={"evaluation": Evaluation(baselines=())})
    setup = Setup(evaluated.workspace, none, POOL)
    made = compare_systems(setup, evaluated.policy, evaluated.base)
    assert (made.best_worker, len(list(iterate_records(made.best_worker_rows)))) == ("bob", 3 * len(TRAINED))
    assert len(made.leaderboard.systems) == 2, "the Conductor and its cold start"
    assert made.reach == {}, "the share that any worker can answer is unknown"
    assert read_comparison(setup, evaluated.policy) == made
    table = pd.read_parquet(write_outcomes(setup, evaluated.policy, evaluated.base))
    assert set(table["system"]) == {"conductor", "cold_start", "worker bob"}


def test_a_system_without_answers_leaves_a_table_of_the_others(evaluated: Evaluated, tmp_path: Path) -> None:
    rows = load_rows(score_file(evaluated.workspace, CONDUCTOR, evaluated.policy, TRAINED[0]))
    setup, file = Setup(evaluated.workspace, RECIPE, POOL), tmp_path / "table.parquet"
    write_outcome_table(setup, [("baseline", []), ("conductor", rows)], {}, file)
    table = pd.read_parquet(file)
    assert list(table["system"]) == ["conductor"] * len(rows) and list(table["tokens"]) == [row.tokens for row in rows]


def test_a_new_policy_has_no_scores_yet(evaluated: Evaluated) -> None:
    evaluated.compare()
    new = evaluated.workspace.runs / "small-2" / "policy"
    with pytest.raises(DataError, match=r"small-2.*does not exist\. Materialize benchmark_scores for math500"):
        evaluated.compare(policy=new)
    with pytest.raises(DataError, match=r"small-2\.json.*does not exist\. Materialize leaderboard"):
        evaluated.stored(policy=new)


def test_scores_that_were_copied_to_another_policy_are_refused(evaluated: Evaluated) -> None:
    new = evaluated.workspace.runs / "small-2" / "policy"
    for benchmark in TRAINED:
        target = score_file(evaluated.workspace, CONDUCTOR, new, benchmark)
        target.parent.mkdir(parents=True, exist_ok=True)
        source = score_file(evaluated.workspace, CONDUCTOR, evaluated.policy, benchmark)
        for file in (source, source.with_name(source.name + DIGEST_SUFFIX)):
            shutil.copy(file, target.parent)
    with pytest.raises(InputMismatchError, match=r"policy small-1 instead of small-2"):
        evaluated.compare(policy=new)


def test_scores_of_another_pool_or_other_questions_are_refused(evaluated: Evaluated) -> None:
    with pytest.raises(InputMismatchError, match="pool"):
        evaluated.compare(pool=changed(0, revision="2"))
    more = RECIPE.model_copy(update={"benchmarks": RECIPE.benchmarks | {"mmlu": RECIPE.benchmarks["mmlu"].model_copy(
        update={"test": 4})}})  # fmt: skip
    materialize_raw(without_workers(evaluated.workspace, more), "mmlu")
    with pytest.raises(InputMismatchError, match=r"mmlu\.parquet.*questions"):
        evaluated.compare()


def test_a_workers_answers_from_before_its_change_are_refused(evaluated: Evaluated) -> None:
    revised = changed(1, temperature=0.9)
    save_scores(evaluated.workspace, CONDUCTOR, evaluated.policy, 1, revised)
    save_scores(evaluated.workspace, COLD_START, evaluated.base, 0, revised)
    with pytest.raises(InputMismatchError, match=r"bob.*worker .* Materialize baselines for math500"):
        evaluated.compare(pool=revised)


def test_a_recipe_names_the_baselines_that_stand_beside_the_conductor(evaluated: Evaluated) -> None:
    systems = list(evaluated.compare().leaderboard.systems)
    assert systems == ["Conductor", "cold start", "best worker (bob)", "random worker", *ORACLE]
    few = RECIPE.model_copy(update={"evaluation": RECIPE.evaluation.model_copy(update={"baselines": ("oracle",)})})
    made = compare_systems(Setup(evaluated.workspace, few, POOL), evaluated.policy, evaluated.base)
    assert list(made.leaderboard.systems) == ["Conductor", "cold start", *ORACLE]
    assert made.best_worker == "bob"  # the gate's opponent, regardless of the table


def test_a_comparison_from_before_the_scores_is_refused(evaluated: Evaluated) -> None:
    evaluated.compare()
    save_scores(evaluated.workspace, CONDUCTOR, evaluated.policy, 0)
    with pytest.raises(DataError, match=r"scores: .* Materialize leaderboard"):
        evaluated.stored()


def test_another_price_changes_costs_and_nothing_else(evaluated: Evaluated) -> None:
    before = evaluated.compare()
    with pytest.raises(DataError, match=r"prices: .* Materialize leaderboard"):
        evaluated.stored(pool=COSTLIER)
    after = evaluated.compare(pool=COSTLIER)
    then, now = list(iterate_records(before.conductor)), list(iterate_records(after.conductor))
    assert [row.correct for row in now] == [row.correct for row in then]
    assert {round(row.cost_usd * 1e6) for row in then} == {100 * 1 + 50 * 2}
    assert {round(row.cost_usd * 1e6) for row in now} == {100 * 10 + 50 * 20}
    conductor = [board.systems["Conductor"]["mmlu"] for board in (before.leaderboard, after.leaderboard)]
    assert conductor[1].values["cost_usd"] == pytest.approx(10 * conductor[0].values["cost_usd"])
    assert conductor[1].accuracy == conductor[0].accuracy


def test_workers_without_a_price_keep_their_recorded_cost() -> None:
    problem = Problem("1", "mmlu", "mmlu", "test", "?", "A", "choice", ("x", "y"))
    listed = Pool(name="p", workers=(Worker(name="ann", model="openai/gpt-5"),))
    for pool in (listed, Pool(name="p", workers=(Worker(name="other", model="local/x"),))):
        assert list(iterate_records(reprice_rows([score(problem, 1)], pool))) == [score(problem, 1)]
        assert responses_at_prices([answer("ann", problem, 1.0)], pool) == [answer("ann", problem, 1.0)]


def test_rows_keep_their_usage_on_disk_and_a_file_that_lacks_a_column_is_refused(tmp_path: Path) -> None:
    problem = Problem("1", "mmlu", "mmlu", "test", "?", "A", "choice", ("x", "y"))
    rows = [score(problem, 1), replace(score(problem, 0), repeat=1, workers=(), usage=())]
    save_rows(rows, tmp_path / "rows.parquet")
    assert load_rows(tmp_path / "rows.parquet") == rows
    pd.read_parquet(tmp_path / "rows.parquet").drop(columns=["usage"]).to_parquet(tmp_path / "other.parquet")
    write_digest(tmp_path / "other.parquet")
    with pytest.raises(DataError, match=r"other\.parquet: column usage: is missing.*podium run RECIPE"):
        load_rows(tmp_path / "other.parquet")


def test_every_answer_of_every_system_stands_in_one_table(evaluated: Evaluated) -> None:
    setup = Setup(evaluated.workspace, RECIPE, POOL)
    table = pd.read_parquet(write_outcomes(setup, evaluated.policy, evaluated.base))
    assert tuple(table.columns) == tuple(OUTCOME_COLUMNS)
    assert list(table["system"].unique()) == ["conductor", "cold_start", "worker ann", "worker bob"]
    assert (table.groupby("system")["problem"].count() == 3 * len(TRAINED)).all()
    assert set(table.loc[table["system"] == "conductor", "policy"]) == {policy_key(evaluated.policy)}
    assert set(table["pool"]) == {POOL.answers_key} and not table["unscorable"].any()
    own = table[table["system"] == "conductor"]
    right = [row.correct for row in iterate_records(evaluated.compare().conductor)]
    assert own["correct"].mean() == pytest.approx(sum(right) / len(own))
