"""One asset an experiment of `ops.evaluation.experiments`: materialized when a person asks for it, never by a job."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg

from assets import gate, metadata
from assets.base_policy import base_policy
from assets.benchmark_scores import benchmark_scores
from assets.conductor import conductor, run_folder, train
from assets.raw_problems import raw_problems
from assets.recursive_conductor import final_run
from assets.resources import Calls, Podium, Reporter, servers
from assets.worker_pool import worker_pool
from ops.config import Setup
from ops.evaluation.experiment import EXPERIMENTS, Experiment, Intervention, Observation
from ops.planning.requirements import Need
from ops.precaching.opening import open_client
from ops.stages.experiments import run_experiment
from ops.stages.making import Making
from ops.training.cold_start.base_policy import base_policy_folder

GROUP = "experiments"


def policy_of(entry: Experiment, podium: Podium) -> Path:
    """The policy that an experiment is about."""
    if isinstance(entry, Observation):
        return base_policy_folder(podium.load()) if entry.of == "base_policy" else run_folder(podium) / "policy"
    return final_run(podium) / "policy"


@contextmanager
def making(
    context: dg.AssetExecutionContext,
    podium: Podium,
    reporter: Reporter,
    trainer: dg.PipesSubprocessClient,
    *needs: Need,
    setup: Setup | None = None,
) -> Iterator[Making]:
    """What an experiment's asset trains and asks with; what is stored needs neither.

    Before the first it refuses a machine, a recipe (that of `setup`, where the experiment changes it) or data that are
    not fit for these `needs`, and starts the workers that Podium serves until the end of the block.
    """
    with ExitStack() as stack:

        def begin() -> None:
            if "training" in needs:
                gate.passed(context, "training_mix")
            gate.ready(podium, *needs, setup=setup)
            stack.enter_context(servers(podium.load()))

        yield Making(lambda run: train(context, reporter, trainer, run), reporter.progress(context), begin)


def made(making: Making, reporter: Reporter, context: dg.AssetExecutionContext) -> dict[str, dg.MetadataValue]:
    """What was asked of the workers, by trainings too: reported, and as metadata."""
    calls = Calls()
    for each in (*map(Calls.of_run, making.results), *(Calls.of(client.counts) for client in making.clients)):
        calls = calls.plus(each)
    reporter.calls(context, calls)
    return metadata.calls(calls)


def _upstream(entry: Experiment) -> list[dg.AssetsDefinition]:
    if isinstance(entry, Observation):
        return [raw_problems, base_policy if entry.of == "base_policy" else conductor]
    return [raw_problems, worker_pool, benchmark_scores]


def _asset_of(entry: Experiment) -> dg.AssetsDefinition:
    asks = isinstance(entry, Intervention)

    @dg.asset(
        name=entry.name,
        deps=_upstream(entry),
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
        calls = Calls.of(client.counts)
        reporter.calls(context, calls)
        return dg.MaterializeResult(metadata={**metadata.findings(entry.title, found), **metadata.calls(calls)})

    return experiment


experiments = [_asset_of(entry) for entry in EXPERIMENTS.values()]
