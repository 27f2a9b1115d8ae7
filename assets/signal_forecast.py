"""`signal_forecast`: the expected training signal, cost and duration of a training run before it starts."""

import dagster as dg

from assets import metadata
from assets.resources import RunResource
from assets.training_mix import training_mix
from assets.worker_pool import worker_pool
from assets.worker_profiles import worker_profiles
from assets.worker_responses import worker_responses
from ops.planning.forecast import (
    compare_with_run,
    describe_basis,
    describe_last_run,
    describe_outlook,
    list_figures,
    list_warnings,
    make_forecast,
)


@dg.asset(deps=[worker_pool, worker_responses, worker_profiles, training_mix], group_name="training", kinds={"python"})
def signal_forecast(context: dg.AssetExecutionContext, podium: RunResource) -> dg.MaterializeResult:
    """Forecast the share of groups from which GRPO can learn, the cost in USD and the hours. The last run is shown for
    comparison."""
    made, last = make_forecast(podium.load_setup())
    for warning in list_warnings(made):
        context.log.warning(warning)
    return dg.MaterializeResult(
        metadata={
            "rests_on": describe_basis(made),
            **metadata.round_floats(list_figures(made)),
            "forecast": metadata.make_table(*compare_with_run(made, last)),
            "last_run": describe_last_run(last),
            "by_domain": metadata.make_table(
                ("domain", "groups whose rewards differ"),
                [(domain, f"{share:.1%}") for domain, share in made.signal_by_domain.items()],
            ),
            "would_training_pay": describe_outlook(made),
            "warnings": "; ".join(list_warnings(made)) or "none",
        }
    )
