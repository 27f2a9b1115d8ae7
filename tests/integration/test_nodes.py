"""Two machines train one run: two launchers with a rank each, which share the run's folder and nothing else.

In ZeRO-3 over gloo on CPUs, both on this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ops.training.run.processes import MAIN_NODE_VARIABLE, NODES_VARIABLE, RANK_VARIABLE
from ops.training.run.training_run import (
    EXTENSIONS_FOLDER,
    RunResult,
    build_training_command,
    prepare_environment,
    read_curve,
)
from tests.team.servers import free_port
from tests.unit.training.tiny import compiled, tiny_plan

pytestmark = [
    pytest.mark.long,  # `make test` reads the launcher's arguments (tests/unit/training/test_processes.py)
    pytest.mark.timeout(1500),
    pytest.mark.skipif(shutil.which("c++") is None, reason="DeepSpeed compiles an operation for CPU ranks: no c++"),
]


def test_two_machines_train_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, folder = tiny_plan(tmp_path, dtype="bfloat16", steps=2, deepspeed="zero3.json", processes=2, micro_batch=2)
    monkeypatch.setenv(NODES_VARIABLE, "2")
    monkeypatch.setenv(MAIN_NODE_VARIABLE, f"127.0.0.1:{free_port()}")
    machines = []
    for rank in (0, 1):
        shutil.copytree(compiled(), folder / EXTENSIONS_FOLDER / f"node-{rank}")
        monkeypatch.setenv(RANK_VARIABLE, str(rank))
        with (tmp_path / f"machine-{rank}.log").open("wb") as log:
            machines.append(subprocess.Popen(
                build_training_command(plan, folder), cwd=plan.root,
                env={**os.environ, **prepare_environment(plan, folder)},
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            ))  # fmt: skip
    ended = [machine.wait(1200) for machine in machines]
    said = "\n".join((tmp_path / f"machine-{rank}.log").read_text(errors="replace")[-3000:] for rank in (0, 1))
    assert ended == [0, 0], said
    result = RunResult.read(folder)
    assert result is not None and result.steps == 2 == len(read_curve(folder))
    rollouts = plan.recipe.grpo.rollouts_per_step
    assert result.rollouts == 2 * rollouts
    assert (folder / "policy" / "model.safetensors").is_file()
