"""No process of a training outlives the process that started it, nor its launcher."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from ops.core.processes import name_of
from ops.training.run import processes

RANK = (
    "import time; from ops.training.run import processes;"
    "processes.watch(); print('watching', flush=True); time.sleep(600)"
)
LAUNCHER = (
    "import os, subprocess, sys;"
    f"rank = subprocess.Popen([sys.executable, '-c', {RANK!r}], env=os.environ | {{'LOCAL_RANK': '1'}});"
    "print(rank.pid, flush=True); rank.wait()"
)


@pytest.mark.parametrize("victim", ["launcher", "starting process"])
def test_a_rank_ends_with_its_launcher_and_with_the_starting_process(victim: str) -> None:
    asker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    environment = os.environ | {processes.PARENT: name_of(asker.pid)}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], env=environment, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    rank = psutil.Process(int(launcher.stdout.readline()))
    assert launcher.stdout.readline() == "watching\n"
    try:
        (launcher if victim == "launcher" else asker).kill()
        rank.wait(timeout=60)  # without the watch it would continue to sleep
    finally:
        for process in (asker, launcher):
            process.kill()
            process.wait(240)
        launcher.stdout.close()


def test_a_trainer_without_a_launcher_outlives_the_shell_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv(processes.PARENT, raising=False)
    assert processes.watched() == []
