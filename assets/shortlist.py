"""`shortlist`: the training candidates that the workers answer."""

from collections import Counter

import dagster as dg

from assets import metadata
from assets.last_result import is_rebuild_requested, report_unchanged
from assets.raw_problems import raw_problems
from assets.resources import RunResource
from ops import versioning
from ops.core.once import data_version
from ops.stages.data import data_files, make_shortlist_once


@dg.asset(deps=[raw_problems], group_name="data", kinds={"python", "dvc"})
def shortlist(context: dg.AssetExecutionContext, podium: RunResource) -> dg.MaterializeResult:
    """Choose the candidates for training. They are diverse, and none resembles a test question or another candidate."""
    setup = podium.load_setup()
    chosen = make_shortlist_once(setup, force=is_rebuild_requested(context))
    versioning.record_stage(setup.workspace, podium.get_snapshot(), "shortlist")
    version = data_version(*data_files(setup.workspace, "shortlist"))
    if chosen is None:
        return report_unchanged(context, version)
    counts = Counter((problem.domain, problem.family or problem.subject) for problem in chosen.problems)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(version),
        metadata={
            "problems": len(chosen.problems),
            "removed": len(chosen.report["pairs"]),
            "removed_by_kind": metadata.make_table(
                ("benchmark", "cause", "kind", "count"),
                [(row["benchmark"], row["cause"], row["kind"], row["count"]) for row in chosen.report["removed"]],
            ),
            "by_family": metadata.make_table(
                ("domain", "family or subject", "problems"), [(*key, n) for key, n in sorted(counts.items())]
            ),
            "contamination": dg.MetadataValue.path(setup.workspace.data / "contamination.json"),
        },
    )
