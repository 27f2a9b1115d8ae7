"""Four `kill -9` at steps drawn by seed: a training always continues to the result of an uninterrupted run.

One process, and two ranks under DeepSpeed: a rank is killed, then their launcher, then all of them, then a rank.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psutil
import pytest
import torch
from safetensors.torch import load_file

from ops.core.workspace import Workspace
from ops.spending.ledger import Ledger
from ops.store.responses import ResponseCache
from ops.training.run.checkpoints import CHECKPOINTS, checkpoint_step, find_last_checkpoint
from ops.training.run.training_run import RunPlan, build_training_command, prepare_environment, read_curve
from tests.trainer_processes import ForkedTrainer
from tests.unit.training.tiny import ROOT, tiny_plan

pytestmark = [
    pytest.mark.soak,  # `make test` cuts runs between steps (tests/unit/training) and kills a command's trainer once
    pytest.mark.timeout(3000),
]
RANKS: dict[str, Any] = {"deepspeed": "zero3.json", "processes": 2, "micro_batch": 2}
KILLS, STEPS, EVERY = 4, 19, 3
LATEST = STEPS - 8
"""The last step for a kill; after a later one the run might be finished."""
MOMENT_S = 0.2
"""Seconds after the step's line within which a kill comes: in the next step, or in a checkpoint."""


class Killed(NamedTuple):
    """An uninterrupted run and a killed one, with its kills' exit statuses, checkpoints and remaining processes."""

    whole: tuple[RunPlan, Path]
    killed: tuple[RunPlan, Path]
    statuses: list[int]
    checkpoints: list[int]
    orphans: list[psutil.Process]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({}, id="one process"),
        pytest.param(
            RANKS,
            id="two ranks",
            marks=pytest.mark.skipif(shutil.which("c++") is None, reason="DeepSpeed compiles an operation: no c++"),
        ),
    ],
)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    settings = {"steps": STEPS, "checkpoint_every": EVERY, "learning_rate": 1e-3, "temperature": 1.5, **request.param}
    whole, killed = (tiny_plan(tmp_path_factory.mktemp(name), **settings) for name in ("whole", "killed"))
    assert started(*whole).wait(2400) == 0
    random, made = Random(12), Killed(whole, killed, [], [], [])
    for kill, step in enumerate(sorted(random.sample(range(1, LATEST), KILLS))):
        trainer = started(*killed)
        while len(read_curve(killed[1])) < step and trainer.poll() is None:
            time.sleep(0.01)
        time.sleep(random.uniform(0, MOMENT_S))
        launcher = psutil.Process(trainer.pid)
        family = launcher.children(recursive=True)
        for process in struck(launcher, family, kill):
            process.kill()
        made.statuses.append(trainer.wait(2400))
        made.orphans.extend(psutil.wait_procs(family, timeout=60)[1])
        checkpoint = find_last_checkpoint(killed[1] / CHECKPOINTS)
        made.checkpoints.append(checkpoint_step(checkpoint) if checkpoint else 0)
    assert started(*killed).wait(2400) == 0
    return made


def struck(launcher: psutil.Process, family: Sequence[psutil.Process], kill: int) -> list[psutil.Process]:
    """Return the processes of this kill: a rank, the launcher, all; or the only process."""
    ranks = [process for process in family if "ops.training.grpo" in process.cmdline()]
    if not ranks:
        return [launcher]
    return [[ranks[kill % len(ranks)]], [launcher], [launcher, *family]][kill % 3]


def started(plan: RunPlan, folder: Path) -> subprocess.Popen[bytes] | ForkedTrainer:
    """Start the trainer: one process is forked from one with its imports, and ranks are started by their launcher."""
    variables, log = os.environ | prepare_environment(plan, folder), folder / "trainer.log"
    if plan.recipe.grpo.deepspeed is None:
        return ForkedTrainer([str(log), *build_training_command(plan, folder)], str(ROOT), variables)
    with log.open("ab") as out:
        return subprocess.Popen(build_training_command(plan, folder), cwd=ROOT, env=variables, stdout=out, stderr=out)


def fetched(plan: RunPlan) -> tuple[int, int]:
    """Return the number of responses in the cache, and of booked calls."""
    workspace = Workspace(plan.root)
    with closing(Ledger(workspace.ledger)) as ledger, closing(ResponseCache(workspace.cache)) as cache:
        return len(cache), sum(part.calls for part in ledger.by_run().values())


def test_every_kill_succeeded_and_every_attempt_continued(runs: Killed) -> None:
    assert len(runs.statuses) == KILLS and all(runs.statuses)
    assert runs.checkpoints == sorted(runs.checkpoints) and runs.checkpoints[-1] > runs.checkpoints[0]
    assert [row["step"] for row in read_curve(runs.killed[1])] == list(range(1, STEPS + 1))


def test_rewards_and_policy_equal_those_of_an_uninterrupted_run(runs: Killed) -> None:
    rewards = [[row["reward"] for row in read_curve(folder)] for _, folder in (runs.whole, runs.killed)]
    assert rewards[0] == rewards[1] and len(set(rewards[0])) > 1
    whole, killed = (load_file(folder / "policy" / "model.safetensors") for _, folder in (runs.whole, runs.killed))
    assert all(torch.equal(weights, killed[name]) for name, weights in whole.items())


def test_no_process_is_left(runs: Killed) -> None:
    assert runs.orphans == []


def test_no_response_is_fetched_twice(runs: Killed) -> None:
    responses, calls = fetched(runs.whole[0])
    assert 0 < responses == calls
    again, booked = fetched(runs.killed[0])
    assert again == responses
    assert booked <= responses, "what a kill cut off between its answer and its bill may be missing"
