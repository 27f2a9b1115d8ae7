"""One asset an exhibit of `ops.reports`, and the page that holds them: made when a person asks for them, by no job."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from assets import metadata
from assets.leaderboard import leaderboard
from assets.recursive_conductor import training_runs
from assets.resources import Podium
from ops.core.errors import DataError
from ops.release import registry
from ops.reports.drawing import png
from ops.reports.evidence import Evidence
from ops.reports.exhibit import EXHIBITS, Exhibit, Shown, Table
from ops.reports.gathering import gather
from ops.reports.made import Made, label, make, make_one
from ops.reports.page import write_page, write_pictures
from ops.training.cold_start.base_policy import base_policy_folder

GROUP, PAGE = "reports", "report_page"


def evidence_of(podium: Podium) -> Evidence:
    """What is known of this configuration's last policy. Raises `DataError` where there is no policy yet."""
    setup = podium.load()
    mix = setup.workspace.data / "training_mix.jsonl"
    if not mix.is_file():
        raise DataError(mix, "(file)", "does not exist: nothing was trained", f"`podium run {setup.recipe.name}`")
    return gather(setup, training_runs(podium), base_policy_folder(setup))


def publish(podium: Podium, evidence: Evidence, made: list[Made]) -> tuple[Path, list[str]]:
    """Write the page and its pictures, and add them to the policy's versions in MLflow, which are named."""
    workspace = podium.load().workspace
    page, pictures = write_page(workspace, evidence, made), write_pictures(workspace, evidence, made)
    return page, registry.attach(workspace, evidence.about.policy, [page, *pictures], "report")


def asset_name(exhibit: Exhibit) -> str:
    """The exhibit's asset."""
    return f"report_{exhibit.name}"


@dg.multi_asset(
    name="reports",
    can_subset=True,
    group_name=GROUP,
    specs=[
        *(
            dg.AssetSpec(asset_name(exhibit), deps=[leaderboard], description=f"{exhibit.title}: {exhibit.shows}")
            for exhibit in EXHIBITS.values()
        ),
        dg.AssetSpec(PAGE, deps=[leaderboard], description="All exhibits as one HTML file, and in MLflow."),
    ],
)
def reports(context: dg.AssetExecutionContext, podium: Podium) -> Iterator[dg.MaterializeResult]:
    """The evidence is read once for all that are chosen."""
    evidence, chosen = evidence_of(podium), {key.to_user_string() for key in context.selected_asset_keys}
    whole = make(evidence) if PAGE in chosen else []
    done = {made.exhibit.name: made for made in whole}
    for exhibit in EXHIBITS.values():
        if asset_name(exhibit) in chosen:
            made = done.get(exhibit.name) or make_one(exhibit, evidence)
            yield dg.MaterializeResult(asset_key=asset_name(exhibit), metadata=_facts(made, label(evidence.about)))
    if PAGE in chosen:
        page, versions = publish(podium, evidence, whole)
        facts = {"page": dg.MetadataValue.path(page), "mlflow_versions": ", ".join(versions) or "none"}
        yield dg.MaterializeResult(asset_key=PAGE, metadata=facts)


def _facts(made: Made, shown_label: str) -> dict[str, dg.MetadataValue | str]:
    """What a person sees of an exhibit."""
    if not isinstance(made.shown, Shown):
        return {"nothing_done": made.shown}
    facts: dict[str, dg.MetadataValue | str] = {"n": made.shown.n, **({"label": shown_label} if shown_label else {})}
    if made.shown.said:
        facts["said"] = made.shown.said
    for number, part in enumerate(made.shown.parts, start=1):
        if isinstance(part, Table):
            facts[f"table_{number}"] = metadata.table(part.head, part.rows)
        else:
            facts[f"picture_{number}"] = metadata.picture(made.exhibit.title, png(part, shown_label))
    return facts
