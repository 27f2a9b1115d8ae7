"""`training_mix`: the problems that GRPO trains on (checked in `checks`)."""

from collections.abc import Iterator

import dagster as dg

from assets import metadata
from assets.champion_standing import champion_standing
from assets.last_result import is_rebuild_requested, report_unchanged
from assets.resources import RunResource
from assets.worker_responses import worker_responses
from ops import versioning
from ops.core.once import data_version
from ops.retraining.standing import load_training_decision
from ops.stages.data import data_files, make_mix_once


@dg.asset(
    deps=[worker_responses, champion_standing],
    group_name="training",
    kinds={"python", "dvc"},
    output_required=False,
)
def training_mix(context: dg.AssetExecutionContext, podium: RunResource) -> Iterator[dg.MaterializeResult]:
    """Choose the training questions from the candidates with the recipe's selector, equally many for each domain.
    data/data_card.md describes them.

    Yields nothing in a run about a changed pool whose champion stays as it is: what follows is skipped.
    """
    setup, snapshot = podium.load_setup(), podium.get_snapshot()
    if snapshot.change is not None and not (made := load_training_decision(setup.workspace, snapshot.key)).fine_tune:
        context.log.info(f"no training: {made.why}. The champion stays as it is")
        return
    mix = make_mix_once(setup, force=is_rebuild_requested(context))
    versioning.record_stage(setup.workspace, snapshot, "training_mix")
    version = data_version(*data_files(setup.workspace, "training_mix"))
    if mix is None:
        yield report_unchanged(context, version)
        return
    yield dg.MaterializeResult(
        data_version=dg.DataVersion(version),
        metadata={
            "problems": len(mix.problems),
            "selector": setup.recipe.curation.selector,
            "solved_alone_by": metadata.make_table(("workers that solve it", "problems"), list(mix.agreement.items())),
            "data_card": dg.MetadataValue.md(mix.card),
        },
    )
