"""The jobs `promote` and `rollback`: a person's decisions, from the launchpad; the commands of those names do the same.

They read neither recipe nor pool: a mistake there does not prevent a rollback.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import Field

from assets.resources import Podium
from ops.core.errors import ConfigError, PodiumError
from ops.stages.release import promote_by_hand, roll_back


class Decided(dg.Config):
    """Who decides so, and why; both are recorded with the version."""

    by: str = Field(description="Who decides so. Recorded with the version.")
    reason: str = Field(description="Why. Recorded with the version.")

    def check(self, job: str) -> None:
        """Raise `ConfigError` when either is blank."""
        for field in ("by", "reason"):
            if not getattr(self, field).strip():
                raise ConfigError(f"job {job}", f"config.{field}", "is empty", "Say who decides so and why")


class Promoted(Decided):
    """Which version becomes champion."""

    version: str = Field(default="", description="A version of the model conductor; empty: the challenger.")


def release_jobs(podium: Podium) -> list[dg.JobDefinition]:
    """Both jobs, over the registry of the checkout that `podium` names."""

    @dg.op(name="promote_version", description="Move the alias champion to a version, in spite of the gate")
    def promote_version(context: dg.OpExecutionContext, config: Promoted) -> None:
        with said_in_one_line():
            config.check("promote")
            outcome = promote_by_hand(podium.workspace(), config.version or None, config.by, config.reason)
        context.log.info(f"models:/conductor@champion is version {outcome.version}")
        context.add_output_metadata({"champion": outcome.version, "report": dg.MetadataValue.path(outcome.page)})

    @dg.op(name="roll_back_champion", description="Move the alias champion to previous")
    def roll_back_champion(context: dg.OpExecutionContext, config: Decided) -> None:
        with said_in_one_line():
            config.check("rollback")
            back = roll_back(podium.workspace(), config.reason, config.by, context.run_id)
        context.log.info(f"models:/conductor@champion is version {back.version}")
        context.add_output_metadata({"champion": back.version})

    @dg.job(
        description="Make a version champion in spite of the gate; who wanted it and why is recorded",
        config=_to_fill_in(promote_version, "version", "by", "reason"),
    )
    def promote() -> None:
        promote_version()

    @dg.job(
        description="Make the version before champion again; who wanted it and why is recorded",
        config=_to_fill_in(roll_back_champion, "by", "reason"),
    )
    def rollback() -> None:
        roll_back_champion()

    return [promote, rollback]


@contextmanager
def said_in_one_line() -> Iterator[None]:
    """Fail the step with the message of a `PodiumError` alone: the UI shows no traceback for a person's mistake."""
    try:
        yield
    except PodiumError as error:
        raise dg.Failure(str(error), allow_retries=False) from None


def _to_fill_in(op: dg.OpDefinition, *fields: str) -> dict[str, Any]:
    """What the launchpad shows: fields to fill in; a blank one is refused."""
    return {"ops": {op.name: {"config": dict.fromkeys(fields, "")}}}
