"""One asset an experiment of `ops.evaluation.experiments`: materialized when a person asks for it, never by a job."""

from pathlib import Path

import dagster as dg

from assets import gate, metadata
from assets.base_policy import base_policy
from assets.benchmark_scores import benchmark_scores
from assets.conductor import conductor, run_folder
from assets.recursive_conductor import final_run
from assets.resources import Calls, Podium, Reporter, servers
from ops.evaluation.experiment import EXPERIMENTS, Experiment, Intervention, Observation
from ops.precaching.opening import open_client
from ops.stages.experiments import run_experiment
from ops.training.cold_start.base_policy import base_policy_folder

GROUP = "experiments"


def policy_of(entry: Experiment, podium: Podium) -> Path:
    """The policy that an experiment is about."""
    if isinstance(entry, Observation):
        return base_policy_folder(podium.load()) if entry.of == "base_policy" else run_folder(podium) / "policy"
    return final_run(podium) / "policy"


def _upstream(entry: Experiment) -> dg.AssetsDefinition:
    if isinstance(entry, Observation):
        return base_policy if entry.of == "base_policy" else conductor
    return benchmark_scores


def _asset_of(entry: Experiment) -> dg.AssetsDefinition:
    asks = isinstance(entry, Intervention)

    @dg.asset(
        name=entry.name,
        deps=[_upstream(entry)],
        group_name=GROUP,
        kinds={"litellm"} if asks else {"python"},
        description=f"{entry.title}: {entry.changes}.",
    )
    def experiment(
        context: dg.AssetExecutionContext, podium: Podium, reporter: dg.ResourceParam[Reporter]
    ) -> dg.MaterializeResult:
        if asks:
            gate.ready(podium, "workers", "evaluation")
        setup = podium.load()
        client = open_client(setup, "experiment", beside=entry.name)
        with servers(setup, needed=asks):
            found = run_experiment(setup, policy_of(entry, podium), entry, client, reporter.progress(context))
        reporter.calls(context, Calls.of(client.counts))
        tables = {"table": found.summary, "details": found.details}
        return dg.MaterializeResult(
            metadata={
                **{name: metadata.table(*columns) for name, columns in tables.items() if columns.rows},
                **({"said": found.said} if found.said else {}),
                "picture": metadata.picture(entry.title, found.picture),
                **metadata.calls(client.counts),
            }
        )

    return experiment


experiments = [_asset_of(entry) for entry in EXPERIMENTS.values()]
