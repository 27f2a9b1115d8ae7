"""The data stages `shortlist` and `training_mix`.

What belongs here: the functions that both the DVC stages and the Dagster assets
call: read the stage before, choose, write. What does not: the choice itself.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ops.benchmarks.stage import evaluation_questions, training_candidates
from ops.benchmarks.store import read_problems, write_problems, write_text
from ops.config import Recipe, load_pool
from ops.curation.card import data_card
from ops.curation.mix import PassRates, agreements, choose_mix
from ops.curation.responses import pass_rates, stored_rows
from ops.curation.shortlist import Shortlist, shortlist
from ops.errors import DataError
from ops.problem import Problem
from ops.workspace import Workspace


class Mix(NamedTuple):
    """The training mix, how the workers agree on it (class → problems), and its card in markdown."""

    problems: list[Problem]
    agreement: dict[str, int]
    card: str


def materialize_shortlist(workspace: Workspace, recipe: Recipe) -> Shortlist:
    """`data/raw` → `data/shortlist.jsonl` and `data/contamination.json`.

    Raises `DataError`; then neither changes.
    """
    chosen = shortlist(
        training_candidates(workspace, recipe),
        evaluation_questions(workspace, recipe),
        recipe.curation,
        recipe.seed,
    )
    write_problems(workspace.data / "shortlist.jsonl", chosen.problems)
    text = json.dumps(chosen.report, indent=1, sort_keys=True, ensure_ascii=False)
    write_text(workspace.data / "contamination.json", text + "\n")
    return chosen


def materialize_mix(workspace: Workspace, recipe: Recipe) -> Mix:
    """`data/shortlist.jsonl` and the responses → `data/training_mix.jsonl` and `data/data_card.md`.

    The uniform selector reads no responses. Raises `DataError`, `ConfigError`; then neither changes.
    """
    shortlisted = read_problems(workspace.data / "shortlist.jsonl")
    rates: PassRates = {}
    if recipe.curation.selector == "disagreement":
        workers = load_pool(workspace.config, recipe.pool).names
        benchmarks = sorted({problem.benchmark for problem in shortlisted})
        rates = pass_rates(stored_rows(workspace.data / "responses", workers, benchmarks))
    mix = choose_mix(shortlisted, rates, recipe.curation, recipe.seed)
    card = data_card(mix, recipe, _contamination(workspace), rates)
    write_problems(workspace.data / "training_mix.jsonl", mix)
    write_text(workspace.data / "data_card.md", card)
    return Mix(mix, {str(name): count for name, count in sorted(agreements(mix, rates).items())}, card)


def _contamination(workspace: Workspace) -> dict[str, object]:
    file = workspace.data / "contamination.json"
    try:
        found: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(file, "(file)", f"cannot be read ({error})", "Materialize the shortlist again") from None
    return found
