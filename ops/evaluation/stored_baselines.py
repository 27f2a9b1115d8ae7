"""Score files of the baselines that ask: where they lie, what they are scores of, what they were learned from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from ops.benchmarks.store import evaluation_questions, questions_key, read_problems
from ops.config import Setup, digest
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.rows import Origin, ResponseRow, check_origin, load_responses
from ops.evaluation.baseline import Standing, WorkflowBaseline, chosen
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.runner import summarize
from ops.evaluation.scores import at_prices, load_rows, save_rows
from ops.evaluation.stored import settings_key
from ops.workers.pool import at_prices as responses_at_prices
from ops.workflow.few_shots import FewShot, load_few_shots

_METHOD = "method.json"
FEW_SHOTS = "out_of_distribution"
"""The worked examples that a baseline may show: those of the paper's main model, whatever the recipe's policy is shown.
"""


@dataclass(frozen=True)
class TrainingAnswers:
    """What a baseline may learn from: the mix, what the pool's workers answered to it alone, and worked examples."""

    problems: Sequence[Problem]
    responses: Sequence[ResponseRow]
    few_shots: Sequence[FewShot] = ()

    @classmethod
    def read(cls, setup: Setup) -> Self:
        """At the pool's prices. Raises `DataError`, and `ConfigError` for examples that cannot be read."""
        problems = read_problems(setup.workspace.data / "training_mix.jsonl")
        return cls(problems, answers_to(problems, setup), load_few_shots(setup.workspace.texts, FEW_SHOTS))

    @cached_property
    def key(self) -> str:
        """Changes with a problem, a grade or an example, not with a price or a latency."""
        grades = sorted((row.worker, row.problem_key, row.sample, row.status, row.score) for row in self.responses)
        return digest([questions_key(self.problems), grades, [shot.model_dump() for shot in self.few_shots]])


def answers_to(problems: Sequence[Problem], setup: Setup) -> list[ResponseRow]:
    """What the pool's workers were recorded to answer to these problems alone, at its prices. Raises `DataError`."""
    keys = {problem.key for problem in problems}
    rows = load_responses(setup.workspace.data / "responses")
    own = [row for row in rows if row.worker in setup.pool.names and row.problem_key in keys]
    return responses_at_prices(own, setup.pool)


class BaselineStore(NamedTuple):
    """Where the scores of one baseline lie, in this setup and learned from that: `scores/baselines/NAME/KEY`."""

    setup: Setup
    entry: WorkflowBaseline
    known: TrainingAnswers

    @property
    def folder(self) -> Path:
        return self.setup.workspace.scores / "baselines" / self.entry.name / digest(self._method())

    def file(self, benchmark: str) -> Path:
        return self.folder / f"{benchmark}.parquet"

    def origin(self, benchmark: str, questions: Sequence[Problem]) -> Origin:
        """What the scores on a benchmark, asked these questions, are scores of."""
        asked = self.setup.asked_on(benchmark)
        return {
            **self._method(),
            "answers": asked.pool.answers_key,
            "settings": settings_key(asked, "repeats"),
            "questions": questions_key(questions),
        }

    def _method(self) -> dict[str, str]:
        """What it was learned from."""
        return {
            "baseline": f"{self.entry.name} {self.entry.version}",
            "pool": self.setup.pool.answers_key,
            "known": self.known.key,
            "seed": str(self.setup.recipe.seed),
        }

    def keep(self, rows: Sequence[OutcomeRow], detail: str, questions_of: Mapping[str, Sequence[Problem]]) -> None:
        """Store the rows of whole benchmarks, and what the method chose or learned."""
        for benchmark, questions in questions_of.items():
            own = [row for row in rows if row.benchmark == benchmark]
            save_rows(own, self.file(benchmark), origin=self.origin(benchmark, questions))
        write_text(self.folder / _METHOD, json.dumps({"detail": detail}, ensure_ascii=False) + "\n")

    def rows(self, questions_of: Mapping[str, Sequence[Problem]]) -> list[OutcomeRow]:
        """What was kept, at the pool's prices. Raises `DataError` when there is none, or it is of something else."""
        rows: list[OutcomeRow] = []
        for benchmark, questions in questions_of.items():
            if questions:
                remedy = f"Materialize baselines for {benchmark}"
                check_origin(self.file(benchmark), self.origin(benchmark, questions), remedy)
                rows += at_prices(load_rows(self.file(benchmark)), self.setup.asked_on(benchmark).pool)
        return rows

    def standing(self, questions_of: Mapping[str, Sequence[Problem]]) -> Standing:
        """As it stands on the leaderboard. Raises as `rows` does."""
        file = self.folder / _METHOD
        rows = self.rows(questions_of)
        try:
            detail = str(json.loads(file.read_text(encoding="utf-8"))["detail"])
        except (OSError, ValueError, KeyError) as error:
            raise DataError(file, "detail", f"cannot be read ({error})", "Materialize baselines") from None
        return Standing(summarize(rows), detail)


def shelves(setup: Setup) -> list[BaselineStore]:
    """Those of the recipe's baselines that ask. Raises `DataError` where there are some, and no mix to learn from."""
    entries = [entry for entry in chosen(setup.recipe.evaluation.baselines) if isinstance(entry, WorkflowBaseline)]
    if not entries:
        return []
    known = TrainingAnswers.read(setup)
    return [BaselineStore(setup, entry, known) for entry in entries]


def kept(setup: Setup) -> Callable[[WorkflowBaseline], Standing]:
    """Finds the stored scores of one of the recipe's baselines that ask, on all of its questions; it raises `DataError`
    where they are missing, or of something else."""
    questions_of = evaluation_questions(setup.workspace, setup.recipe)
    by_name = {shelf.entry.name: shelf for shelf in shelves(setup)}
    return lambda entry: by_name[entry.name].standing(questions_of)
