"""Trainers that have imported everything before they begin: forked from one process, where Dagster starts a program."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PRELOADED = [
    "dagster_pipes", "datasets", "litellm", "mlflow", "openai.resources", "ops.training.grpo.__main__",
    "ops.training.grpo.trainer", "ops.synthetic.plugin",
]  # fmt: skip
WAIT_S = 600.0


class ForkedTrainer:
    """What `assets.conductor` uses of `subprocess.Popen`, for `sh -c 'exec "$@" >>"$0" 2>&1' LOG TRAINER…`."""

    def __init__(self, command: Sequence[str], cwd: str, env: Mapping[str, str], **_: object) -> None:
        *_shell, log, python, _m, module, run, folder = command
        assert (python, module, run) == (sys.executable, "ops.training.grpo", "--run"), command
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self._process = context.Process(target=_train, args=(cwd, dict(env), log, folder))
        self._process.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    poll = returncode.fget

    def send_signal(self, number: signal.Signals) -> None:
        assert self.pid is not None
        os.kill(self.pid, number)

    def wait(self, timeout: float = WAIT_S) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("trainer", timeout)
        return self.returncode


def _train(folder: str, environment: Mapping[str, str], log: str, run: str) -> None:
    """Do what the program does, in its folder and environment, with everything printed in its log."""
    with Path(log).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    from ops.training.grpo.__main__ import main

    sys.argv = ["ops.training.grpo", "--run", run]
    sys.exit(main())
