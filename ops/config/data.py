"""The data part of a recipe: where problems come from, how the mix is chosen, how answers are graded and where versions
are pushed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from ops.config.base import Settings
from ops.core.registry import check_names


class BenchmarkSource(Settings):
    """Where one benchmark's problems come from."""

    source: Literal["embedded", "file", "hub"] = "embedded"
    train_file: str | tuple[str, ...] | None = None
    """For `source: file`: a path from the project's root, or several (jsonl, csv, each also .gz; parquet)."""
    test_file: str | tuple[str, ...] | None = None
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """For `source: hub`: the dataset's commit, since a branch or tag can move. Required when the data is loaded."""
    train_release: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.]+$")
    """For benchmarks with releases (LiveCodeBench): the release to train on. None: the paper's."""
    test_release: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.]+$")
    train: int | None = Field(default=None, ge=1)
    """Maximum number of training candidates; None: all. Embedded families generate exactly this many."""
    test: int | None = Field(default=None, ge=1)
    max_malformed_share: float = Field(default=0.01, ge=0, le=1)
    """Malformed rows are quarantined; a larger share of a split fails the load."""
    max_failing_gold_share: float = Field(default=0.01, ge=0, le=1)
    """Rows from a file or the hub whose gold answer fails its own grader are quarantined, up to this share of a split.
    A larger share stays in, and the check of gold answers blocks."""

    @model_validator(mode="after")
    def _file_needs_a_path(self) -> Self:
        if self.source == "file" and not (self.train_file or self.test_file):
            raise ValueError("source is 'file' but neither train_file nor test_file is given")
        return self

    def files(self, split: Literal["train", "test"]) -> tuple[str, ...]:
        """The paths named for `split`; none where the recipe gives none."""
        named = self.train_file if split == "train" else self.test_file
        return (named,) if isinstance(named, str) else named or ()


class Curation(Settings):
    """How the training mix is chosen."""

    per_domain: int = Field(default=240, ge=1)
    """Places in the mix for each domain of the recipe's training benchmarks."""
    shortlist_factor: float = Field(default=1.0, ge=1)
    """Candidates shortlisted (and precached) per place; more than 1 leaves the selector a choice."""
    selector: str = "signal"
    """How problems are preferred: the name of a file in `ops/curation/selectors`."""
    rescued: float = Field(default=0.05, ge=0, lt=1)
    """For the forecast: share of failing rollouts that a chain of workers rescues (an assumption; 0: none)."""
    near_duplicate_jaccard: float = Field(default=0.8, gt=0, le=1)
    """Training candidates with at least this similarity (word 5-grams) to an evaluation question are removed, and light
    rewordings too. 1: equal texts only, for templates filled with numbers."""

    @field_validator("selector")
    @classmethod
    def _known(cls, selector: str) -> str:
        check_names("selector", "ops.curation.selectors", [selector])
        return selector


class Grading(Settings):
    """How programs of unknown origin are run."""

    isolation: Literal["bubblewrap", "resource_limits"] = "bubblewrap"
    """The weakest wall that is accepted. "bubblewrap": where it does not work, no program is run.
    "resource_limits": where it does not work, limits and an audit hook alone, which stop accidents and not an
    attacker: for programs of known origin."""
    environments: Mapping[str, str] = Field(default={})
    """Benchmark to the virtual environment whose libraries its programs are given, where that environment is
    there; a path from the project's folder. A benchmark that is not named: `.venv-BENCHMARK`."""


class Versions(Settings):
    """What happens to data after a stage has been materialized and recorded in dvc.lock."""

    push: bool = False
    """Copy each stage's new files to a DVC remote. Off: `dvc push` does it by hand, for all stages."""
    remote: str | None = None
    """A remote of .dvc/config or .dvc/config.local (`dvc remote add NAME URL`); None: DVC's default one."""
