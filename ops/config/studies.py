"""`config/studies.yaml`: studies of a recipe, each with what is changed, on which seeds, and how much is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError, field_validator

from ops.config.base import Name, Seed, Settings
from ops.config.loading import load_or_default, mistake
from ops.config.recipe import Recipe
from ops.core.errors import ConfigError, PodiumError
from ops.core.registry import check_names

Change = dict[str, dict[str, Any]]
"""Section of the recipe (`cold_start`, `grpo`, `prompting`, `policy` …) → field → its value instead."""
STUDIES = "studies.yaml"
StudyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]
"""Also the name of the study's asset."""


class RecipeStudy(Settings):
    """What every study of a recipe states."""

    title: str
    """Head of the study's table."""
    recipe: Name
    """A file in config/recipes."""
    seeds: tuple[Seed, ...] = Field(default=(1,), min_length=1)
    """Each is a pipeline run of the recipe; means over several have the standard error over seeds."""
    version: ClassVar[int] = 1

    @property
    def after(self) -> str:
        """The asset that the study needs."""
        return "benchmark_scores"

    @property
    def about(self) -> str:
        """What is changed, in a sentence."""
        return self.title


class Changes(RecipeStudy):
    """The recipe and each change of it, trained on the same data: cold start and Conductor on every question."""

    kind: Literal["changes"]
    """Trains the recipe again with each change."""
    changes: dict[str, Change] = Field(default_factory=dict)
    """By name; none: the recipe alone."""
    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = (0.0,)
    """At which the policies write; 0 is greedy."""
    baselines: tuple[str, ...] = ()
    """Registered baselines that stand beside, learned from the first seed's mix."""

    @field_validator("baselines")
    @classmethod
    def _are_registered(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        check_names("baseline", "ops.evaluation.baselines", names)
        return names

    @property
    def about(self) -> str:
        """What is changed, in a sentence."""
        changed = f", trained again with: {'; '.join(self.changes)}" if self.changes else ""
        return f"the cold start and the Conductor of recipe {self.recipe}{changed}"


class Subsets(RecipeStudy):
    """The policies before and after the adaptive stage, on subsets of the pool."""

    kind: Literal["subsets"]
    """Evaluates on subsets of the pool."""
    per_size: int = Field(default=3, ge=1)
    """Subsets of each size."""
    questions: int = Field(default=50, ge=1)
    """Of each benchmark that is trained on."""
    unseen: str = ""
    """A worker for one row, on which policies are evaluated that were trained without it; empty: no such row."""
    retrained: int = Field(default=0, ge=0)
    """Subsets of the middle size for each of which a Conductor is trained."""

    @property
    def after(self) -> str:
        """The asset that the study needs."""
        return "adaptive_conductor"


class Rounds(RecipeStudy):
    """The policies before and after the recursive stage, with 0 to `deepest` rounds after the first."""

    kind: Literal["rounds"]
    """Evaluates with more and more rounds."""
    deepest: int = Field(default=3, ge=0)
    """Rounds after the first, at most."""
    questions: int | None = Field(default=None, ge=1)
    """Of each benchmark; None: all of them."""

    @property
    def after(self) -> str:
        """The asset that the study needs."""
        return "recursive_conductor"


AnyStudy = Annotated[Changes | Subsets | Rounds, Field(discriminator="kind")]


class Studies(Settings):
    """Studies of a recipe, by name; `podium study NAME` makes one."""

    studies: dict[StudyName, AnyStudy] = Field(default_factory=dict)
    """Name → study, of the kind that its `kind` names."""

    def named(self, name: str, recipe_file: str, file: Path) -> Changes | Subsets | Rounds:
        """The study of that name. Raises `ConfigError` that names `file` where there is none, or of another recipe."""
        if name not in self.studies:
            remedy = f"Studies there: {', '.join(self.studies)}"
            raise ConfigError(file, f"studies.{name}", "does not exist", remedy)
        if recipe_file != (study := self.studies[name]).recipe:
            problem = f"is of recipe {study.recipe!r}, not {recipe_file!r}"
            remedy = f"Ask for recipe {study.recipe!r}, or write `recipe: {recipe_file}` there"
            raise ConfigError(file, f"studies.{name}", problem, remedy)
        return study


def load_studies(config: Path) -> Studies:
    """The studies of `config/studies.yaml`; none where there is no such file. Raises `ConfigError`."""
    return load_or_default(Studies, config / STUDIES)


def studies_now(config: Path) -> Studies | str:
    """The file's studies, or what is wrong with it: a run that needs none of them is not stopped."""
    try:
        return load_studies(config)
    except (ConfigError, OSError) as error:
        return str(error)


def readable(studies: Studies | str) -> Studies:
    """The studies. Raises `PodiumError` with what was wrong with their file."""
    if isinstance(studies, str):
        raise PodiumError(studies)
    return studies


def changed(recipe: Recipe, change: Change, file: Path) -> Recipe:
    """The recipe with a change made. Raises `ConfigError` that names `file` where the result is no recipe."""
    values = recipe.model_dump(mode="json")
    for section, fields in change.items():
        values[section] = (values.get(section) or {}) | fields
    try:
        return Recipe.of_file(values)
    except ValidationError as error:
        raise mistake(file, Recipe, error) from None
