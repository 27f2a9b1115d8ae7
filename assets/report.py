"""`report`: one page with the measurements of this configuration's Conductor; its exhibits are the metadata."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from assets import metadata
from assets.baselines import baselines
from assets.benchmark_scores import benchmark_scores
from assets.last_result import asked_again, unchanged
from assets.leaderboard import leaderboard
from assets.promotion import promotion
from assets.raw_problems import raw_problems
from assets.recursive_conductor import final_policy, recursive_conductor, training_runs
from assets.resources import Podium
from assets.studies import studies
from assets.training_mix import training_mix
from assets.worker_pool import worker_pool
from assets.worker_responses import worker_responses
from ops.conductor.policy import policy_key
from ops.config import digest
from ops.core.errors import DataError
from ops.core.once import Key, add_code_version, data_version, make_once
from ops.release import registry
from ops.reports.evidence import Evidence
from ops.reports.exhibit import EXHIBITS, Made, Shown, Table, label, make, report_file
from ops.reports.gathering import about, gather
from ops.reports.page import picture_file, write_page, write_pictures
from ops.reports.summary import released
from ops.stages.data import data_files
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.training_run import CURVE_FILE


def evidence_of(podium: Podium) -> Evidence:
    """Return the evidence on this configuration's last policy. Raises `DataError` if there is no policy yet."""
    setup = podium.load()
    mix = setup.workspace.data / "training_mix.jsonl"
    if not mix.exists():
        raise DataError(mix, "", "does not exist: nothing was trained", f"`podium run {setup.recipe.name}`")
    return gather(setup, training_runs(podium), base_policy_folder(setup))


def publish(podium: Podium, evidence: Evidence, made: list[Made]) -> tuple[Path, list[str]]:
    """Write the page and its pictures, and add them to the policy's versions in MLflow. Returns the page and these
    versions."""
    workspace = podium.load().workspace
    known = released(workspace, evidence.about.policy, podium.snapshot().git_commit, datetime.now(UTC))
    page, pictures = write_page(workspace, evidence, made, known), write_pictures(workspace, evidence, made)
    return page, registry.attach(workspace, evidence.about.policy, [page, *pictures], "report")


def page_of(podium: Podium) -> Path:
    """Return the file of the page about this configuration's last policy. Raises `DataError`."""
    setup = podium.load()
    return report_file(setup.workspace, about(setup, training_runs(podium), base_policy_folder(setup)))


@dg.asset(
    deps=[
        raw_problems, worker_pool, worker_responses, training_mix, recursive_conductor, baselines, benchmark_scores,
        leaderboard, promotion, *studies,
    ],
    group_name="release",
    kinds={"python", "mlflow"},
)  # fmt: skip
def report(context: dg.AssetExecutionContext, podium: Podium) -> dg.MaterializeResult:
    """Write all results as one HTML page, and attach it to the version in MLflow. No worker is called."""
    page = page_of(podium)
    again = asked_again(context) or not page.with_suffix("").is_dir()
    if (published := make_once([page], _key(podium), lambda: _published(podium), always=again)) is None:
        return unchanged(context, data_version(page))
    evidence, made, versions = published
    facts: dict[str, dg.MetadataValue | str] = {
        "page": dg.MetadataValue.path(page), "mlflow_versions": ", ".join(versions) or "none",
    }  # fmt: skip
    if said := label(evidence.about):
        facts["label"] = said
    for each in made:
        facts |= _facts(each, page)
    return dg.MaterializeResult(data_version=dg.DataVersion(data_version(page)), metadata=facts)


def _published(podium: Podium) -> tuple[Evidence, list[Made], list[str]]:
    evidence = evidence_of(podium)
    made = make(evidence)
    return evidence, made, publish(podium, evidence, made)[1]


def _key(podium: Podium) -> Key:
    """Return the versions of data, scores, curves of training, entries of the registry, settings and code."""
    setup, snapshot = podium.load(), podium.snapshot()
    curves = [run / CURVE_FILE for run in training_runs(podium).values()]
    policy, commit = policy_key(final_policy(podium)), snapshot.git_commit
    entries = released(setup.workspace, policy, commit, datetime.fromtimestamp(0, UTC))  # of no date
    key = {
        "data": data_version(*data_files(setup.workspace)),
        "scores": data_version(setup.workspace.scores),
        "curves": data_version(*curves),
        "registry": digest([policy, *entries]),
        "settings": digest(snapshot.model_dump(mode="json", exclude={"git_commit": True, "recipe": {"budget"}})),
    }
    exhibits = (f"ops.reports.exhibits.{name}" for name in EXHIBITS)
    return add_code_version(key, "ops.reports.page", "ops.reports.gathering", *exhibits)


def _facts(made: Made, page: Path) -> dict[str, dg.MetadataValue | str]:
    """Return an exhibit's metadata: its result with n, its tables and its pictures."""
    exhibit, shown = made
    if not isinstance(shown, Shown):
        return {exhibit.name: shown.replace("`", "")}
    said = (shown.said or exhibit.title).replace("`", "")
    facts: dict[str, dg.MetadataValue | str] = {exhibit.name: f"{said} ({shown.n})"}
    for number, part in enumerate(shown.parts, start=1):
        if isinstance(part, Table):
            facts[f"{exhibit.name}_table_{number}"] = metadata.table(part.head, part.rows)
        else:
            facts[f"{exhibit.name}_picture_{number}"] = metadata.picture(
                exhibit.title, picture_file(page, exhibit, number).read_bytes()
            )
    return facts
