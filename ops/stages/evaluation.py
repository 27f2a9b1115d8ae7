"""Evaluate one recipe: score a policy and the workflow baselines on the benchmarks' questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from ops.benchmarks.graded import begin_tables
from ops.benchmarks.store import evaluation_questions
from ops.conductor.stored_writer import StoredWriter, Writer, policy_id
from ops.conductor.untrained import PromptedConductor, StaticConductor
from ops.config import Setup, asked_alike
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.processes import alone
from ops.core.running import run_async
from ops.evaluation.journal import RowJournals, RowSink
from ops.evaluation.method import Known, Method
from ops.evaluation.runner import OnPlayed, evaluate, evaluate_method
from ops.evaluation.stored import score_file, scores_origin
from ops.evaluation.stored_baselines import BaselineStore, baseline_stores
from ops.grading.hidden_tests import check_hidden_tests
from ops.release.tracing import TraceSample
from ops.results.rows import OutcomeRow
from ops.results.table import at_prices, records, scan
from ops.workers.client import WorkerClient
from ops.workflow.team import Team
from ops.workflow.trace import Trace

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
) -> dict[str, pl.LazyFrame]:
    """Score the policy in folder `policy` into `scores/NAME/POLICY/BENCHMARK.parquet`; rows by benchmark.

    Completions and rows are stored as they come: an evaluation that was killed, or that ended in an error, continues
    where it stopped.

    A policy that was trained in rounds is run in rounds, within its card's limits. A policy trained with worker
    descriptions is also offered workers that joined the pool later. Benchmarks without questions are omitted. A sample
    of the executions is logged to MLflow as traces. Raises `DataError`, `OverBudget` and `ConfigError`; no file of
    `name` changes then.
    """
    files = [score_file(setup.workspace, name, policy, benchmark) for benchmark in benchmarks]
    with alone(setup.workspace, *files):
        return _score_policy(setup, policy, name, client, benchmarks, on_progress)


def _score_policy(
    setup: Setup,
    policy: Path,
    name: str,
    client: WorkerClient,
    benchmarks: Sequence[str],
    on_progress: OnProgress | None,
) -> dict[str, pl.LazyFrame]:
    from ops.conductor.writer import load_conductor

    questions_of = {name: own for name, own in _questions(setup, benchmarks).items() if own}
    files = {benchmark: score_file(setup.workspace, name, policy, benchmark) for benchmark in questions_of}
    weights = policy_id(policy)
    origins = {
        benchmark: (files[benchmark], scores_origin(setup.asked_on(benchmark), policy, questions))
        for benchmark, questions in questions_of.items()
    }
    begin_tables(dict(origins.values()))
    sample, total = TraceSample(setup.recipe.execution.traces), _answers(setup, questions_of)
    with (
        closing(load_conductor(policy, setup.workspace, setup.recipe.evaluation.writer)) as conductor,
        RowJournals(origins, weights) as journals,
    ):
        done = len(journals)

        def count(rows: Sequence[OutcomeRow], traces: Sequence[Trace]) -> None:
            nonlocal done
            sample.take(rows, traces)
            done += len(rows)
            if on_progress is not None:
                on_progress(done, total, name)

        for asked, names in asked_alike(setup, questions_of):
            questions = [question for benchmark in names for question in questions_of[benchmark]]
            run_async(answer_all(conductor, weights, questions, asked, client, journals, count))
        journals.finish()
    sample.export(setup.workspace, name)
    return {benchmark: at_prices(scan(file), setup.asked_on(benchmark).pool) for benchmark, file in files.items()}


async def answer_all(
    conductor: AnyConductor,
    weights: str,
    questions: Sequence[Problem],
    asked: Setup,
    client: WorkerClient,
    rows: RowSink,
    on_played: OnPlayed | None = None,
) -> None:
    """Let a policy with these weights answer questions that are `asked` alike, into `rows`; as `evaluate` otherwise."""
    recipe = asked.recipe
    card, workspace = conductor.card, asked.workspace
    team = card.team(asked.pool, workspace.texts, recipe.execution, client)
    team = card.with_newcomers(team, asked.pool, workspace.data)
    with ExitStack() as stack:
        writer: Writer | PromptedConductor = conductor
        if not isinstance(conductor, PromptedConductor | StaticConductor):
            writer = stack.enter_context(closing(StoredWriter(conductor, weights, workspace.cache)))
        await evaluate(
            writer, questions, team, recipe.evaluation,
            seed=recipe.seed, limits=card.rounds, fits=conductor.fits, on_played=on_played, into=rows,
        )  # fmt: skip


def _answers(setup: Setup, questions_of: Mapping[str, Sequence[Problem]]) -> int:
    """Number of answers that one system gives."""
    return sum(len(own) * setup.asked_on(name).recipe.evaluation.repeats for name, own in questions_of.items())


def _questions(setup: Setup, benchmarks: Sequence[str]) -> dict[str, list[Problem]]:
    every = evaluation_questions(setup.workspace, setup.recipe)
    asked = {name: every[name] for name in benchmarks if every.get(name)}
    check_hidden_tests(problem for own in asked.values() for problem in own)
    return asked


def score_baselines(
    setup: Setup, client: WorkerClient, benchmarks: Sequence[str], on_progress: OnProgress | None = None
) -> dict[str, pl.LazyFrame]:
    """Train the recipe's workflow baselines on the mix and score them on `benchmarks`.

    Returns baseline → rows at the pool's prices. Rows stored for the same pool, mix, questions, settings and graders
    are reused, also those of an evaluation that did not end.
    Raises `DataError`, `OverBudget` and `ConfigError`; a baseline's files change together or not at all.
    """
    questions_of = _questions(setup, benchmarks)
    return {
        store.entry.name: _score_baseline(store, client, questions_of, on_progress) for store in baseline_stores(setup)
    }


def _score_baseline(
    store: BaselineStore,
    client: WorkerClient,
    questions_of: Mapping[str, Sequence[Problem]],
    on_progress: OnProgress | None,
) -> pl.LazyFrame:
    with alone(store.setup.workspace, *map(store.file, questions_of)):
        begin_tables({store.file(name): store.origin(name, own) for name, own in questions_of.items()})
        try:
            return store.rows(questions_of)
        except DataError:  # no stored rows, or rows of another pool, mix, settings or grader
            return _asked_baseline(store, client, questions_of, on_progress)


def _asked_baseline(
    store: BaselineStore,
    client: WorkerClient,
    questions_of: Mapping[str, Sequence[Problem]],
    on_progress: OnProgress | None,
) -> pl.LazyFrame:
    setup, team = store.setup, _team(store.setup, client)

    def run(method: Method, problems: Sequence[Problem]) -> list[OutcomeRow]:
        once = setup.recipe.evaluation.model_copy(update={"repeats": 1})
        return list(records(at_prices(run_async(evaluate_method(method, problems, team, once)), setup.pool)))

    known = store.known
    method = store.entry.prepare(Known(team, known.problems, known.responses, setup.recipe.seed, run, known.few_shots))
    total = _answers(setup, questions_of)
    with store.journals(questions_of) as journals:
        done = len(journals)

        def count(more: int) -> None:
            nonlocal done
            done += more
            if on_progress is not None:
                on_progress(done, total, store.entry.name)

        for name, questions in questions_of.items():
            asked = setup.asked_on(name)
            settings = asked.recipe.evaluation
            run_async(evaluate_method(method, questions, _team(asked, client), settings, count, journals))
        store.keep(journals, _detail(method, journals))
    return store.rows(questions_of)


def _team(setup: Setup, client: WorkerClient) -> Team:
    return Team(setup.pool.workers, client, setup.recipe.prompting, execution=setup.recipe.execution)


def _detail(method: Method, rows: RowJournals) -> str:
    """Detail of the baseline in tables, with the share of valid workflows if a model writes them."""
    if method.author is None or not len(rows):
        return method.detail
    return f"{method.detail}, {sum(row.format_ok for row in rows) / len(rows):.0%} valid"
