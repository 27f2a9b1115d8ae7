"""The data stages `shortlist` and `training_mix`, which choose the training problems."""

from __future__ import annotations

import json
from typing import NamedTuple

from ops.benchmarks.problem_files import read_problems, read_test_questions, read_training_candidates, write_problems
from ops.benchmarks.registry import training_domains
from ops.config import Setup
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.curation.data_card import Selection, render_data_card
from ops.curation.selection import Shortlist, choose_mix, choose_shortlist
from ops.curation.selector import SELECTORS, SelectionEvidence
from ops.curation.training_signal import Tallies, count_agreements, read_responses, tally_responses


class TrainingMix(NamedTuple):
    """The training mix with its data card and the agreement of the workers on its problems.

    `agreement` maps each class of agreement (`all`, `some`, `none`, `unmeasured`) to its number of problems. `card` is
    the data card in Markdown. `weights` maps each problem's key to the weight that the selector gave it (0 to 1, from a
    forecast or from proxies); it is empty if the selector has no weights.
    """

    problems: list[Problem]
    agreement: dict[str, int]
    card: str
    weights: dict[str, float]


def materialize_shortlist(setup: Setup) -> Shortlist:
    """Choose the shortlist from `data/raw` and write `data/shortlist.jsonl` and `data/contamination.json`.

    Raises `DataError` for unusable input; both files are then unchanged.
    """
    chosen = choose_shortlist(
        read_training_candidates(setup.workspace, setup.recipe),
        read_test_questions(setup.workspace, setup.recipe),
        setup.recipe.curation,
        setup.recipe.seed,
        training_domains(setup.recipe.benchmarks),
    )
    write_problems(setup.workspace.data / "shortlist.jsonl", chosen.problems)
    text = json.dumps(chosen.report, indent=1, sort_keys=True, ensure_ascii=False)
    write_text(setup.workspace.data / "contamination.json", text + "\n")
    return chosen


def materialize_mix(setup: Setup) -> TrainingMix:
    """Choose the training mix from the shortlist and write `data/training_mix.jsonl` and `data/data_card.md`.

    The workers' responses are read only if the selector uses them. Raises `DataError` for unusable input; both files
    are then unchanged.
    """
    workspace, recipe = setup.workspace, setup.recipe
    shortlisted = read_problems(workspace.data / "shortlist.jsonl")
    measured = _tally_stored_responses(setup, shortlisted)
    evidence = SelectionEvidence(recipe.curation, recipe.seed, measured, recipe.grpo.rollouts_per_question)
    mix = choose_mix(shortlisted, evidence, training_domains(recipe.benchmarks))
    weighing = SELECTORS[recipe.curation.selector].weighting
    weights = dict(weighing.compute_weights(shortlisted, evidence)) if weighing else {}
    choice = Selection(read_training_candidates(workspace, recipe), shortlisted, mix, weights)
    card = render_data_card(choice, recipe, _read_contamination_report(workspace), measured)
    write_problems(workspace.data / "training_mix.jsonl", mix)
    write_text(workspace.data / "data_card.md", card)
    return TrainingMix(
        mix, {str(name): count for name, count in sorted(count_agreements(mix, measured).items())}, card, weights
    )


def _tally_stored_responses(setup: Setup, shortlisted: list[Problem]) -> Tallies:
    if not SELECTORS[setup.recipe.curation.selector].reads_responses:
        return {}
    benchmarks = sorted({problem.benchmark for problem in shortlisted})
    return tally_responses(read_responses(setup.workspace.data / "responses", setup.pool.names, benchmarks))


def _read_contamination_report(workspace: Workspace) -> dict[str, object]:
    file = workspace.data / "contamination.json"
    try:
        report: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(file, "", f"cannot be read ({error})", "Materialize the shortlist again") from None
    return report
