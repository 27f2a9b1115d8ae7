"""`conductor`: the base policy trained with GRPO in a separate process that reports through Dagster Pipes."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import dagster as dg
from dagster_pipes import DagsterPipesError

from assets import gate, metadata, placement
from assets.base_policy import base_policy
from assets.dagster_private import DagsterPipesExecutionError
from assets.resources import OnProgress, Reporter, RunResource, count_calls_of_run, serve_local_workers
from assets.training_mix import training_mix
from ops.config import UntrainedPolicy
from ops.core.charts import render_png
from ops.core.errors import PodiumError
from ops.results.leaderboard import chart_reward, chart_strategies
from ops.retraining.fine_tuning_start import prepare_fine_tuning
from ops.stages.restoring import restore_run
from ops.training.cold_start.base_policy import base_policy_folder
from ops.training.run.failure_reasons import explain_exit
from ops.training.run.training_run import (
    LOG_FILE,
    RunPlan,
    RunResult,
    build_training_command,
    prepare_environment,
    read_curve,
    write_run_plan,
)
from ops.workflow.grammar import parse_workflow
from ops.workflow.rendering import render_workflow

POLL_INTERVAL_S = 1.0
_STATUS = re.compile(r"failed with code (-?\d+)")


def get_run_folder(podium: RunResource) -> Path:
    """Return the folder of this configuration's training run, and write the run's plan unless it exists.

    In a run about a changed pool, it is the folder of the training that continues the champion's.
    """
    setup, snapshot = podium.load_setup(), podium.get_snapshot()
    if snapshot.change is not None:
        return prepare_fine_tuning(setup, snapshot.change, snapshot.deepspeed)
    return write_run_plan(setup, base_policy_folder(setup), snapshot.deepspeed)


def explain_no_training(podium: RunResource) -> str:
    """Return why this run trains nothing; empty if it trains a policy or scores a trained one."""
    policy = podium.load_setup().recipe.policy
    if not isinstance(policy, UntrainedPolicy):
        return ""
    return f"The recipe's policy is {policy.kind}: it is scored as it is, and there is nothing to train."


def has_training_stage(podium: RunResource, section: Literal["adaptive", "recursive"]) -> bool:
    """Return whether the configuration has that additional training stage. A fine-tuned champion is always a single
    run."""
    return podium.get_snapshot().change is None and getattr(podium.load_setup().recipe, section) is not None


@dg.asset(
    deps=[training_mix, base_policy],
    group_name="training",
    pool=placement.GPU_POOL,
    op_tags=placement.gpu_tags,
    kinds={"pytorch", "huggingface", "litellm"},
)
def conductor(
    context: dg.AssetExecutionContext,
    podium: RunResource,
    reporter: dg.ResourceParam[Reporter],
    trainer: dg.PipesSubprocessClient,
) -> dg.MaterializeResult:
    """Train the base policy with GRPO. A training that crashed continues from its last checkpoint, and a finished
    training is never repeated. A prompted or static policy is not trained."""
    gate.require_passed_checks(context, "training_mix", "base_policy")
    if why_not := explain_no_training(podium):
        return materialize_unchanged(context, base_policy_folder(podium.load_setup()), why_not)
    return materialize_training(context, podium, reporter, trainer, get_run_folder(podium))


def materialize_training(
    context: dg.AssetExecutionContext,
    podium: RunResource,
    reporter: Reporter,
    trainer: dg.PipesSubprocessClient,
    folder: Path,
) -> dg.MaterializeResult:
    """Train the run in `folder` by the plan in the folder, unless it has finished, and return its result. Raises the
    errors of `_run_trainer`."""
    restore_run(podium.load_setup().workspace, folder)
    result = RunResult.read(folder)
    if result is None:
        gate.require_ready(podium, "workers", "training")
        with serve_local_workers(podium.load_setup()):
            result = train_with_local_workers(context, reporter, trainer, folder)
        reporter.count_calls(context, count_calls_of_run(result))
    plan = RunPlan.read(folder)
    facts = metadata.round_floats(result.model_dump()) | _draw_pictures(folder, plan)
    if plan.champion:
        facts = {"fine_tuned_from_version": plan.champion, "ledger_run": plan.setup.run} | facts
    return dg.MaterializeResult(data_version=dg.DataVersion(folder.name), metadata=facts)


def materialize_unchanged(context: dg.AssetExecutionContext, folder: Path, reason: str) -> dg.MaterializeResult:
    """Return the result of the previous stage, for a recipe without this stage."""
    context.log.info(reason)
    return dg.MaterializeResult(data_version=dg.DataVersion(folder.name), metadata={"nothing_done": reason})


def train_with_local_workers(
    context: dg.AssetExecutionContext, reporter: Reporter, trainer: dg.PipesSubprocessClient, folder: Path
) -> RunResult:
    """Train the run in `folder` to its end, while the workers that Podium hosts are served. Raises the errors of
    `_run_trainer`."""
    plan = RunPlan.read(folder)
    with _report_steps(folder, plan.recipe.grpo.steps, reporter.begin_progress(context)):
        return _run_trainer(context, trainer, plan, folder)


def _run_trainer(
    context: dg.AssetExecutionContext, trainer: dg.PipesSubprocessClient, plan: RunPlan, folder: Path
) -> RunResult:
    """Train; raises `PodiumError` with the reason if training ends without a result."""
    log = folder / LOG_FILE
    began = log.stat().st_size if log.is_file() else 0
    shell = ["/bin/sh", "-c", 'exec "$@" >>"$0" 2>&1', str(log), *build_training_command(plan, folder)]
    try:
        done = trainer.run(
            context=context,
            command=shell,
            cwd=str(plan.root),
            env=prepare_environment(plan, folder),
        )
        # A child process that ends without a message has trained nothing.
        done.get_materialize_result(implicit_materialization=False)
    except DagsterPipesExecutionError as error:  # not a `dg.DagsterError`; its status is only in its text
        if (status := _STATUS.search(str(error))) is None:
            raise
        raise PodiumError(explain_exit(int(status[1]), log, began, plan.recipe.grpo)) from error
    except DagsterPipesError as error:
        raise PodiumError(f"{folder}: training ended without a result ({error}). See {log}") from error
    result = RunResult.read(folder)
    if result is None:
        raise PodiumError(f"{folder}: training ended without a result. See {log}")
    return result


@contextmanager
def _report_steps(folder: Path, steps: int, progress: OnProgress) -> Iterator[None]:
    """Report each step while the trainer writes its curve."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(POLL_INTERVAL_S):
            if rows := read_curve(folder):
                reward = rows[-1]["reward"]
                said = "no reward" if reward is None else f"reward {reward:.3f}"
                progress(rows[-1]["step"], steps, f"steps of GRPO, {said}")

    thread = threading.Thread(target=follow, name="follow-curve", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _draw_pictures(folder: Path, plan: RunPlan) -> dict[str, dg.MetadataValue[Any]]:
    """Return pictures of reward and strategies by step and of the use of workers at the end, and one correct
    workflow."""
    rows = read_curve(folder)
    use = rows[-1]["use"]
    workers = [name for name in plan.offered if name in plan.pool.names]
    shares = [(domain, *(use[domain].get(name, 0) for name in workers)) for domain in sorted(use)]
    prompting = plan.recipe.prompting
    sample = parse_workflow(
        rows[-1]["sample"], offered=len(plan.offered), max_steps=prompting.max_steps, access=prompting.access
    )
    renumbered = plan.adaptive is not None and plan.adaptive.reshuffle  # ordinals differ between questions in this case
    names = [f"Model {ordinal}" for ordinal in range(len(plan.offered))] if renumbered else plan.offered
    rewarded = [row for row in rows if row["reward"] is not None]
    curve = chart_reward([row["step"] for row in rewarded], [row["reward"] for row in rewarded])
    shown = {
        "reward_curve": metadata.embed_png("mean reward by step", render_png(curve)),
        "strategies": metadata.embed_png("strategies by step", render_png(chart_strategies(rows))),
        "worker_use": metadata.make_table(("domain", *workers), shares),
    }
    if sample.workflow is not None:
        shown["a_workflow"] = dg.MetadataValue.md(render_workflow(sample.workflow, "markdown", names))
        drawn = render_workflow(sample.workflow, "svg", names)
        shown["a_workflow_drawn"] = metadata.embed_svg("a workflow that was right", drawn)
    return shown
