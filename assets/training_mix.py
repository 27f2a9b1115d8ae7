"""`training_mix`: the problems that GRPO trains on (checked in `checks`)."""

import dagster as dg

from assets import metadata
from assets.resources import Podium
from assets.shortlist import shortlist
from assets.worker_responses import worker_responses
from ops import versioning
from ops.stages.curation import materialize_mix


@dg.asset(deps=[shortlist, worker_responses], group_name="training", kinds={"python", "dvc"})
def training_mix(podium: Podium) -> dg.MaterializeResult:
    """Choose the training mix: equally many problems per domain, by the recipe's selector; see the data card."""
    setup = podium.load()
    mix = materialize_mix(setup)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(versioning.record(setup.workspace, podium.snapshot(), "training_mix")),
        metadata={
            "problems": len(mix.problems),
            "selector": setup.recipe.curation.selector,
            "solved_alone_by": metadata.table(("workers that solve it", "problems"), list(mix.agreement.items())),
            "data_card": dg.MetadataValue.md(mix.card),
        },
    )
