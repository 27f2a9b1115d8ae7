"""The score files of baselines that run workflows: their paths, the keys of their inputs, and their training data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from ops.benchmarks.graded import GRADER_KEY, graders_key, read_graded_responses
from ops.benchmarks.problem_files import questions_key, read_evaluation_questions, read_problems
from ops.config import Setup, digest
from ops.core.checked_files import read_json, write_json
from ops.core.once import Key, check_inputs, is_made
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow
from ops.core.workspace import Workspace
from ops.evaluation.baseline import BaselineScores, WorkflowBaseline, select_baselines
from ops.evaluation.row_sorting import RowSorter
from ops.evaluation.stored_scores import settings_key, with_execution_code
from ops.results.summary import summarize
from ops.results.table import concatenate_rows, reprice_rows, scan_rows
from ops.workers.pool import reprice_responses as responses_at_prices
from ops.workflow.few_shots import FewShot, load_few_shots

if TYPE_CHECKING:
    import polars as pl

_METHOD = "method.json"
FEW_SHOTS = "out_of_distribution"
"""The worked examples that a baseline may use: those of the paper's main model, independent of the recipe's policy."""


@dataclass(frozen=True)
class TrainingAnswers:
    """The stored data that a baseline may learn from: the training mix, the workers' own responses to it, worked
    examples."""

    problems: Sequence[Problem]
    responses: Sequence[ResponseRow]
    few_shots: Sequence[FewShot] = ()

    @classmethod
    def read(cls, setup: Setup) -> Self:
        """Read the data, with responses at the pool's prices.

        Raises `DataError` for unreadable data, and `ConfigError` for unreadable worked examples.
        """
        problems = read_problems(setup.workspace.data / "training_mix.jsonl")
        return cls(problems, read_training_responses(problems, setup), load_few_shots(setup.workspace.texts, FEW_SHOTS))

    @cached_property
    def key(self) -> str:
        """A hash of the problems, graders, grades and examples, independent of prices and latencies."""
        grades = sorted((row.worker, row.problem_key, row.sample, row.status, row.score) for row in self.responses)
        shots = [shot.model_dump() for shot in self.few_shots]
        return digest([questions_key(self.problems), graders_key(self.problems), grades, shots])


def read_training_responses(problems: Sequence[Problem], setup: Setup) -> list[ResponseRow]:
    """Read the recorded responses of the pool's workers to these problems, at the pool's prices. Raises `DataError`."""
    keys = {problem.key for problem in problems}
    rows = read_graded_responses(setup.workspace.data / "responses")
    own = [row for row in rows if row.worker in setup.pool.names and row.problem_key in keys]
    return responses_at_prices(own, setup.pool)


def baselines_folder(workspace: Workspace) -> Path:
    """Return the folder of all baselines' scores."""
    return workspace.scores / "baselines"


class BaselineStore(NamedTuple):
    """The stored scores of one baseline for a setup and training data, in the folder `scores/baselines/NAME/KEY`."""

    setup: Setup
    entry: WorkflowBaseline
    training: TrainingAnswers

    @property
    def folder(self) -> Path:
        """The folder of the baseline's score files, named by a hash of everything that the method depends on."""
        return baselines_folder(self.setup.workspace) / self.entry.name / digest(self._method_key())

    def file(self, benchmark: str) -> Path:
        """Return the path of the score file of a benchmark."""
        return self.folder / f"{benchmark}.parquet"

    def key(self, benchmark: str, questions: Sequence[Problem]) -> Key:
        """Return the inputs that a reader of the scores on these questions of a benchmark relies on."""
        asked = self.setup.for_benchmark(benchmark)
        return {
            **self._method_key(),
            "answers": asked.pool.answers_key,
            "settings": settings_key(asked, "repeats"),
            "questions": questions_key(questions),
            GRADER_KEY: graders_key(questions, asked),
        }

    def _method_key(self) -> dict[str, str]:
        """Return the keys of everything that the method depends on."""
        return {
            "baseline": self.entry.name,
            "pool": self.setup.pool.answers_key,
            "known": self.training.key,
            "seed": str(self.setup.recipe.seed),
        }

    def storage_key(self, benchmark: str, questions: Sequence[Problem]) -> Key:
        """Return `key` with the version of the method's code, with which the scores are stored."""
        return with_execution_code(self.key(benchmark, questions), f"ops.evaluation.baselines.{self.entry.name}")

    def is_complete(self, questions_of: Mapping[str, Sequence[Problem]]) -> bool:
        """Return whether the scores on these questions are stored and would come out the same."""
        made = (is_made(self.file(name), self.storage_key(name, own)) for name, own in questions_of.items() if own)
        return all(made) and (self.folder / _METHOD).is_file()

    def store(self, rows: RowSorter, detail: str, questions_of: Mapping[str, Sequence[Problem]]) -> None:
        """Store the rows on these questions; `detail` says what the method chose or learned."""
        write_json(self.folder / _METHOD, {"detail": detail})
        rows.write({name: (self.file(name), self.storage_key(name, own)) for name, own in questions_of.items()})

    def rows(self, questions_of: Mapping[str, Sequence[Problem]]) -> pl.LazyFrame:
        """Return the stored rows at the pool's prices. Raises `DataError` if they are missing or stale."""
        tables = []
        for benchmark, questions in questions_of.items():
            if questions:
                remedy = f"Materialize baselines for {benchmark}"
                check_inputs(self.file(benchmark), self.key(benchmark, questions), remedy)
                tables.append(reprice_rows(scan_rows(self.file(benchmark)), self.setup.for_benchmark(benchmark).pool))
        return concatenate_rows(tables)

    def read_scores(self, questions_of: Mapping[str, Sequence[Problem]]) -> BaselineScores:
        """Return the baseline's scores for the leaderboard. Raises `DataError` if they are missing or stale."""
        rows = self.rows(questions_of)
        detail = str(read_json(self.folder / _METHOD, "Materialize baselines")["detail"])
        return BaselineScores(summarize(rows), detail)


def list_baseline_stores(setup: Setup) -> list[BaselineStore]:
    """Return the stores of the recipe's baselines that run workflows.

    Raises `DataError` if there are such baselines and the training mix or its responses cannot be read.
    """
    entries = [
        entry for entry in select_baselines(setup.recipe.evaluation.baselines) if isinstance(entry, WorkflowBaseline)
    ]
    if not entries:
        return []
    known = TrainingAnswers.read(setup)
    return [BaselineStore(setup.for_opponents, entry, known) for entry in entries]


def make_score_reader(setup: Setup) -> Callable[[WorkflowBaseline], BaselineScores]:
    """Return a function that reads the stored scores of one of the recipe's baselines on all questions.

    The function raises `DataError` if the scores are missing or stale.
    """
    questions_of = read_evaluation_questions(setup.workspace, setup.recipe)
    by_name = {store.entry.name: store for store in list_baseline_stores(setup)}
    return lambda entry: by_name[entry.name].read_scores(questions_of)
