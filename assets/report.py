"""`report`: one page with the measurements of this configuration's Conductor; its exhibits are the metadata."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from assets import metadata
from assets.baselines import baselines
from assets.benchmark_scores import benchmark_scores
from assets.leaderboard import leaderboard
from assets.promotion import promotion
from assets.raw_problems import raw_problems
from assets.recursive_conductor import final_policy, recursive_conductor, training_runs
from assets.resources import Podium
from assets.studies import studies
from assets.training_mix import training_mix
from assets.unchanged import AssetStep, data_files
from assets.worker_pool import worker_pool
from assets.worker_responses import worker_responses
from ops.conductor.policy import policy_key
from ops.config import digest
from ops.core.errors import DataError
from ops.release import registry
from ops.reports.evidence import Evidence
from ops.reports.exhibit import Made, Shown, Table, label, make, report_file
from ops.reports.gathering import about, gather
from ops.reports.page import picture_file, write_page, write_pictures
from ops.reports.summary import released
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.plan import CURVE


def evidence_of(podium: Podium) -> Evidence:
    """Return the evidence on this configuration's last policy. Raises `DataError` if there is no policy yet."""
    setup = podium.load()
    mix = setup.workspace.data / "training_mix.jsonl"
    if not mix.is_file():
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
    """Write the measurements as one HTML page and add it to the version in MLflow; no worker is called."""
    step = _step(context, podium)
    if (same := step.unchanged()) is not None:
        return same
    evidence = evidence_of(podium)
    made = make(evidence)
    page, versions = publish(podium, evidence, made)
    facts: dict[str, dg.MetadataValue | str] = {
        "page": dg.MetadataValue.path(page), "mlflow_versions": ", ".join(versions) or "none",
    }  # fmt: skip
    if said := label(evidence.about):
        facts["label"] = said
    for each in made:
        facts |= _facts(each, page)
    return dg.MaterializeResult(metadata={**facts, **step.keys()})


def _step(context: dg.AssetExecutionContext, podium: Podium) -> AssetStep:
    """Return the step from scores, curves of training and entries of the registry to the page and its pictures."""
    setup, page = podium.load(), page_of(podium)
    curves = [run / CURVE for run in training_runs(podium).values()]
    inputs = [*data_files(setup.workspace), setup.workspace.scores, *curves]
    policy, commit = policy_key(final_policy(podium)), podium.snapshot().git_commit
    entries = released(setup.workspace, policy, commit, datetime.fromtimestamp(0, UTC))  # of no date
    return AssetStep(context, podium, inputs, [page, page.with_suffix("")], also=[digest([policy, *entries])])


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
