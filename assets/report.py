"""`report`: one page with the measurements of this configuration's Conductor; its exhibits are the metadata."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from assets import metadata
from assets.last_result import is_rebuild_requested, report_unchanged
from assets.promotion import promotion
from assets.recursive_conductor import get_final_policy_folder, list_training_runs
from assets.resources import RunResource
from assets.studies import policy_studies
from ops.conductor.policy import policy_key
from ops.config import Snapshot, digest
from ops.core.errors import DataError
from ops.core.once import Key, add_code_version, data_version, make_once
from ops.core.workspace import Workspace
from ops.release import registry
from ops.release.mlflow_store import RegisteredVersion
from ops.reports.evidence import Evidence
from ops.reports.exhibit import (
    EXHIBITS,
    ExhibitContent,
    MadeExhibit,
    Table,
    make_exhibits,
    report_file,
    synthetic_label,
)
from ops.reports.gathering import describe_run, find_trainings, gather_evidence
from ops.reports.page import picture_file, write_page, write_pictures
from ops.reports.report_head import load_release_info
from ops.stages.data import data_files
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import CURVE_FILE


def gather_run_evidence(podium: RunResource) -> Evidence:
    """Return the evidence on this configuration's last policy. Raises `DataError` if there is no policy yet."""
    setup = podium.load_setup()
    mix = setup.workspace.data / "training_mix.jsonl"
    if not mix.exists():
        raise DataError(mix, "", "does not exist: nothing was trained", f"`podium run {setup.recipe.name}`")
    return gather_evidence(setup, list_training_runs(podium), base_policy_folder(setup))


def publish_report(podium: RunResource, evidence: Evidence, exhibits: list[MadeExhibit]) -> tuple[Path, list[str]]:
    """Write the page and its pictures, and add them to the policy's versions in MLflow. Returns the page and these
    versions."""
    workspace = podium.load_setup().workspace
    known = load_release_info(workspace, evidence.run.policy, podium.get_snapshot().git_commit, datetime.now(UTC))
    page, pictures = write_page(workspace, evidence, exhibits, known), write_pictures(workspace, evidence, exhibits)
    return page, registry.attach_to_policy(workspace, evidence.run.policy, [page, *pictures], "report")


def write_version_report(workspace: Workspace, version: RegisteredVersion) -> Path:
    """Write the page about a registered version, and return it. The version's own snapshot has its pool and recipe,
    whatever the files contain now. Raises `DataError`."""
    snapshot = Snapshot.read(workspace.snapshots, version.tags.get("snapshot", ""))
    podium = RunResource(root=str(workspace.root)).for_new_run(snapshot).bind_snapshot(snapshot)
    setup = podium.load_setup()
    runs, start = find_trainings(setup.workspace, version.tags.get("policy", ""))
    evidence = gather_evidence(setup, runs, start or base_policy_folder(setup))
    return publish_report(podium, evidence, make_exhibits(evidence))[0]


def get_page_file(podium: RunResource) -> Path:
    """Return the file of the page about this configuration's last policy. Raises `DataError`."""
    setup = podium.load_setup()
    return report_file(setup.workspace, describe_run(setup, list_training_runs(podium), base_policy_folder(setup)))


@dg.asset(
    deps=[promotion, policy_studies],
    group_name="release",
    kinds={"python", "mlflow"},
)
def report(context: dg.AssetExecutionContext, podium: RunResource) -> dg.MaterializeResult:
    """Write all results as one HTML page, and attach it to the version in MLflow. No worker is called."""
    page = get_page_file(podium)
    again = is_rebuild_requested(context) or not page.with_suffix("").is_dir()
    published = make_once([page], _compute_key(podium), lambda: _publish_current_report(podium), always=again)
    if published is None:
        return report_unchanged(context, data_version(page))
    evidence, made, versions = published
    facts: dict[str, dg.MetadataValue | str] = {
        "page": dg.MetadataValue.path(page), "mlflow_versions": ", ".join(versions) or "none",
    }  # fmt: skip
    if said := synthetic_label(evidence.run):
        facts["label"] = said
    for each in made:
        facts |= _describe_exhibit(each, page)
    return dg.MaterializeResult(data_version=dg.DataVersion(data_version(page)), metadata=facts)


def _publish_current_report(podium: RunResource) -> tuple[Evidence, list[MadeExhibit], list[str]]:
    evidence = gather_run_evidence(podium)
    made = make_exhibits(evidence)
    return evidence, made, publish_report(podium, evidence, made)[1]


def _compute_key(podium: RunResource) -> Key:
    """Return the versions of data, scores, curves of training, entries of the registry, settings and code."""
    setup, snapshot = podium.load_setup(), podium.get_snapshot()
    curves = [run / CURVE_FILE for run in list_training_runs(podium).values()]
    policy, commit = policy_key(get_final_policy_folder(podium)), snapshot.git_commit
    entries = load_release_info(setup.workspace, policy, commit, datetime.fromtimestamp(0, UTC))  # of no date
    key = {
        "data": data_version(*data_files(setup.workspace)),
        "scores": data_version(setup.workspace.scores),
        "curves": data_version(*curves),
        "registry": digest([policy, *entries]),
        "settings": digest(snapshot.model_dump(mode="json", exclude={"git_commit": True, "recipe": {"budget"}})),
    }
    exhibits = (f"ops.reports.exhibits.{name}" for name in EXHIBITS)
    return add_code_version(key, "ops.reports.page", "ops.reports.gathering", *exhibits)


def _describe_exhibit(made: MadeExhibit, page: Path) -> dict[str, dg.MetadataValue | str]:
    """Return an exhibit's metadata: its result with n, its tables and its pictures."""
    exhibit, shown = made
    if not isinstance(shown, ExhibitContent):
        return {exhibit.name: shown.replace("`", "")}
    said = (shown.summary or exhibit.title).replace("`", "")
    facts: dict[str, dg.MetadataValue | str] = {exhibit.name: f"{said} ({shown.sample_description})"}
    for number, part in enumerate(shown.parts, start=1):
        if isinstance(part, Table):
            facts[f"{exhibit.name}_table_{number}"] = metadata.make_table(part.head, part.rows)
        else:
            facts[f"{exhibit.name}_picture_{number}"] = metadata.embed_png(
                exhibit.title, picture_file(page, exhibit, number).read_bytes()
            )
    return facts
