"""`Benchmark`: what every benchmark is, and how its problems are loaded from any source.

What belongs here: what the seven have in common. What does not: the columns and
cautions of one of them (its own file) and how rows are checked (`rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ops.benchmarks.hub import Hub
from ops.benchmarks.order import shuffled
from ops.benchmarks.rows import Row, problem_of, read_rows, unique
from ops.config import BenchmarkSource
from ops.errors import DataError
from ops.problem import Domain, GraderName, Problem, Split
from ops.workspace import Workspace

EVALUATION_SEED = 0
"""Evaluation questions do not change with a recipe's seed: scores of all seeds and versions stay paired."""
EMBEDDED_TRAIN, EMBEDDED_TEST = 1000, 100
"""How many problems the embedded families make where the recipe does not say."""


def as_it_is(row: Row) -> Row:
    """The adapter of a benchmark whose files are already in our row shape."""
    return row


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: what it asks, how it is graded, where it comes from, what to beware of.

    `from_hub` turns a row of the hub's dataset into the shape of our files (`id, question, choices,
    answer, tests, subject, level`); `adapt` turns a row of that shape into what `rows.problem_of` reads.
    """

    name: str
    domain: Domain
    grader: GraderName
    licence: str
    citation: str
    cautions: tuple[str, ...]
    hub: Hub
    from_hub: Callable[[Row], Row]
    adapt: Callable[[Row], Row] = as_it_is

    @property
    def trains(self) -> bool:
        """Whether it has a training split; the unseen benchmarks have none."""
        return "train" in self.hub.parts

    @property
    def splits(self) -> tuple[Split, ...]:
        return ("train", "test") if self.trains else ("test",)

    def load(self, split: Split, source: BenchmarkSource, workspace: Workspace, seed: int) -> list[Problem]:
        """Problems of `split`; `source` says from where and how many. Same arguments, same problems.

        A cap takes a seeded sample, in file order. The seed moves training candidates only
        (`EVALUATION_SEED`). Raises `DataError` naming file, line, column and remedy.
        """
        if split == "train" and not self.trains:
            raise DataError(self.name, "split 'train'", "is for evaluation only", "Train on another benchmark")
        cap = source.train if split == "train" else source.test
        seed = seed if split == "train" else EVALUATION_SEED
        if source.source == "embedded":
            return self._embedded(split, cap or (EMBEDDED_TRAIN if split == "train" else EMBEDDED_TEST), seed)
        rows = (
            self._file_rows(split, source, workspace)
            if source.source == "file"
            else (self.from_hub(row) for row in self.hub.rows(split, source.revision))
        )
        return sample(self.problems(rows, split), cap, seed)

    def problems(self, rows: Iterator[Row], split: Split) -> list[Problem]:
        """Checked problems of rows in our file shape. Raises `DataError`."""
        return [problem_of(self.adapt(row), self.name, self.domain, self.grader, split) for row in unique(rows)]

    def _embedded(self, split: Split, count: int, seed: int) -> list[Problem]:
        from ops.miniature.problems import generate

        problems: list[Problem] = generate(self.name, split, count, seed)
        return problems

    def _file_rows(self, split: Split, source: BenchmarkSource, workspace: Workspace) -> Iterator[Row]:
        name = source.train_file if split == "train" else source.test_file
        if name is None:
            raise DataError(
                self.name,
                f"{split}_file",
                "is not given in the recipe",
                f"Name a .jsonl or .jsonl.gz file with {split} rows",
            )
        return read_rows(workspace.root / Path(name))


def sample(problems: list[Problem], count: int | None, seed: int) -> list[Problem]:
    """A seeded sample of at most `count`, in the order given; None or enough: all."""
    if count is None or len(problems) <= count:
        return problems
    names = [problem.id for problem in problems]
    chosen = {problem.id for problem in shuffled(problems, names, seed)[:count]}
    return [problem for problem in problems if problem.id in chosen]
