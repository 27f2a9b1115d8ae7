"""After a request to stop, a training finishes its step and writes a
checkpoint; a continued run has the same result.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ops.training.grpo.trainer import run
from ops.training.run.checkpoints import last_checkpoint
from ops.training.run.plan import read_curve
from ops.training.run.stop_request import Stopped, StopRequest
from tests.unit.training.tiny import tiny_plan

STEPS = 4
LAUNCHER = (
    "import accelerate.commands.launch as launch, ops.training.run.processes as launcher, subprocess, sys, time;"
    "launch.main = lambda: print(subprocess.Popen([sys.executable, '-c', sys.argv[1]]).wait(), flush=True);"
    "launcher.main()"
)
RANK = (
    "import os, signal, time;"
    "heard = [];"
    # Not `print`, because the next signal's own `print` must not interrupt it.
    "signal.signal(signal.SIGTERM, lambda *_: (heard.append(1), os.write(1, b'heard\\n')));"
    "print('listening', flush=True);"
    "deadline = time.monotonic() + 60;\n"
    "while len(heard) < 2 and time.monotonic() < deadline: time.sleep(0.05)\n"
    "sys = __import__('sys'); sys.exit(len(heard))"
)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path: Path, number: signal.Signals) -> None:
    weights, rewards = [], []
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
        plan, folder = tiny_plan(
            tmp_path / name, steps=STEPS, checkpoint_every=STEPS, learning_rate=1e-3, temperature=1.5
        )
        if name == "stopped":
            before = signal.getsignal(number)
            with pytest.raises(Stopped, match=rf"stopped by {number.name} after step 2 of {STEPS}.*goes on from there"):
                run(plan, folder, lambda step, *_: [os.kill(os.getpid(), number) for _ in range(2) if step == 1])
            assert signal.getsignal(number) is before
            checkpoint = last_checkpoint(folder / "checkpoints")
            assert checkpoint is not None and checkpoint.name == "checkpoint-2"
            assert not (folder / "policy").exists()
        assert run(plan, folder, lambda *_: None) is not None
        weights.append(load_file(folder / "policy" / "model.safetensors"))
        rewards.append([row["reward"] for row in read_curve(folder)])
    assert rewards[0] == rewards[1] and len(rewards[0]) == STEPS
    assert all(torch.equal(values, weights[1][name]) for name, values in weights[0].items())


@pytest.mark.slow
def test_asked_in_its_last_step_a_run_finishes(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path)
    result = run(plan, folder, lambda step, *_: os.kill(os.getpid(), signal.SIGTERM) if step == 1 else None)
    assert result is not None and result.steps == 2


def test_a_pause_for_workers_ends_at_once() -> None:
    request = StopRequest()
    with request.heard(), pytest.raises(Stopped, match="while workers were away"):
        os.kill(os.getpid(), signal.SIGTERM)
        asyncio.run(request.sleep(3600))


@pytest.mark.long
def test_a_launcher_passes_each_request_on_and_ends_with_its_ranks() -> None:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, RANK], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    try:
        assert launcher.stdout.readline() == "listening\n"
        for _ in range(2):
            launcher.send_signal(signal.SIGTERM)
            assert launcher.stdout.readline() == "heard\n"
        assert launcher.stdout.readline() == "2\n"
        assert launcher.wait(timeout=60) == 0
    finally:
        launcher.kill()
        launcher.wait(240)
        launcher.stdout.close()
