"""Run studies by name on each of their seeds, and print tables of all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from assets.resources import RunResource
from assets.studies import load_study, load_study_inputs, make_asset_name
from ops.config.studies import RecipeStudy
from ops.core.atomic import write_bytes
from ops.core.documents import format_markdown_table
from ops.core.errors import PodiumError, suggest_name
from ops.core.workspace import Workspace
from ops.evaluation.arms import Findings
from ops.evaluation.stored_studies import Study, StudyStore
from ops.evaluation.study import Observation, PolicyStudy, load_all_studies
from ops.stages.studies.study import check_study
from pipelines.confirmation import confirm_spending, show_spending
from pipelines.run import materialize_assets, run_job

DEFAULT_RECIPE = "quickstart"
"""The default recipe of a study of workflows."""


def run_study(
    workspace: Workspace,
    name: str,
    changes: Sequence[str],
    recipe: str | None = None,
    seeds: Sequence[int] = (),
    yes: bool = True,
    dry_run: bool = False,
    picture: Path | None = None,
) -> str:
    """Run the study on each seed (by default, its own seeds), and return its tables as Markdown. `picture` is the file
    for a PNG.

    A study of a recipe first runs the recipe's pipeline. A study of workflows needs a policy that was trained and
    scored. Finished work is reused. Unless `yes` is given, a person is asked before paid workers are called. With
    `dry_run`, what would be asked is printed and "" is returned. Raises `PodiumError` before any work for an unknown
    name or an unsuitable recipe, and the errors of the study.
    """
    known = load_all_studies(workspace.config)
    if name not in known:
        raise PodiumError(f"there is no study {name!r}. {suggest_name(name, known, 'studies', 'podium study')}")
    entry = known[name]
    if isinstance(entry, RecipeStudy):
        recipe, seeds = recipe or entry.recipe, seeds or entry.seeds
    if isinstance(entry, Observation) and len(seeds) > 1:
        raise PodiumError(f"study {name!r} reads one training: name one seed")
    recipe, only = recipe or DEFAULT_RECIPE, tuple(changes)
    podiums = [RunResource(root=str(workspace.root), recipe=recipe, seed=seed) for seed in seeds or [None]]
    for podium in podiums:
        check_study(load_study(podium, name, only), podium.load_setup())
    if dry_run:
        for podium in podiums:
            show_spending(podium.load_setup())
        return ""
    confirm_spending(podiums[0].load_setup(), yes)
    by_seed, study = {}, Study(name, entry, only)
    for podium in podiums:
        if isinstance(entry, RecipeStudy):
            run_job(workspace, recipe, podium.seed)
        asset = make_asset_name(name)
        settings = {asset.replace("/", "__"): {"changes": list(only)}}
        materialize_assets(workspace, recipe, podium.seed, [asset], settings)
        lab = load_study_inputs(podium)
        by_seed[lab.setup.recipe.seed] = (store := StudyStore(study, lab)).read_arms()
        found = store.read_findings()
    if len(by_seed) > 1:
        found = study.summarize(by_seed, lab.setup)
    if picture is not None:
        write_bytes(picture, found.picture)
    return format_study(name, entry, found)


def format_study(name: str, entry: RecipeStudy | PolicyStudy, found: Findings) -> str:
    """Return the tables of a study as Markdown."""
    head = fill(f"**{entry.title}** (`{name}`): {entry.about}.", 120, break_long_words=False, break_on_hyphens=False)
    every = (found.summary, found.claims, found.details, found.families)
    tables = [format_markdown_table(*each) for each in every if each.rows]
    return "\n\n".join(filter(None, [head, *tables, fill(found.note, 120)])) + "\n"
