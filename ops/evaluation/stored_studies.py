"""The storage of studies: the inputs of a study, its folder, and the key of everything that its result depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from ops.benchmarks.problem_files import find_untrained_questions, read_evaluation_questions
from ops.conductor.policy import policy_key
from ops.config import Setup, digest
from ops.config.studies import UNCHANGED, Changes, RecipeStudy, Rounds, Samples, Subsets
from ops.core.checked_files import read_bytes, read_json, write_json
from ops.core.digests import replace_with_digest
from ops.core.once import INCOMPLETE, is_made
from ops.core.problem import Problem
from ops.evaluation.arms import Arm, ArmsBySeed, Findings, format_arm_name, summarize_arms
from ops.evaluation.stored_scores import scores_key, with_execution_code
from ops.evaluation.study import PolicyStudy
from ops.results.leaderboard import TableData
from ops.results.table import Rows, reprice_by_benchmark, save_rows, scan_rows

_INDEX, _PICTURE = "study.json", "picture.png"


@dataclass(frozen=True)
class Study:
    """A study and its name; a study of recipe changes may be restricted to some of them."""

    name: str
    entry: RecipeStudy | PolicyStudy
    selected_changes: tuple[str, ...] = ()
    """The selected changes of a study of kind `changes`; empty selects all."""

    def summarize(self, by_seed: ArmsBySeed, setup: Setup) -> Findings:
        """Return the findings over the arms of all seeds. Questions do not depend on the seed."""
        asked = read_all_questions(setup)
        families = {problem.key: problem.subject for problem in asked}
        if not isinstance(self.entry, Changes):
            return summarize_arms(by_seed, families if isinstance(self.entry, Samples) else None)
        if setup.recipe.curation.unseen_subjects:
            by_seed = {seed: _mark_unseen_questions(arms, setup, seed, asked) for seed, arms in by_seed.items()}
        made = (UNCHANGED, *(self.selected_changes or self.entry.changes))
        claimed = ["" if name == UNCHANGED else name for name in self.entry.claimed if name in made]
        ours = [format_arm_name("Conductor", name) for name in claimed]
        return summarize_arms(by_seed, None if self.entry.changes else families, claimed_names=ours)


def _mark_unseen_questions(arms: Sequence[Arm], setup: Setup, seed: int, asked: Sequence[Problem]) -> list[Arm]:
    """Return the arms with the keys of questions whose subject this seed left out of training."""
    recipe = setup.recipe.model_copy(update={"seed": seed})
    unseen = find_untrained_questions(setup.workspace, recipe, asked)
    return [replace(arm, unseen_keys=unseen) for arm in arms]


@dataclass(frozen=True)
class StudyInputs:
    """The inputs of a study: a recipe with one seed, and the folders of its policies."""

    setup: Setup
    run_folders: Mapping[str, Path]
    """Asset of each training stage of the recipe → the folder of its run, in the order of the stages."""
    base_policy: Path
    deepspeed: Mapping[str, Any] | None = None

    def policy_after(self, after: str) -> Path:
        """Return the policy that the named asset trained; for an asset after the last training, the last policy."""
        if after == "base_policy":
            return self.base_policy
        return self.run_folders[after] / "policy" if after in self.run_folders else self.last_policy

    @property
    def last_policy(self) -> Path:
        """The policy that is scored: that of the last training, or the base policy if nothing is trained."""
        return list(self.run_folders.values())[-1] / "policy" if self.run_folders else self.base_policy

    @property
    def questions(self) -> dict[str, list[Problem]]:
        """Benchmark → questions, for the benchmarks with questions."""
        every = read_evaluation_questions(self.setup.workspace, self.setup.recipe)
        return {name: own for name, own in every.items() if own}


def read_all_questions(setup: Setup) -> list[Problem]:
    """Return every evaluation question of all benchmarks."""
    return [problem for each in read_evaluation_questions(setup.workspace, setup.recipe).values() for problem in each]


def sample_questions(every: Sequence[Problem], per_benchmark: int | None, seed: int) -> list[Problem]:
    """Draw at most `per_benchmark` questions of each benchmark by the seed; None returns all."""
    if per_benchmark is None:
        return list(every)
    drawn: list[Problem] = []
    for name in dict.fromkeys(problem.benchmark for problem in every):
        own = [problem for problem in every if problem.benchmark == name]
        drawn += Random(seed).sample(own, min(per_benchmark, len(own)))
    return drawn


class StudyStore:
    """The stored rows and findings of a study, in the folder `scores/studies/NAME/KEY`.

    The key of their inputs lies beside the index, which is written last.
    """

    def __init__(self, study: Study, lab: StudyInputs) -> None:
        self._study, self._setup = study, lab.setup
        inputs = _list_inputs(study, lab)
        self._folder = lab.setup.workspace.scores / "studies" / study.name / digest(inputs)
        self._key = with_execution_code(inputs, "ops.evaluation.arms", _find_code_module(study))

    def is_complete(self) -> bool:
        """Return whether the study was completed with these inputs, and without an answer that could not be scored."""
        return is_made(self._folder / _INDEX, self._key)

    def store(self, arms: Sequence[Arm], found: Findings) -> None:
        """Store the arms and the findings. The index is written last, so that an incomplete study is not read."""
        for place, arm in enumerate(arms):
            for number, run in enumerate(arm.runs):
                save_rows(run, self._file(place, number))
        self._folder.mkdir(parents=True, exist_ok=True)
        with replace_with_digest(self._folder / _PICTURE) as picture:
            picture.write_bytes(found.picture)
        listed = [
            {
                "name": arm.name,
                "runs": len(arm.runs),
                "beside": dict(arm.compared_with),
                "facts": dict(arm.extra_columns),
            }
            for arm in arms
        ]
        facts = {"arms": listed, "summary": found.summary, "details": found.details, "said": found.note}
        lacks = any(arm.statistics["unscorable"] for arm in arms)
        incomplete = {INCOMPLETE: "without the scores of some answers"} if lacks else {}
        write_json(self._folder / _INDEX, facts, {**self._key, **incomplete})

    def read_arms(self) -> list[Arm]:
        """Read every arm, with rows at the pool's prices. Raises `DataError` if the study was not completed."""
        return [
            Arm(each["name"], [self._rows(place, run) for run in range(each["runs"])], each["beside"], each["facts"])
            for place, each in enumerate(self._index()["arms"])
        ]

    def read_findings(self) -> Findings:
        """Return the findings at the pool's prices. Raises `DataError` if the study was not completed."""
        facts, picture = self._index(), read_bytes(self._folder / _PICTURE, self._remedy)
        if facts["arms"]:
            return self._study.summarize({self._setup.recipe.seed: self.read_arms()}, self._setup)._replace(
                picture=picture
            )
        return Findings(TableData(*facts["summary"]), TableData(*facts["details"]), facts["said"], picture)

    def _file(self, place: int, run: int) -> Path:
        return self._folder / str(place) / f"{run}.parquet"

    def _rows(self, place: int, run: int) -> Rows:
        return reprice_by_benchmark(scan_rows(self._file(place, run), self._remedy), self._setup)

    def _index(self) -> Any:
        return read_json(self._folder / _INDEX, self._remedy)

    @property
    def _remedy(self) -> str:
        return f"Run `podium study {self._study.name}`"


def _find_code_module(study: Study) -> str:
    """Return the module of a study in code, or of its kind in config/studies.yaml."""
    if isinstance(study.entry, PolicyStudy):
        return f"ops.evaluation.studies.{study.name}"
    modules = {Changes: "recipe_changes", Subsets: "subsets", Rounds: "rounds", Samples: "samples"}
    return f"ops.stages.studies.{modules[type(study.entry)]}"


def _list_inputs(study: Study, lab: StudyInputs) -> dict[str, str]:
    """Return the inputs of the findings on this seed, apart from the code."""
    recipe, entry, policy = lab.setup.recipe, study.entry, lab.policy_after(study.entry.after)
    own = entry.model_dump(exclude={"title"}) if isinstance(entry, RecipeStudy) else {}
    drawing = [recipe.grpo.temperature, recipe.grpo.max_completion_tokens, recipe.generation.model_dump()]
    scored = [scores_key(lab.setup.for_benchmark(name), policy, asked) for name, asked in lab.questions.items()]
    return {
        "study": study.name,
        "settings": digest([own, study.selected_changes, recipe.seed, drawing]),
        "policy": policy_key(policy),
        "scored": digest(scored),
    }
