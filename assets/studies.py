"""`policy_studies[study]` and `recipe_studies[study]`: the studies from the code and those of config/studies.yaml."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg
from pydantic import Field

from assets import gate, metadata, partitions, placement
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

POLICY_STUDIES, RECIPE_STUDIES = "policy_studies", "recipe_studies"
"""The asset of the studies in code, which train nothing, and the asset of the studies in config/studies.yaml."""
UNREADABLE_STUDY = "studies_yaml"
"""The partition that takes the place of all studies of a file that cannot be read."""


class StudyOptions(dg.Config):
    """The options for materializing a study."""

    changes: list[str] = Field(
        [], description="The changes to measure, in a study of the kind `changes`. An empty list means all of them."
    )


def find_asset_name(study: str) -> str:
    """Return the name of the asset of which the study is a partition."""
    return POLICY_STUDIES if study in STUDIES else RECIPE_STUDIES


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


def _run_studies(
    context: dg.AssetExecutionContext,
    config: StudyOptions,
    podium: RunResource,
    reporter: Reporter,
    trainer: dg.PipesSubprocessClient,
) -> dg.MaterializeResult:
    """Run the studies of the run's partitions one after the other."""
    total = CallCounts()
    for name in context.partition_keys:
        study = load_study(podium, name, tuple(config.changes))
        with _open_study(context, podium, reporter, trainer, study) as making:
            found = run_study(study, load_study_inputs(podium), making)
        made = (*map(count_calls_of_run, making.results), *(client.counts for client in making.clients))
        calls = sum(made, CallCounts())
        facts = {**metadata.describe_findings(study.entry.title, found), **metadata.describe_calls(calls)}
        context.add_asset_metadata(facts, partition_key=name)
        total = total + calls
    reporter.count_calls(context, total)
    return dg.MaterializeResult()


def describe_recipe_studies(config: Path) -> dict[str, str]:
    """Return the name → the description of each study in the file; for a file that cannot be read, one name and the
    reason."""
    known = try_load_studies(config)
    if isinstance(known, Studies):
        return _describe_studies(known.studies)
    return {UNREADABLE_STUDY: f"The studies of config/{FILE} cannot be read. {known}"}


def _describe_studies(entries: Mapping[str, RecipeStudy | PolicyStudy]) -> dict[str, str]:
    return {name: f"{entry.title}: {entry.about}." for name, entry in entries.items()}


def _format_description(said: str, studies: Mapping[str, str]) -> str:
    return "\n".join([said, "", *(f"* `{name}`: {about}" for name, about in studies.items())])


@dg.asset(
    deps=["benchmark_scores"],
    partitions_def=dg.StaticPartitionsDefinition(list(STUDIES)),
    backfill_policy=partitions.single_run_backfill,
    group_name="experiments",
    kinds={"litellm"},
    description=_format_description(
        "Study the workflows of the trained policy. These studies train nothing.", _describe_studies(STUDIES)
    ),
)
def policy_studies(
    context: dg.AssetExecutionContext,
    config: StudyOptions,
    podium: RunResource,
    reporter: dg.ResourceParam[Reporter],
    trainer: dg.PipesSubprocessClient,
) -> dg.MaterializeResult:
    """Run the studies in the code."""
    return _run_studies(context, config, podium, reporter, trainer)


def make_recipe_studies(config: Path) -> list[dg.AssetsDefinition]:
    """Return the asset of the studies in the file, if it has any. For a file that cannot be read, the asset has one
    partition, which fails with the reason."""
    studies = describe_recipe_studies(config)
    if not studies:
        return []

    @dg.asset(
        deps=["benchmark_scores"],
        partitions_def=dg.StaticPartitionsDefinition(list(studies)),
        backfill_policy=partitions.single_run_backfill,
        group_name="experiments",
        pool=placement.GPU_POOL,
        op_tags=placement.gpu_tags,
        kinds={"pytorch", "huggingface", "litellm"},
        description=_format_description("Study a recipe. Most of these studies train it with changes.", studies),
    )
    def recipe_studies(
        context: dg.AssetExecutionContext,
        config: StudyOptions,
        podium: RunResource,
        reporter: dg.ResourceParam[Reporter],
        trainer: dg.PipesSubprocessClient,
    ) -> dg.MaterializeResult:
        if context.partition_keys == [UNREADABLE_STUDY]:
            require_studies(podium.get_snapshot().studies)
            raise PodiumError(f"config/{FILE} can be read now: reload the code location to see its studies")
        return _run_studies(context, config, podium, reporter, trainer)

    return [recipe_studies]
