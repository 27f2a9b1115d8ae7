"""Score a policy and the baselines that run workflows on the evaluation questions of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ops.benchmarks.graded import prepare_tables
from ops.benchmarks.problem_files import read_evaluation_questions
from ops.conductor.policy import policy_key
from ops.conductor.stored_writer import StoredWriter, Writer, policy_id
from ops.conductor.untrained import PromptedConductor, StaticConductor
from ops.config import Setup, group_by_setup
from ops.core.async_run import run_async
from ops.core.once import Key, false_if_inputs_missing, is_made
from ops.core.problem import Problem
from ops.core.processes import lock_files
from ops.evaluation.method import Method, TrainingData
from ops.evaluation.row_sorting import RowSorter
from ops.evaluation.runner import evaluate, evaluate_method
from ops.evaluation.stored_baselines import BaselineStore, list_baseline_stores
from ops.evaluation.stored_scores import score_file, scores_key, with_execution_code
from ops.grading.hidden_tests import check_hidden_tests
from ops.release.evaluation_runs import TraceSample
from ops.results.outcome_rows import OutcomeRow
from ops.results.table import concatenate_rows, iterate_records, reprice_rows, scan_rows
from ops.workers.client import WorkerClient
from ops.workflow.team import Team
from ops.workflow.trace import QuestionTrace

if TYPE_CHECKING:
    import polars as pl

    from ops.conductor.writer import AnyConductor

OnProgress = Callable[[int, int, str], None]


def score_policy(
    setup: Setup,
    policy: Path,
    name: str,
    client: WorkerClient,
    benchmarks: Sequence[str],
    on_progress: OnProgress | None = None,
    *,
    force: bool = False,
) -> dict[str, pl.LazyFrame]:
    """Let a policy answer the evaluation questions; return benchmark → the rows of its score file at the pool's prices.

    `policy` is the folder of the policy, and the rows are stored in `scores/NAME/POLICY/BENCHMARK.parquet`. Score files
    that are up to date are read, unless `force` is true. Completions, responses and verdicts are stored as they arrive,
    so that an evaluation that was interrupted continues when it is started again.

    A policy that was trained in rounds runs in rounds, within the limits of its card. A policy that was trained with
    worker descriptions is also offered workers that joined the pool later. Benchmarks without questions are left out.
    An evaluation run with a sample of the executions as traces is logged to MLflow. Raises `DataError`, `OverBudget`
    and `ConfigError`; no score file changes then.
    """
    from ops.conductor.writer import load_conductor

    with lock_files(setup.workspace, *(score_file(setup.workspace, name, policy, each) for each in benchmarks)):
        questions_of = _read_questions(setup, benchmarks)
        keys, weights = _score_files(setup, policy, name, questions_of), policy_id(policy)
        prepare_tables(dict(keys.values()))
        files = {benchmark: file for benchmark, (file, _) in keys.items()}
        keys = {benchmark: made for benchmark, made in keys.items() if force or not is_made(*made)}
        questions_of = {benchmark: questions_of[benchmark] for benchmark in keys}
        if not questions_of:
            return _read_at_prices(setup, files)
        sample, total = TraceSample(setup.recipe.execution.traces), _count_answers(setup, questions_of)
        with (
            closing(load_conductor(policy, setup.workspace, setup.recipe.evaluation.writer)) as conductor,
            RowSorter() as rows,
        ):
            done = 0

            def count(played: Sequence[OutcomeRow], traces: Sequence[QuestionTrace]) -> None:
                nonlocal done
                sample.record(played, traces)
                done += len(played)
                if on_progress is not None:
                    on_progress(done, total, name)

            for asked, names in group_by_setup(setup, questions_of):
                questions = [question for benchmark in names for question in questions_of[benchmark]]
                with open_writer_and_team(conductor, weights, asked, client) as (writer, team):
                    answering = evaluate(
                        writer, questions, team, asked.recipe.evaluation, seed=asked.recipe.seed,
                        limits=conductor.card.rounds, has_room=conductor.has_room, on_executed=count, add_rows=rows.add,
                    )  # fmt: skip
                    run_async(answering)
            rows.write(keys)
        scores = _read_at_prices(setup, files)
        played = concatenate_rows([scores[benchmark] for benchmark in questions_of])
        sample.export(setup, name, policy_key(policy), questions_of, played)
        return scores


def _read_at_prices(setup: Setup, files: Mapping[str, Path]) -> dict[str, pl.LazyFrame]:
    """Return benchmark → the rows of its score file, at the prices of the pool that answers the benchmark."""
    return {
        benchmark: reprice_rows(scan_rows(file), setup.for_benchmark(benchmark).pool)
        for benchmark, file in files.items()
    }


@false_if_inputs_missing
def is_policy_scored(setup: Setup, policy: Path, name: str, benchmarks: Sequence[str]) -> bool:
    """Return whether all score files that `score_policy` would write exist and would come out the same."""
    return all(
        is_made(*made) for made in _score_files(setup, policy, name, _read_questions(setup, benchmarks)).values()
    )


@false_if_inputs_missing
def are_baselines_scored(setup: Setup, benchmarks: Sequence[str]) -> bool:
    """Return whether all score files that `score_baselines` would write exist and would come out the same."""
    questions_of = _read_questions(setup, benchmarks)
    return all(store.is_complete(questions_of) for store in list_baseline_stores(setup))


def _score_files(
    setup: Setup, policy: Path, name: str, questions_of: Mapping[str, Sequence[Problem]]
) -> dict[str, tuple[Path, Key]]:
    """Return benchmark → its score file, and the key of the scores."""
    return {
        benchmark: (
            score_file(setup.workspace, name, policy, benchmark),
            with_execution_code(scores_key(setup.for_benchmark(benchmark), policy, questions)),
        )
        for benchmark, questions in questions_of.items()
    }


@contextmanager
def open_writer_and_team(
    conductor: AnyConductor, weights: str, asked: Setup, client: WorkerClient
) -> Iterator[tuple[Writer | PromptedConductor, Team]]:
    """Open what `evaluate` needs for a policy: the writer of workflows, whose completions are stored, and the team of
    workers.

    `weights` identifies the policy's weights in the store, and `asked` is the setup of the questions to answer.
    """
    card, workspace = conductor.card, asked.workspace
    team = card.build_team(asked.pool, workspace.texts, asked.recipe.execution, client)
    team = card.add_new_workers(team, asked.pool, workspace.data)
    if isinstance(conductor, PromptedConductor | StaticConductor):
        yield conductor, team
        return
    with closing(StoredWriter(conductor, weights, workspace.cache)) as writer:
        yield writer, team


def _count_answers(setup: Setup, questions_of: Mapping[str, Sequence[Problem]]) -> int:
    """Return the number of answers that one system gives to these questions, over all repeats."""
    return sum(len(own) * setup.for_benchmark(name).recipe.evaluation.repeats for name, own in questions_of.items())


def _read_questions(setup: Setup, benchmarks: Sequence[str]) -> dict[str, list[Problem]]:
    every = read_evaluation_questions(setup.workspace, setup.recipe)
    asked = {name: every[name] for name in benchmarks if every.get(name)}
    check_hidden_tests(problem for own in asked.values() for problem in own)
    return asked


def score_baselines(
    setup: Setup,
    client: WorkerClient,
    benchmarks: Sequence[str],
    on_progress: OnProgress | None = None,
    *,
    force: bool = False,
) -> dict[str, pl.LazyFrame]:
    """Train the recipe's baselines that run workflows on the training mix, and score them on `benchmarks`.

    Returns the baseline's name → its rows at the pool's prices. Stored rows are reused if pool, mix, questions,
    settings and graders are the same, unless `force` is true. Raises `DataError`, `OverBudget` and `ConfigError`; the
    files of a baseline change together or not at all.
    """
    questions_of = _read_questions(setup, benchmarks)
    return {
        store.entry.name: _score_baseline(store, client, questions_of, on_progress, force)
        for store in list_baseline_stores(setup)
    }


def _score_baseline(
    store: BaselineStore,
    client: WorkerClient,
    questions_of: Mapping[str, Sequence[Problem]],
    on_progress: OnProgress | None,
    force: bool,
) -> pl.LazyFrame:
    with lock_files(store.setup.workspace, *map(store.file, questions_of)):
        prepare_tables({store.file(name): store.key(name, own) for name, own in questions_of.items()})
        if store.is_complete(questions_of) and not force:
            return store.rows(questions_of)
        return _run_baseline(store, client, questions_of, on_progress)


def _run_baseline(
    store: BaselineStore,
    client: WorkerClient,
    questions_of: Mapping[str, Sequence[Problem]],
    on_progress: OnProgress | None,
) -> pl.LazyFrame:
    setup, team = store.setup, _make_team(store.setup, client)

    def run(method: Method, problems: Sequence[Problem]) -> list[OutcomeRow]:
        once = setup.recipe.evaluation.model_copy(update={"repeats": 1})
        return list(iterate_records(reprice_rows(run_async(evaluate_method(method, problems, team, once)), setup.pool)))

    known = store.training
    method = store.entry.prepare(
        TrainingData(team, known.problems, known.responses, setup.recipe.seed, run, known.few_shots)
    )
    total = _count_answers(setup, questions_of)
    with RowSorter() as rows:
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            if on_progress is not None:
                on_progress(done, total, store.entry.name)

        for name, questions in questions_of.items():
            asked = setup.for_benchmark(name)
            settings = asked.recipe.evaluation
            run_async(evaluate_method(method, questions, _make_team(asked, client), settings, count, rows.add))
        store.store(rows, _describe_method(method, rows), questions_of)
    return store.rows(questions_of)


def _make_team(setup: Setup, client: WorkerClient) -> Team:
    return Team(setup.pool.workers, client, setup.recipe.prompting, execution=setup.recipe.execution)


def _describe_method(method: Method, rows: RowSorter) -> str:
    """Return the baseline's description for tables, with the share of valid workflows if a model writes them."""
    if method.author is None or not len(rows):
        return method.detail
    return f"{method.detail}, {sum(row.format_ok for row in rows) / len(rows):.0%} valid"
