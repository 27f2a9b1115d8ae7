"""The data part of a recipe: where problems come from and how the mix is chosen."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from ops.config.base import Settings
from ops.core.registry import check_names


class BenchmarkSource(Settings):
    """Where one benchmark's problems come from."""

    source: Literal["embedded", "file", "hub"] = "embedded"
    train_file: str | tuple[str, ...] | None = None
    """A path from the project's root, or several (jsonl, csv, each also .gz; parquet), for `source: file`."""
    test_file: str | tuple[str, ...] | None = None
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """The dataset's commit, for `source: hub`: a branch or a tag can move. Needed when the data is loaded."""
    train_release: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.]+$")
    """Release to train on, for benchmarks that are keyed by release (LiveCodeBench); None: the paper's."""
    test_release: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.]+$")
    train: int | None = Field(default=None, ge=1)
    """At most so many training candidates; None: all. Embedded families generate exactly so many."""
    test: int | None = Field(default=None, ge=1)
    max_malformed_share: float = Field(default=0.01, ge=0, le=1)
    """Malformed rows are quarantined; a larger share of them in a split fails the load."""
    max_failing_gold_share: float = Field(default=0.01, ge=0, le=1)
    """Rows of a file or the hub whose gold answer, given as a worker would give it, their grader misses are left out
    like malformed ones, up to this share of a split's. A larger share stays, and the check of gold answers blocks."""

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
    """What is preferred: a file in `ops/curation/selectors`, which says what it goes by."""
    rescued: float = Field(default=0.05, ge=0, lt=1)
    """For the forecast: share of failing rollouts that a chain of workers rescues. An assumption; 0: no chains."""
    near_duplicate_jaccard: float = Field(default=0.8, gt=0, le=1)
    """Training candidates at least this similar (word 5-grams) to an evaluation question are removed, and light
    rewordings of one too. 1: equal texts only, for questions that are templates filled with numbers."""

    @field_validator("selector")
    @classmethod
    def _known(cls, selector: str) -> str:
        check_names("selector", "ops.curation.selectors", [selector])
        return selector
