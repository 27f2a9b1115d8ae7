"""The command-line program that trains a run: `python -m ops.training.grpo --run FOLDER`."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

from dagster_pipes import open_dagster_pipes

from ops.core.errors import ConfigError, PodiumError
from ops.training.cold_start.validation import check_cold_start
from ops.training.run.checkpoints import find_intact_checkpoint, report_full_disk
from ops.training.run.failure_reasons import ERROR_PREFIX
from ops.training.run.processes import STOP_SIGNALS, silence_libraries, watch_parents
from ops.training.run.training_run import PLAN_FILE, RunPlan, RunResult, build_training_command

EXIT_ERROR = 1
"""The exit status after a known error."""


def main() -> int:
    """Train the run in the folder of the option `--run`, or continue it, and return the exit status.

    The status is 0 on success and for a run that has finished before. It is 1 after one line on stderr for a known
    error.
    """
    what = "Train a Conductor by GRPO as the plan in a run's folder says."
    parser = argparse.ArgumentParser("python -m ops.training.grpo", description=what)
    parser.add_argument("--run", type=Path, required=True, help="folder that holds run.json")
    arguments = parser.parse_args()
    for number in STOP_SIGNALS:  # a shell lets background processes ignore SIGINT
        signal.signal(number, signal.SIG_DFL)
    watch_parents()
    # Dagster reads messages from one process, so only the first rank reports.
    first = os.environ.get("RANK", "0") == "0"
    with open_dagster_pipes() if first else nullcontext() as pipes:
        try:
            folder = arguments.run.resolve()
            with report_full_disk(folder):
                result = train_run(folder)
                if result is not None and pipes is not None:
                    pipes.report_asset_materialization(metadata=result.model_dump())
                    print_result(result, folder)
        except PodiumError as error:
            print(f"{ERROR_PREFIX}{error}", file=sys.stderr)
            return EXIT_ERROR
    return 0


def print_result(result: RunResult, folder: Path) -> None:
    """Print a run's result in one line, and a second line if the run ended early."""
    print(
        f"reward {result.reward_before:.3f} → {result.reward_after:.3f} over {result.steps} steps,"
        f" {result.rollouts_usd:.4f} USD without the cache; policy in {folder / 'policy'}"
    )
    if result.stopped:
        print(result.stopped)


def train_run(folder: Path) -> RunResult | None:
    """Train the run in a folder and return its result, or None on ranks other than the first.

    Raises subclasses of `PodiumError`.
    """
    plan = RunPlan.read(folder)
    if (done := RunResult.read(folder)) is not None:
        print(f"{folder.name} has finished already: {done.steps} steps")
        return done
    if plan.recipe.grpo.deepspeed is not None and os.environ.get("ACCELERATE_USE_DEEPSPEED") != "true":
        remedy = "Start it with: " + shlex.join(build_training_command(plan, folder))
        raise ConfigError(folder / PLAN_FILE, "recipe.grpo.deepspeed", "needs its launcher", remedy)
    check_cold_start(plan.base_policy, plan.recipe.cold_start)
    if plan.recipe.grpo.deepspeed is None:  # with DeepSpeed this was done before the ranks started
        find_intact_checkpoint(folder)
    silence_libraries()
    from ops.training.grpo.trainer import run_training

    return run_training(plan, folder, lambda step, steps, note: print(f"step {step}/{steps} {note}", flush=True))


if __name__ == "__main__":
    sys.exit(main())
