"""Write the report of a recipe, and run the reproduction: the synthetic environment with every baseline and study."""

from __future__ import annotations

from pathlib import Path

from assets.recursive_conductor import get_final_policy_folder
from assets.report import gather_run_evidence, publish_report, write_version_report
from assets.resources import RunResource
from assets.studies import make_asset_name as study_asset
from ops.config.studies import load_studies
from ops.core.atomic import write_text
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.evaluation.study import STUDIES
from ops.release import registry
from ops.reports.exhibit import make_exhibits, report_file
from ops.reports.page import format_markdown
from pipelines.run import materialize_assets, run_job

RECIPE = "reproduction"
DEFAULT_RECIPE = "quickstart"
"""The recipe of a report if neither a recipe nor a champion is there to report on."""


def write_report(workspace: Workspace, recipe: str | None = None, seed: int | None = None) -> Path:
    """Write the page of the measurements of a recipe's last policy, or of the champion if no recipe is named.

    If the recipe's policy was not trained with the present files, as after a change of the pool, the page is about the
    champion of that recipe. Raises `DataError` if there is nothing to report.
    """
    champion = registry.find_champion(workspace)
    if recipe is None and champion is not None:
        return write_version_report(workspace, champion)
    podium = RunResource(root=str(workspace.root), recipe=recipe or DEFAULT_RECIPE, seed=seed)
    if champion is not None and champion.tags.get("recipe") == podium.load_setup().recipe.name:
        setup = podium.load_setup()
        if champion.tags.get("seed") == str(setup.recipe.seed) and not _is_trained(podium):
            return write_version_report(workspace, champion)
    evidence = gather_run_evidence(podium)
    page, _ = publish_report(podium, evidence, make_exhibits(evidence))
    return page


def _is_trained(podium: RunResource) -> bool:
    """Return whether the policy of the present files exists."""
    try:
        return get_final_policy_folder(podium).is_dir()
    except DataError:
        return False


def reproduce(workspace: Workspace, seed: int | None = None, yes: bool = True) -> tuple[Path, Path]:
    """Run the recipe, the studies of its policy and every exhibit; return the HTML report and its tables in Markdown.

    Each part keeps its results: an interrupted run continues, and a second run makes no call. Without `yes` a person is
    asked before paid workers are called. Raises `PodiumError`, and `KeyboardInterrupt` after Ctrl-C.
    """
    run_job(workspace, RECIPE, seed, yes=yes)
    own = [name for name, entry in load_studies(workspace.config).studies.items() if entry.recipe == RECIPE]
    materialize_assets(workspace, RECIPE, seed, [study_asset(name) for name in (*STUDIES, *own)])
    materialize_assets(workspace, RECIPE, seed, ["report"])
    evidence = gather_run_evidence(RunResource(root=str(workspace.root), recipe=RECIPE, seed=seed))
    page = report_file(workspace, evidence.run)
    write_text(table := page.with_suffix(".md"), format_markdown(evidence, make_exhibits(evidence)))
    return page, table
