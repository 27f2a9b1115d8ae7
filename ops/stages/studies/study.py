"""Run a study on one seed: check it, make its arms and store it, or read the stored findings."""

from __future__ import annotations

from ops.config import Setup
from ops.config.studies import Changes, Rounds, Samples, Subsets
from ops.core.errors import DataError, PodiumError
from ops.evaluation.arms import Arm, Findings
from ops.evaluation.stored_studies import Study, StudyInputs, StudyStore
from ops.evaluation.study import Intervention, Observation
from ops.stages.studies import policies, recipe_changes, rounds, samples, subsets
from ops.stages.study_context import StudyContext


def check_study(study: Study, setup: Setup) -> None:
    """Raise `PodiumError` if the study cannot use the recipe, before any work starts."""
    name, entry = study.name, study.entry
    if study.selected_changes and not isinstance(entry, Changes):
        raise PodiumError(
            f"study {name!r} has no separate changes: there is no {study.selected_changes[0]!r} to choose"
        )
    if isinstance(entry, Changes):
        recipe_changes.make_changed_setups(name, entry, setup, study.selected_changes)
    elif isinstance(entry, Subsets):
        subsets.check_recipe(setup, entry)
    elif isinstance(entry, Rounds):
        rounds.check_recipe(setup)


def run_study(study: Study, inputs: StudyInputs, context: StudyContext) -> Findings:
    """Return the study's findings for one seed; they are computed unless they are stored.

    Every finished arm is stored, so that an interrupted study continues. Raises the exceptions of `check_study`, of
    trainings and of evaluations, and `DataError` if a policy was not trained or scored.
    """
    check_study(study, inputs.setup)
    store = StudyStore(study, inputs)
    try:
        if store.is_complete():
            return store.read_findings()
    except DataError:  # a table of the study is damaged
        pass
    if isinstance(study.entry, Observation):
        store.store([], policies.run_observation(study.entry, inputs))
    else:
        made = _make_arms(study, inputs, context)
        store.store(made, study.summarize({inputs.setup.recipe.seed: made}, inputs.setup))
    return store.read_findings()


def _make_arms(study: Study, lab: StudyInputs, making: StudyContext) -> list[Arm]:
    name, entry = study.name, study.entry
    if isinstance(entry, Changes):
        return recipe_changes.make_arms(name, entry, lab, making, study.selected_changes)
    if isinstance(entry, Subsets):
        return subsets.make_arms(name, entry, lab, making)
    if isinstance(entry, Rounds):
        return rounds.make_arms(name, entry, lab, making)
    if isinstance(entry, Samples):
        return samples.make_arms(name, entry, lab, making)
    assert isinstance(entry, Intervention)
    return policies.run_intervention(entry, lab, making)
