"""The jobs `promote` and `rollback`, for manual decisions in the launchpad; the commands of these names do the same.

They read neither recipe nor pool, so a mistake there does not prevent a rollback. Both report an observation on the
page of the asset `promotion`.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import Field

from assets.placement import TEAM_VARIABLE
from assets.resources import RunResource
from ops.core.errors import ConfigError, PodiumError
from ops.core.workspace import Workspace
from ops.release.mlflow_store import RegisteredVersion
from ops.stages.release import PromotionOutcome, promote_manually, roll_back
from pipelines.dagster_home import prepare_home

log = logging.getLogger("podium.release")


class DecisionConfig(dg.Config):
    """The person who decides and the reason; both are recorded with the version."""

    by: str = Field(description="The name of the person who decides this, which is recorded with the version.")
    reason: str = Field(description="The reason, which is recorded with the version.")

    def require_reason(self, job: str) -> None:
        """Raise `ConfigError` if either is blank."""
        for field in ("by", "reason"):
            if not getattr(self, field).strip():
                raise ConfigError(
                    f"job {job}", f"config.{field}", "is empty", "State the person who decides and the reason"
                )


class PromotionConfig(DecisionConfig):
    """The version to promote."""

    version: str = Field(
        default="",
        description="The number of a version of the model conductor. If it is empty, this is the challenger.",
    )


def make_promotion_observation(outcome: PromotionOutcome) -> dg.AssetObservation:
    """Return the observation of `promotion` after a manual promotion."""
    facts: dict[str, Any] = {
        "champion": outcome.version,
        "decision": "overridden",
        "report": dg.MetadataValue.path(outcome.page),
    }
    if (by := outcome.decision.override) is not None:
        facts |= {"by": by.name, "reason": by.reason}
    return dg.AssetObservation("promotion", description=f"version {outcome.version} promoted by hand", metadata=facts)


def make_rollback_observation(back: RegisteredVersion, by: str, reason: str) -> dg.AssetObservation:
    """Return the observation of `promotion` after a rollback to version `back`."""
    facts = {"champion": back.version, "decision": "rolled back", "by": by, "reason": reason}
    return dg.AssetObservation("promotion", description=f"rolled back to version {back.version}", metadata=facts)


def report_observation(workspace: Workspace, observation: dg.AssetObservation) -> None:
    """Report a command's observation to the Dagster instance of the workspace, if it has one.

    The champion has already changed, so an instance that does not accept the observation only causes a warning in the
    log.
    """
    if not (os.environ.get(TEAM_VARIABLE) or workspace.dagster_home.is_dir()):
        return
    try:
        prepare_home(workspace)
        with dg.DagsterInstance.get() as instance:
            instance.report_runless_asset_event(observation)
    except Exception as error:  # noqa: BLE001 - of whatever store the instance has
        log.warning("Dagster did not accept the observation of `promotion`: %s: %s", type(error).__name__, error)


def publish_pages(workspace: Workspace, version: str) -> None:
    """Write the report of a version that a person has made champion, and the page of the retrainings again.

    The champion has already changed, so a page that cannot be written only causes a warning in the log.
    """
    from assets.report import write_version_report
    from ops.release import registry
    from ops.retraining.story import write_retraining_page

    try:
        write_version_report(workspace, registry.get_version(workspace, version))
        write_retraining_page(workspace)
    except (PodiumError, OSError) as error:
        log.warning("the pages about version %s were not written: %s", version, error)


def make_release_jobs(podium: RunResource) -> list[dg.JobDefinition]:
    """Return both jobs on the registry of the checkout of `podium`."""

    @dg.op(name="promote_version", description="Move the alias champion to a version, whatever the gate decided.")
    def promote_version(context: dg.OpExecutionContext, config: PromotionConfig) -> None:
        with shorten_errors():
            config.require_reason("promote")
            outcome = promote_manually(podium.find_workspace(), config.version or None, config.by, config.reason)
        context.log.info(f"models:/conductor@champion is version {outcome.version}")
        if outcome.has_changed:
            context.log_event(make_promotion_observation(outcome))
            publish_pages(podium.find_workspace(), outcome.version)
        context.add_output_metadata({"champion": outcome.version, "report": dg.MetadataValue.path(outcome.page)})

    @dg.op(name="roll_back_champion", description="Move the alias champion back to the previous version.")
    def roll_back_champion(context: dg.OpExecutionContext, config: DecisionConfig) -> None:
        with shorten_errors():
            config.require_reason("rollback")
            back = roll_back(podium.find_workspace(), config.reason, config.by, context.run_id)
        context.log.info(f"models:/conductor@champion is version {back.version}")
        context.log_event(make_rollback_observation(back, config.by, config.reason))
        publish_pages(podium.find_workspace(), back.version)
        context.add_output_metadata({"champion": back.version})

    @dg.job(
        description="Make a version the champion, whatever the gate decided. The name and the reason are recorded.",
        config=_make_config_fields(promote_version, "version", "by", "reason"),
    )
    def promote() -> None:
        promote_version()

    @dg.job(
        description="Make the previous champion the champion again. The name and the reason are recorded.",
        config=_make_config_fields(roll_back_champion, "by", "reason"),
    )
    def rollback() -> None:
        roll_back_champion()

    return [promote, rollback]


@contextmanager
def shorten_errors() -> Iterator[None]:
    """Fail the step with only the message of a `PodiumError`, so that the UI shows no traceback for a user's
    mistake."""
    try:
        yield
    except PodiumError as error:
        raise dg.Failure(str(error), allow_retries=False) from None


def _make_config_fields(op: dg.OpDefinition, *fields: str) -> dict[str, Any]:
    """Return the fields of the launchpad; a blank one is refused."""
    return {"ops": {op.name: {"config": dict.fromkeys(fields, "")}}}
