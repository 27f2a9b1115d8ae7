"""Experiments by name: those on a trained policy, and those that train anew, into docs/reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from assets.experiments import policy_of
from assets.resources import Podium
from assets.retrained import asset_name
from ops.config.ablations import EXPERIMENTS as FILE_OF_CHANGES
from ops.config.ablations import load_ablations
from ops.core.errors import DataError, PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.experiment import EXPERIMENTS
from ops.evaluation.experiment_report import markdown
from ops.evaluation.stored_experiments import stored_findings
from ops.stages.experiments import asked
from pipelines import ablations
from pipelines.pages import MEASUREMENTS, write_between
from pipelines.run import materialize

MARK = "<!-- made by `podium experiments` -->"
"""Round the tables of what trains nothing."""
RETRAINED = "<!-- made by `podium experiments` that train -->"
"""Round the table of config/experiments.yaml."""


def write_tables(workspace: Workspace, names: Sequence[str], recipe: str, seed: int | None) -> Path:
    """Run the experiments of these names (those that train nothing, where none is named) and write what they came to
    between their marks in docs/reference/measurements.md, beside what was run on the same policy before.

    Raises `PodiumError` for an unknown name, before anything is run, and as the experiments do.
    """
    if retrained := [name for name in names if name not in EXPERIMENTS]:
        changes = load_ablations(workspace.config, FILE_OF_CHANGES)
        if unknown := [name for name in retrained if name not in changes.changes]:
            raise PodiumError(
                f"there is no experiment {', '.join(unknown)}. On a trained policy: {', '.join(EXPERIMENTS)}. Trained "
                f"anew (config/{FILE_OF_CHANGES}): {', '.join(changes.changes)}"
            )
        for name in retrained:
            changes.change(name, recipe, workspace.config / FILE_OF_CHANGES)
    podium = Podium(root=str(workspace.root), recipe=recipe, seed=seed)
    if chosen := [name for name in EXPERIMENTS if name in (names or EXPERIMENTS)]:
        materialize(workspace, recipe, seed, chosen)
        write_between(workspace.root / MEASUREMENTS, MARK, _text(podium))
    if retrained:
        own_seed = podium.load().recipe.seed

        def train(name: str) -> None:
            materialize(workspace, recipe, own_seed, [asset_name(name)])

        ablations.write_table(workspace, retrained, [own_seed], FILE_OF_CHANGES, RETRAINED, train)
    return MEASUREMENTS


def _text(podium: Podium) -> str:
    """The tables of all experiments that were run on this configuration's policies, under their titles."""
    setup = podium.load()
    questions_of = asked(setup)
    parts = []
    for entry in EXPERIMENTS.values():
        try:
            found = stored_findings(setup, policy_of(entry, podium), entry, questions_of)
        except DataError:  # not run
            continue
        head = _wrapped(f"**{entry.title}** (`{entry.name}`): {entry.changes}.")
        said = (head, markdown(found.summary).strip(), _wrapped(found.said))
        parts.append("\n\n".join(each for each in said if each))
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    return fill(text, 120, break_long_words=False, break_on_hyphens=False)
