"""`Benchmark`: the definition of a benchmark, and the loading of its problems from any source."""

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
from ops.core.registry import check_names, plugins
from ops.core.workspace import Workspace
from ops.grading import GRADERS
from ops.grading.hidden_tests import extract_hidden_tests

EVALUATION_SEED = 0
"""Seed of evaluation questions, which do not depend on a recipe's seed, so that scores of all seeds and versions stay
paired."""
EMBEDDED_TRAIN, EMBEDDED_TEST = 1000, 100
"""The default number of problems of the embedded families."""


def keep_row_unchanged(row: Row) -> Row:
    """The adapter of a benchmark whose files already have Podium's row shape."""
    return row


class UpstreamItem(NamedTuple):
    """The upstream item of a problem: a pattern of ids (case folded) whose group names the item in `dataset`.

    An id alone is not enough: `mmlu-17` of one upstream split is another question than `mmlu-17` of the next. A
    pattern matches only ids that identify their item in every split.
    """

    dataset: str
    pattern: re.Pattern[str]


class LoadedSplit(NamedTuple):
    """One split of a source: valid problems, malformed rows, and the number of rows. `set_aside`: problems that are
    valid except that their graders reject their gold answers."""

    problems: list[Problem]
    rejected: list[RowError]
    rows: int
    failing_gold: Sequence[RowError] = ()


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: its questions, grading, source and caveats.

    `from_hub` turns a row of the hub's dataset into the shape of our files (`id, question, choices, answer, tests,
    subject, level`); `adapt` turns a row of that shape into the input of `rows.make_problem`.
    """

    name: str
    domain: Domain
    grader: GraderName
    task: str
    """The task shown to a worker; the form of the answer follows from the grader (`Grader.form`)."""
    licence: str
    citation: str
    cautions: tuple[str, ...]
    hub: HubDataset
    from_hub: Callable[[Row], Row]
    position: int = 1000
    """The benchmark's order among those that are trained on, or among the others; by name where it is equal."""
    adapt: Callable[[Row], Row] = keep_row_unchanged
    is_confidential: bool = False
    """Questions must never be printed or republished (see `privacy`)."""
    has_hidden_tests: bool = False
    """Scores are on hidden tests; on public tests alone they would be higher (`registry.graded_on`)."""
    upstream: UpstreamItem | None = None
    """None: ids do not identify the upstream item."""
    releases: Mapping[Split, str] = field(default_factory=dict)
    """The release of each split, for benchmarks that are published as dated releases."""

    def __post_init__(self) -> None:
        check_names("grader", "ops.grading.graders", [self.grader])

    @property
    def has_training_split(self) -> bool:
        """Return whether it has a training split; benchmarks for evaluation only have none."""
        return "train" in self.hub.splits

    @property
    def splits(self) -> tuple[Split, ...]:
        return ("train", "test") if self.has_training_split else ("test",)

    def grader_name(self, source: BenchmarkSource) -> GraderName:
        """Return the name of the grader: the recipe's, or the benchmark's own."""
        return self.grader if source.grader is None else source.grader.kind

    def release(self, split: Split, source: BenchmarkSource) -> str:
        """Return the release of `split`; "" if there are none (or for embedded problems).

        Raises `ConfigError` if both splits would be of one release.
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
        self, split: Split, source: BenchmarkSource, workspace: Workspace, seed: int, hidden_tests_folder: Path | None = None
    ) -> LoadedSplit:
        """The split's problems and its malformed rows; `source`: where they come from, and how many.

        `tests`: the folder into which hidden tests are written, row by row; None: they are counted only.

        The same arguments give the same problems. A cap takes a seeded sample, in file order; the seed moves
        training candidates only (`EVALUATION_SEED`). Raises `DataError` naming file, place and remedy where a
        source as a whole cannot be used, `ConfigError` where the recipe cannot be followed.
        """
        if split == "train" and not self.has_training_split:
            raise DataError(self.name, "split 'train'", "is for evaluation only", "Train on another benchmark")
        if GRADERS[self.grader_name(source)].needs_settings and source.grader is None:
            problem = f"is missing, and {self.grader!r} needs settings"
            raise ConfigError("recipe", f"benchmarks.{self.name}.grader", problem, "State it (docs/extend.md)")
        cap = source.train if split == "train" else source.test
        seed = seed if split == "train" else EVALUATION_SEED
        if source.source == "embedded":
            problems = self._generate_embedded(split, cap or (EMBEDDED_TRAIN if split == "train" else EMBEDDED_TEST), seed)
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
        """Checked problems of rows in our file shape. Raises `RowError` at the first malformed one."""
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
        sources = [plugin for plugin in plugins().values() if self.name in plugin.benchmarks()]
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
        """Ask the hub whether it has `split` at the pinned revision, and load no row; other sources are not checked.

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
    """Return a seeded sample of at most `count`, in the given order; None or enough: all."""
    if count is None or len(problems) <= count:
        return problems
    names = [problem.id for problem in problems]
    chosen = {problem.id for problem in shuffle_by_hash(problems, names, seed)[:count]}
    return [problem for problem in problems if problem.id in chosen]
