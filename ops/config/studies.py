"""`config/studies.yaml`: studies of a recipe, each with its changes, seeds and number of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from ops.config.base import Name, Seed, Settings
from ops.config.loading import load_or_default, validation_error
from ops.config.recipe import Recipe
from ops.core.errors import ConfigError, PodiumError, suggest_name
from ops.core.registry import check_names

Change = dict[str, dict[str, Any]]
"""Section of the recipe (`cold_start`, `grpo`, `prompting`, `policy` …) → field → its value instead."""
STUDIES = "studies.yaml"
UNCHANGED = "as it is"
"""The name of the unchanged recipe among the changes."""
StudyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]
"""The study's name, also of its asset."""


class RecipeStudy(Settings):
    """The settings of every study of a recipe."""

    title: str
    """The heading of the study's table."""
    recipe: Name
    """The recipe that is studied: the name of a file in config/recipes."""
    seeds: tuple[Seed, ...] = Field(default=(1,), min_length=1)
    """The seeds with which the recipe's pipeline is run. With several seeds, the table shows means and their standard
    errors over the seeds."""

    @property
    def after(self) -> str:
        """The asset that the study needs."""
        return "benchmark_scores"

    @property
    def trains_policies(self) -> bool:
        """Return whether the study trains policies other than the recipe's own."""
        return False

    @property
    def about(self) -> str:
        """Return the change in one sentence."""
        return self.title


class Changes(RecipeStudy):
    """A study that compares a recipe with changed versions of it, trained on the same data."""

    kind: Literal["changes"]
    """Must be `changes`."""
    changes: dict[str, Change] = Field(default_factory=dict)
    """The changes, each with a name: which settings of the recipe have which other value. Without changes, only the
    recipe itself is measured."""
    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = (0.0,)
    """The temperatures at which the Conductor is evaluated. 0 means greedy decoding."""
    baselines: tuple[str, ...] = ()
    """The baselines to compare with. They learn from the training questions of the same seed."""
    claimed: tuple[str, ...] = ()
    """The changes whose Conductors are tested against every baseline, over all seeds together. `as it is` stands for
    the unchanged recipe."""

    @field_validator("baselines")
    @classmethod
    def _are_registered(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        check_names("baseline", "ops.evaluation.baselines", names)
        return names

    @model_validator(mode="after")
    def _claims_changes(self) -> Self:
        if UNCHANGED in self.changes:
            raise ValueError(f"changes: {UNCHANGED!r} names the unchanged recipe: give the change another name")
        if unknown := [name for name in self.claimed if name not in (UNCHANGED, *self.changes)]:
            raise ValueError(f"claimed: {unknown[0]!r} is none of the changes")
        return self

    @property
    def trains_policies(self) -> bool:
        """Return whether a change changes more than the evaluation; without changes only the seeds do."""
        return not self.changes or any(set(change) != {"evaluation"} for change in self.changes.values())

    @property
    def about(self) -> str:
        """Return the change in one sentence."""
        verb = "trained" if self.trains_policies else "evaluated"
        changed = f", {verb} again with: {'; '.join(self.changes)}" if self.changes else ""
        return f"the cold start and the Conductor of recipe {self.recipe}{changed}"


class Subsets(RecipeStudy):
    """A study that evaluates the policies before and after the adaptive stage on subsets of the pool."""

    kind: Literal["subsets"]
    """Must be `subsets`."""
    per_size: int = Field(default=3, ge=1)
    """The number of subsets of each size."""
    questions: int = Field(default=50, ge=1)
    """The number of questions of each training benchmark."""
    unseen: str = ""
    """A worker for a row with policies that were trained without it. If it is empty, there is no such row."""
    retrained: int = Field(default=0, ge=0)
    """The number of subsets of medium size for each of which a Conductor is trained."""

    @property
    def trains_policies(self) -> bool:
        """Return whether a policy is trained without a worker, or on a subset."""
        return bool(self.unseen or self.retrained)

    @property
    def after(self) -> str:
        """The asset that the study needs."""
        return "adaptive_conductor"


class Rounds(RecipeStudy):
    """A study that evaluates the policies before and after the recursive stage with an increasing number of rounds."""

    kind: Literal["rounds"]
    """Must be `rounds`."""
    deepest: int = Field(default=3, ge=0)
    """The maximum number of rounds after the first."""
    questions: int | None = Field(default=None, ge=1)
    """The number of questions of each benchmark. If it is not set, all are used."""

    @property
    def after(self) -> str:
        """The asset that the study needs."""
        return "recursive_conductor"


class Samples(RecipeStudy):
    """A study that draws several workflows for the same question and measures what a choice among them could reach. It
    trains nothing."""

    kind: Literal["samples"]
    """Must be `samples`."""
    samples: int = Field(default=16, ge=2, le=64)
    """The number of workflows for each question."""
    temperature: float = Field(default=0.7, gt=0)
    """The temperature at which the workflows are drawn."""

    @property
    def about(self) -> str:
        """Return what is drawn in one sentence."""
        return f"{self.samples} workflows for each question, drawn at temperature {self.temperature:g}"


AnyStudy = Annotated[Changes | Subsets | Rounds | Samples, Field(discriminator="kind")]


class Studies(Settings):
    """Studies of a recipe. `podium study NAME` runs one of them."""

    studies: dict[StudyName, AnyStudy] = Field(default_factory=dict)
    """The studies, each with a name. `kind` says which of the sections below describes its settings."""

    def find(self, name: str, recipe_file: str, file: Path) -> AnyStudy:
        """Return the study of that name. Raises `ConfigError` that names `file` if there is none, or it is of another
        recipe."""
        if name not in self.studies:
            remedy = suggest_name(name, self.studies, "studies there", "podium study")
            raise ConfigError(file, f"studies.{name}", "does not exist", remedy)
        if recipe_file != (study := self.studies[name]).recipe:
            problem = f"is of recipe {study.recipe!r}, not {recipe_file!r}"
            remedy = f"Use recipe {study.recipe!r}, or write `recipe: {recipe_file}` there"
            raise ConfigError(file, f"studies.{name}", problem, remedy)
        return study


def load_studies(config: Path) -> Studies:
    """Load the studies of `config/studies.yaml`; none without the file. Raises `ConfigError`."""
    return load_or_default(Studies, config / STUDIES)


def try_load_studies(config: Path) -> Studies | str:
    """Return the file's studies, or its error, so that a run that needs no study continues."""
    try:
        return load_studies(config)
    except (ConfigError, OSError) as error:
        return str(error)


def require_studies(studies: Studies | str) -> Studies:
    """Return the studies. Raises `PodiumError` with the error of their file."""
    if isinstance(studies, str):
        raise PodiumError(studies)
    return studies


def apply_change(recipe: Recipe, change: Change, file: Path) -> Recipe:
    """Return the recipe with a change applied. Raises `ConfigError` that names `file` for an invalid result."""
    values = recipe.model_dump(mode="json")
    for section, fields in change.items():
        values[section] = (values.get(section) or {}) | fields
    try:
        return Recipe.from_file_values(values)
    except ValidationError as error:
        raise validation_error(file, Recipe, error) from None
