"""`shortlist`: the training candidates that the workers answer."""

from collections import Counter

import dagster as dg

from assets import metadata
from assets.raw_problems import raw_problems
from assets.resources import Podium
from assets.unchanged import AssetStep
from ops import versioning
from ops.stages.curation import materialize_shortlist


@dg.asset(deps=[raw_problems], group_name="data", kinds={"python", "dvc"})
def shortlist(context: dg.AssetExecutionContext, podium: Podium) -> dg.MaterializeResult:
    """Choose training candidates: decontaminated against every evaluation question, without near duplicates,
    diverse."""
    setup, step = podium.load(), AssetStep.of_data(context, podium, "shortlist")
    if (same := step.unchanged()) is not None:
        return same
    chosen = materialize_shortlist(setup)
    counts = Counter((problem.domain, problem.family or problem.subject) for problem in chosen.problems)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(versioning.record(setup.workspace, podium.snapshot(), "shortlist")),
        metadata={
            "problems": len(chosen.problems),
            "removed": len(chosen.report["pairs"]),
            "removed_by_kind": metadata.table(
                ("benchmark", "cause", "kind", "count"),
                [(row["benchmark"], row["cause"], row["kind"], row["count"]) for row in chosen.report["removed"]],
            ),
            "by_family": metadata.table(
                ("domain", "family or subject", "problems"), [(*key, n) for key, n in sorted(counts.items())]
            ),
            "contamination": dg.MetadataValue.path(setup.workspace.data / "contamination.json"),
            **step.keys(),
        },
    )
