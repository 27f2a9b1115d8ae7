"""The definition of a benchmark, and the loading of its problems from any source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.files import RowOrError, scan_rows
from ops.benchmarks.hub import HubDataset
from ops.benchmarks.source_rows import Row, RowError, UniqueIdCheck, make_problem, shuffle_by_hash
from ops.config import BenchmarkSource
from ops.core.errors import ConfigError, DataError
from ops.core.problem import Domain, GraderName, Problem, Split
from ops.core.registry import check_names, load_plugins
from ops.core.workspace import Workspace
from ops.grading import GRADERS
from ops.grading.hidden_tests import extract_hidden_tests

EVALUATION_SEED = 0
"""The seed of evaluation questions. It does not depend on the recipe, so that the scores of all seeds and versions are
of the same questions."""
EMBEDDED_TRAIN, EMBEDDED_TEST = 1000, 100
"""The default numbers of problems of the embedded families, for training and for evaluation."""


def keep_row_unchanged(row: Row) -> Row:
    """Return the row unchanged: the adapter of a benchmark whose files already have Podium's columns."""
    return row


class UpstreamItem(NamedTuple):
    """The rule that finds the item of an upstream dataset from a problem's id.

    `pattern` matches the id (case folded), and its group names the item in `dataset`. An id alone is not enough,
    because `mmlu-17` of one upstream split is another question than `mmlu-17` of the next. The pattern matches only ids
    that identify their item in every split.
    """

    dataset: str
    pattern: re.Pattern[str]


class LoadedSplit(NamedTuple):
    """One split of a source: the valid problems, the errors of malformed rows, and the number of rows.

    `failing_gold` are the errors of rows that are valid except that the grader rejects their gold answer.
    """

    problems: list[Problem]
    rejected: list[RowError]
    rows: int
    failing_gold: Sequence[RowError] = ()


@dataclass(frozen=True)
class Benchmark:
    """The definition of one benchmark: its questions, its grader, its source and its caveats.

    `from_hub` converts a row of the hub's dataset to the columns of our files (`id, question, choices, answer, tests,
    subject, level`), and `adapt` converts such a row to the input of `source_rows.make_problem`.
    """

    name: str
    domain: Domain
    grader: GraderName
    task: str
    """The task that a worker sees, in words; the form of the answer follows from the grader (`Grader.answer_format`).
    """
    licence: str
    citation: str
    cautions: tuple[str, ...]
    hub: HubDataset
    from_hub: Callable[[Row], Row]
    position: int = 1000
    """The benchmark's position in lists, among those that are trained on or among the others; equal positions are
    sorted by name."""
    adapt: Callable[[Row], Row] = keep_row_unchanged
    is_confidential: bool = False
    """True if questions must never be printed or republished."""
    has_hidden_tests: bool = False
    """True if scores are measured on hidden tests; on public tests alone they would be higher."""
    upstream: UpstreamItem | None = None
    """The rule that finds the upstream item of a problem; None if ids do not identify it."""
    releases: Mapping[Split, str] = field(default_factory=dict)
    """Split → its default release, for benchmarks that are published as dated releases."""

    def __post_init__(self) -> None:
        check_names("grader", "ops.grading.graders", [self.grader])

    @property
    def has_training_split(self) -> bool:
        """True if the benchmark has a training split; otherwise it is used for evaluation only."""
        return "train" in self.hub.splits

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that the benchmark has."""
        return ("train", "test") if self.has_training_split else ("test",)

    def grader_name(self, source: BenchmarkSource) -> GraderName:
        """Return the name of the grader: the recipe's if it states one, otherwise the benchmark's."""
        return self.grader if source.grader is None else source.grader.kind

    def release(self, split: Split, source: BenchmarkSource) -> str:
        """Return the release of `split`; "" for embedded problems or a benchmark without releases.

        Raises `ConfigError` if both splits would be of the same release.
        """
        if not self.releases or source.source == "embedded":
            return ""
        named: dict[Split, str | None] = {"train": source.train_release, "test": source.test_release}
        releases = {part: named[part] or self.releases[part] for part in self.releases}
        if len(set(releases.values())) < len(releases):
            problem = f"is {releases['test']!r}, the training release: what is trained on cannot be held out"
            raise ConfigError("recipe", f"benchmarks.{self.name}.test_release", problem, "Name another release")
        return releases[split]

    def load(
        self,
        split: Split,
        source: BenchmarkSource,
        workspace: Workspace,
        seed: int,
        hidden_tests_folder: Path | None = None,
    ) -> LoadedSplit:
        """Load the problems of a split, and list its malformed rows.

        `source` says where the rows come from and how many are wanted. `hidden_tests_folder` is the folder into which
        hidden tests are written, row by row; None only counts them.

        The same arguments give the same problems. A limit on their number takes a seeded sample, in file order; the
        seed affects training candidates only (`EVALUATION_SEED`). Raises `DataError`, which names file, place and
        remedy, if the source as a whole cannot be used, and `ConfigError` if the recipe cannot be followed.
        """
        if split == "train" and not self.has_training_split:
            raise DataError(self.name, "split 'train'", "is for evaluation only", "Train on another benchmark")
        if GRADERS[self.grader_name(source)].needs_settings and source.grader is None:
            problem = f"is missing, and {self.grader!r} needs settings"
            raise ConfigError("recipe", f"benchmarks.{self.name}.grader", problem, "State it (docs/extend.md)")
        cap = source.train if split == "train" else source.test
        seed = seed if split == "train" else EVALUATION_SEED
        if source.source == "embedded":
            problems = self._generate_embedded(
                split, cap or (EMBEDDED_TRAIN if split == "train" else EMBEDDED_TEST), seed
            )
            return LoadedSplit([_with_recipe_grader(problem, source) for problem in problems], [], len(problems))
        release = self.release(split, source)
        rows, shaped = (
            (self._file_rows(split, source, workspace), self._convert_to_file_shape)
            if source.source == "file"
            else (self._hub_rows(split, source, release), self.from_hub)
        )
        loaded = self._load_rows(rows, shaped, split, release, source, hidden_tests_folder)
        return loaded._replace(problems=sample_problems(loaded.problems, cap, seed))

    def convert_rows(self, rows: Iterable[Row], split: Split) -> list[Problem]:
        """Return the checked problems of rows in Podium's columns. Raises `RowError` at the first malformed row."""
        once = UniqueIdCheck()
        return [self._convert_row(once.check(row), split, "", BenchmarkSource()) for row in rows]

    def _load_rows(
        self,
        scanned: Iterable[RowOrError],
        shaped: Callable[[Row], Row],
        split: Split,
        release: str,
        source: BenchmarkSource,
        tests: Path | None,
    ) -> LoadedSplit:
        once = UniqueIdCheck()
        problems: list[Problem] = []
        rejected: list[RowError] = []
        for item in scanned:
            try:
                if isinstance(item, RowError):
                    raise item
                row = replace(item, is_confidential=self.is_confidential)
                if release and "release" not in row.values:
                    row = row.with_values(release=release)
                problems.append(self._convert_row(once.check(shaped(row)), split, release, source, tests))
            except RowError as error:
                rejected.append(error)
        return LoadedSplit(problems, rejected, len(problems) + len(rejected))

    def _convert_row(
        self, row: Row, split: Split, release: str, source: BenchmarkSource, tests: Path | None = None
    ) -> Problem:
        stated = row.text_or_empty("release").removeprefix("release_")
        if release and stated not in ("", release):
            problem = f"is {stated!r:.40}, but the {split} split is of {release!r}"
            raise row.make_error("release", problem, "Name the file of that release, or the release in the recipe")
        made = make_problem(self.adapt(row), self.name, self.domain, self.grader_name(source), split)
        made = extract_hidden_tests(_with_recipe_grader(made, source), tests)
        return replace(made, source=f"{made.source} {release}".strip()) if release not in made.source else made

    def _convert_to_file_shape(self, row: Row) -> Row:
        # A file is either written for Podium or an export of the hub's dataset, which has its own columns.
        ours = "id" in row.values and "question" in row.values
        upstream = all(column in row.values for column in self.hub.columns)
        return self.from_hub(row) if upstream and not ours else row

    def _generate_embedded(self, split: Split, count: int, seed: int) -> list[Problem]:
        sources = [plugin for plugin in load_plugins().values() if self.name in plugin.benchmarks()]
        if not sources:
            problem = "is 'embedded', but no embedded family mirrors this benchmark"
            raise ConfigError("recipe", f"benchmarks.{self.name}.source", problem, "Use source: file or source: hub")
        return sources[0].problems(self.name, split, count, seed)

    def _file_rows(self, split: Split, source: BenchmarkSource, workspace: Workspace) -> Iterable[RowOrError]:
        names = source.files(split)
        if not names:
            problem, remedy = "is not given in the recipe", f"Name a .jsonl, .csv or .parquet file with {split} rows"
            raise DataError(self.name, f"{split}_file", problem, remedy)
        rows = chain.from_iterable(scan_rows(workspace.root / Path(name).expanduser()) for name in names)
        train, test = set(source.files("train")), set(source.files("test"))
        if not train & test:
            return rows
        if train != test or self.hub.splits[split].count is None:
            problem = f"{sorted(train & test)[0]} is named for both splits"
            raise DataError(self.name, "train_file and test_file", problem, "Name one file for each split")
        return self.hub.splits[split].select(list(rows), ", ".join(names))

    def check_source(self, split: Split, source: BenchmarkSource) -> None:
        """Ask the hub whether it has `split` at the pinned revision, without loading a row; other sources are not
        checked.

        Raises `ConfigError` without a revision, and `DataError` if the hub cannot be reached or refuses.
        """
        if source.source == "hub":
            self.hub.check_split(split, self._required_revision(source), self.release(split, source) or None)

    def _hub_rows(self, split: Split, source: BenchmarkSource, release: str) -> Iterable[Row]:
        return self.hub.load_rows(split, self._required_revision(source), release or None)

    def _required_revision(self, source: BenchmarkSource) -> str:
        """Return the revision of a hub dataset. Raises `ConfigError` without one."""
        if source.revision is None:
            problem = "is missing: an unpinned dataset can change under every score"
            remedy = f"`git ls-remote https://huggingface.co/datasets/{self.hub.id} HEAD` prints the newest commit"
            raise ConfigError("recipe", f"benchmarks.{self.name}.revision", problem, remedy)
        return source.revision


def _with_recipe_grader(problem: Problem, source: BenchmarkSource) -> Problem:
    """Return the problem with the recipe's grader for its benchmark."""
    own = source.grader
    return problem if own is None else replace(problem, grader=own.kind, grading=own.version)


def sample_problems(problems: list[Problem], count: int | None, seed: int) -> list[Problem]:
    """Return a seeded sample of at most `count` problems, in the given order; None returns all."""
    if count is None or len(problems) <= count:
        return problems
    names = [problem.id for problem in problems]
    chosen = {problem.id for problem in shuffle_by_hash(problems, names, seed)[:count]}
    return [problem for problem in problems if problem.id in chosen]
