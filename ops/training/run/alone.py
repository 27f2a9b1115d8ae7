"""Run a training without an orchestrator: start the trainer as a child process and wait for it."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import call

from ops.core.errors import PodiumError
from ops.training.run.ending import why
from ops.training.run.plan import LOG, RunPlan, RunResult, command, environment


def train(folder: Path) -> RunResult:
    """Train the run in `folder` to its end, unless it has ended. Raises
    `PodiumError` with the reason if training ends without a result.
    """
    if (result := RunResult.read(folder)) is not None:
        return result
    plan, log = RunPlan.read(folder), folder / LOG
    began = log.stat().st_size if log.is_file() else 0
    variables = os.environ | environment(plan, folder)
    with log.open("ab") as output:
        status = call(command(plan, folder), cwd=plan.root, env=variables, stdout=output, stderr=output)
    if status:
        raise PodiumError(why(status, log, began, plan.recipe.grpo))
    if (result := RunResult.read(folder)) is None:
        raise PodiumError(f"{folder}: training ended without a result. See {log}")
    return result
