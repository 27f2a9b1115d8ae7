"""Studies on disk: what a study is made on, where it lies, and what it is of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.benchmarks.store import evaluation_questions
from ops.conductor.policy import policy_key
from ops.config import Setup, digest
from ops.config.studies import Changes, RecipeStudy
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.evaluation.arms import Arm, BySeed, Findings, findings
from ops.evaluation.reading import questions
from ops.evaluation.report import Columns
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.scores import load_rows, priced, save_rows
from ops.evaluation.stored import scores_origin
from ops.evaluation.study import PolicyStudy

_INDEX, _PICTURE = "study.json", "picture.png"


@dataclass(frozen=True)
class Study:
    """A study by its name, with the changes that were chosen of it."""

    name: str
    entry: RecipeStudy | PolicyStudy
    only: tuple[str, ...] = ()
    """Changes of a study of kind `changes`; empty: all of them."""

    def findings(self, by_seed: BySeed, setup: Setup) -> Findings:
        """The arms of all seeds as one table. Questions do not depend on the seed."""
        families = {problem.key: problem.subject for problem in questions(setup)}
        return findings(by_seed, families if isinstance(self.entry, Changes) and not self.entry.changes else None)


@dataclass(frozen=True)
class Lab:
    """What a study is made on: a recipe on one seed, with the folders of its policies."""

    setup: Setup
    runs: Mapping[str, Path]
    """Asset of each stage of training that the recipe has → its run's folder, in their order."""
    base_policy: Path
    deepspeed: Mapping[str, Any] | None = None

    def policy(self, after: str) -> Path:
        """The policy of the asset of that name; of one behind the trainings, the policy that is registered."""
        if after == "base_policy":
            return self.base_policy
        return self.runs.get(after, list(self.runs.values())[-1]) / "policy"

    @property
    def questions(self) -> dict[str, list[Problem]]:
        """Benchmark → its questions, for those that have some."""
        every = evaluation_questions(self.setup.workspace, self.setup.recipe)
        return {name: own for name, own in every.items() if own}


class StudyStore:
    """Where a study lies: `scores/studies/NAME/KEY`, with the rows of every arm and what was found."""

    def __init__(self, study: Study, lab: Lab) -> None:
        self._study, self._setup = study, lab.setup
        self._folder = lab.setup.workspace.scores / "studies" / study.name / digest(_origin(study, lab))

    def keep(self, arms: Sequence[Arm], found: Findings) -> None:
        """Store it; the index last."""
        for place, arm in enumerate(arms):
            for number, run in enumerate(arm.runs):
                save_rows(run, self._file(place, number))
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / _PICTURE).write_bytes(found.picture)
        listed = [
            {"name": arm.name, "runs": len(arm.runs), "beside": dict(arm.beside), "facts": dict(arm.facts)}
            for arm in arms
        ]
        facts = {"arms": listed, "summary": found.summary, "details": found.details, "said": found.said}
        write_text(self._folder / _INDEX, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")

    def arms(self) -> list[Arm]:
        """Every arm, its rows at the pool's prices. Raises `DataError` where the study was not made to its end."""
        return [
            Arm(each["name"], [self._rows(place, run) for run in range(each["runs"])], each["beside"], each["facts"])
            for place, each in enumerate(self._index()["arms"])
        ]

    def findings(self) -> Findings:
        """What was found, at the pool's prices. Raises `DataError` as `arms` does."""
        facts, picture = self._index(), (self._folder / _PICTURE).read_bytes()
        if facts["arms"]:
            return self._study.findings({self._setup.recipe.seed: self.arms()}, self._setup)._replace(picture=picture)
        return Findings(Columns(*facts["summary"]), Columns(*facts["details"]), facts["said"], picture)

    def _file(self, place: int, run: int) -> Path:
        return self._folder / str(place) / f"{run}.parquet"

    def _rows(self, place: int, run: int) -> list[OutcomeRow]:
        return priced(load_rows(self._file(place, run)), self._setup)

    def _index(self) -> Any:
        file, remedy = self._folder / _INDEX, f"Run `podium study {self._study.name}`"
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(file, "(file)", "does not exist", remedy) from None
        except ValueError as error:
            raise DataError(file, "(file)", f"is not JSON ({error})", remedy) from None


def _origin(study: Study, lab: Lab) -> dict[str, str]:
    """All that can change what the study finds on this seed."""
    recipe, entry, policy = lab.setup.recipe, study.entry, lab.policy(study.entry.after)
    own = entry.model_dump(exclude={"title"}) if isinstance(entry, RecipeStudy) else {}
    drawing = [recipe.grpo.temperature, recipe.grpo.max_completion_tokens, recipe.generation.model_dump()]
    scored = [scores_origin(lab.setup.asked_on(name), policy, asked) for name, asked in lab.questions.items()]
    return {
        "study": f"{study.name} {entry.version}",
        "settings": digest([own, study.only, recipe.seed, drawing]),
        "policy": policy_key(policy),
        "scored": digest(scored),
    }
