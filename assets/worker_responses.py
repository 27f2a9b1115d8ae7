"""`worker_responses[benchmark]`: every worker's graded answers to the shortlist, paid for once."""

import dagster as dg

from assets import gate, metadata, partitions
from assets.last_result import is_rebuild_requested, report_unchanged
from assets.resources import Reporter, RunResource, serve_local_workers
from assets.shortlist import shortlist
from assets.worker_pool import worker_pool
from ops import versioning
from ops.benchmarks.registry import training_benchmarks
from ops.core.once import data_version
from ops.core.response_rows import ResponseRow, load_responses, response_file
from ops.planning.requirements import ALL_PARTS
from ops.precaching.client_setup import open_client
from ops.precaching.profiles import profile_workers
from ops.precaching.stored_profiles import WorkerBenchmark
from ops.retraining.standing import plan_required_work
from ops.stages.data import are_precached, data_files
from ops.stages.responses import estimate_responses, find_other_worker_folders, materialize_responses


@dg.asset(
    deps=[shortlist, worker_pool],
    partitions_def=partitions.benchmarks,
    backfill_policy=partitions.single_run_backfill,
    group_name="workers",
    kinds={"litellm", "dvc"},
)
def worker_responses(
    context: dg.AssetExecutionContext, podium: RunResource, reporter: dg.ResourceParam[Reporter]
) -> dg.MaterializeResult:
    """Ask every worker the candidate questions, and grade the responses. Stored responses are not asked for again. Only
    training benchmarks have candidates."""
    gate.require_passed_checks(context, "shortlist")
    setup = podium.load_setup()
    chosen = partitions.select_recipe_benchmarks(context, setup.recipe)
    benchmarks, snapshot, again = training_benchmarks(chosen), podium.get_snapshot(), is_rebuild_requested(context)
    asked = setup.pool.names if snapshot.change is None else plan_required_work(snapshot).precache
    cells = [WorkerBenchmark(worker, benchmark) for worker in asked for benchmark in benchmarks]
    stored = data_files(setup.workspace, "worker_responses")
    if not again and snapshot.change is None and not find_other_worker_folders(setup) and are_precached(setup, cells):
        versioning.record_stage(setup.workspace, snapshot, "worker_responses")
        return report_unchanged(context, data_version(*stored), chosen)
    gate.require_ready(podium, *ALL_PARTS)
    client = open_client(setup, "precache")
    expected = estimate_responses(setup, client, cells)
    if setup.recipe.can_call_workers:
        reporter.report_estimate(context, expected)
    needed = any(part.worker.serve and part.calls.expected for part in expected.workers.values())
    with serve_local_workers(setup, needed):
        materialize_responses(setup, client, cells, reporter.begin_progress(context), force=again)
    versioning.record_stage(setup.workspace, snapshot, "worker_responses")
    folder = setup.workspace.data / "responses"
    for benchmark in benchmarks:  # what is stored, of workers that this run did not ask too
        files = {worker: response_file(folder, worker, benchmark) for worker in setup.pool.names}
        rows = {worker: load_responses(file) for worker, file in files.items() if file.is_file()}
        context.add_asset_metadata(
            {"responses": sum(map(len, rows.values())), "workers": _workers_table(rows)}, partition_key=benchmark
        )
    reporter.count_calls(context, client.counts)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(data_version(*stored)),
        metadata={
            "estimate": metadata.make_table(
                ("worker", "calls", "cached", "expected USD", "worst USD", "calls of measured length"),
                [tuple(row.values()) for row in expected.to_rows()],
            ),
            **metadata.describe_calls(client.counts),
        },
    )


def _workers_table(rows: dict[str, list[ResponseRow]]) -> dg.TableMetadataValue:
    return metadata.make_table(
        ("worker", "responses", "accuracy in %", "USD", "unreachable"),
        [
            (
                worker,
                len(own),
                metadata.format_percent(profile_workers(own)[0].overall if own else None),
                float(f"{sum(row.response.cost_usd for row in own):.6g}"),
                sum(row.status == "unreachable" for row in own),
            )
            for worker, own in rows.items()
        ],
    )
