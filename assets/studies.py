"""One asset for each study, from the code and from config/studies.yaml. No job materializes them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg
from pydantic import Field

from assets import gate, metadata, placement
from assets.conductor import train_with_local_workers
from assets.recursive_conductor import list_training_runs
from assets.resources import Reporter, RunResource, count_calls_of_run, serve_local_workers
from ops.config.studies import STUDIES as FILE
from ops.config.studies import Changes, RecipeStudy, Rounds, Samples, Studies, require_studies, try_load_studies
from ops.core.errors import DataError, PodiumError
from ops.evaluation.stored_studies import Study, StudyInputs
from ops.evaluation.study import STUDIES, Intervention, PolicyStudy
from ops.planning.requirements import RunPart
from ops.stages.studies.recipe_changes import make_changed_setups
from ops.stages.studies.study import run_study
from ops.stages.study_context import StudyContext
from ops.training.cold_start.base_policy import base_policy_folder
from ops.workers.client import CallCounts

GROUP = "experiments"
ASSET_PREFIX = "study"
"""The prefix of the assets' names, because a study may have the name of another asset."""
UNREADABLE_ASSET = "studies_yaml"
"""The asset that takes the place of all studies of a file that cannot be read."""


class StudyOptions(dg.Config):
    """The options for materializing a study."""

    changes: list[str] = Field(
        [], description="The changes to measure, in a study of the kind `changes`. An empty list means all of them."
    )


def make_asset_name(study: str) -> str:
    """Return the name of the study's asset."""
    return f"{ASSET_PREFIX}/{study}"


def load_study(podium: RunResource, name: str, only: tuple[str, ...] = ()) -> Study:
    """Return the study of that name from the run's snapshot.

    Raises `PodiumError` if the file cannot be read, and `ConfigError` if it has no such study of this recipe.
    """
    if name in STUDIES:
        return Study(name, STUDIES[name], only)
    snapshot, file = podium.get_snapshot(), podium.find_workspace().config / FILE
    return Study(name, require_studies(snapshot.studies).find(name, snapshot.recipe_file, file), only)


def load_study_inputs(podium: RunResource) -> StudyInputs:
    """Return the recipe and the policies of this configuration. Raises `DataError` without a training mix."""
    setup = podium.load_setup()
    mix = setup.workspace.data / "training_mix.jsonl"
    if not mix.is_file():
        raise DataError(mix, "", "does not exist: nothing was trained", f"`podium run {setup.recipe.name}` first")
    return StudyInputs(setup, list_training_runs(podium), base_policy_folder(setup), podium.get_snapshot().deepspeed)


def list_needs(entry: RecipeStudy | PolicyStudy) -> tuple[RunPart, ...]:
    """Check the requirements of a study on machine, recipe and data before its first call or training."""
    if isinstance(entry, Intervention | Rounds | Samples):
        return ("workers", "evaluation")
    return ("workers", "training", "evaluation") if isinstance(entry, RecipeStudy) else ()


@contextmanager
def _open_study(
    context: dg.AssetExecutionContext,
    podium: RunResource,
    reporter: Reporter,
    trainer: dg.PipesSubprocessClient,
    study: Study,
) -> Iterator[StudyContext]:
    """Return the trainer and the clients of the study; stored results need neither.

    Before the first training or call it refuses an unfit machine, recipe (each that the study trains) or data, and
    serves the workers that Podium hosts until the end of the block.
    """
    with ExitStack() as stack:

        def begin() -> None:
            needed, setup = list_needs(study.entry), podium.load_setup()
            if "training" in needed:
                gate.require_passed_checks(context, "training_mix")
            changed = [setup]
            if isinstance(study.entry, Changes):
                changed = list(make_changed_setups(study.name, study.entry, setup, study.selected_changes).values())
            for each in changed:
                gate.require_ready(podium, *needed, setup=each)
            stack.enter_context(serve_local_workers(setup))

        yield StudyContext(
            lambda run: train_with_local_workers(context, reporter, trainer, run),
            reporter.begin_progress(context),
            begin,
        )


def _list_read_assets(entry: RecipeStudy | PolicyStudy) -> list[str]:
    """Return the assets that a study reads."""
    needed = list_needs(entry)
    reads = {
        "raw_problems": True, "worker_pool": "workers" in needed, "training_mix": "training" in needed,
        "base_policy": isinstance(entry, Changes), entry.after: True,
    }  # fmt: skip
    return [asset for asset, read in reads.items() if read]


def _make_asset(name: str, entry: RecipeStudy | PolicyStudy) -> dg.AssetsDefinition:
    needed = list_needs(entry)
    trains, on_gpu = "training" in needed, isinstance(entry, RecipeStudy)

    @dg.asset(
        name=name,
        key_prefix=ASSET_PREFIX,
        deps=_list_read_assets(entry),
        group_name=GROUP,
        pool=placement.GPU_POOL if on_gpu else None,
        op_tags=placement.gpu_tags if on_gpu else None,
        kinds={*({"pytorch"} if trains else ()), *({"huggingface", "litellm"} if needed else {"python"})},
        description=f"{entry.title}: {entry.about}.",
    )
    def study(
        context: dg.AssetExecutionContext,
        config: StudyOptions,
        podium: RunResource,
        reporter: dg.ResourceParam[Reporter],
        trainer: dg.PipesSubprocessClient,
    ) -> dg.MaterializeResult:
        chosen = load_study(podium, name, tuple(config.changes))
        with _open_study(context, podium, reporter, trainer, chosen) as making:
            found = run_study(chosen, load_study_inputs(podium), making)
        made = (*map(count_calls_of_run, making.results), *(client.counts for client in making.clients))
        calls = sum(made, CallCounts())
        reporter.count_calls(context, calls)
        return dg.MaterializeResult(
            metadata={**metadata.describe_findings(entry.title, found), **metadata.describe_calls(calls)}
        )

    return study


study_assets = [_make_asset(name, entry) for name, entry in STUDIES.items()]
"""The assets of the studies in code, which train nothing."""


def make_configured_assets(config: Path) -> list[dg.AssetsDefinition]:
    """Return an asset for each study of the file. For a file that cannot be read, it is one asset that fails with the
    reason."""
    known = try_load_studies(config)
    if isinstance(known, Studies):
        return [_make_asset(name, entry) for name, entry in known.studies.items()]

    @dg.asset(
        name=UNREADABLE_ASSET,
        key_prefix=ASSET_PREFIX,
        deps=[dg.AssetKey("benchmark_scores")],
        group_name=GROUP,
        description=f"The studies of config/{FILE} cannot be read. {known}",
    )
    def unreadable(podium: RunResource) -> None:
        require_studies(podium.get_snapshot().studies)
        raise PodiumError(f"config/{FILE} can be read now: reload the code location to see its assets")

    return [unreadable]
