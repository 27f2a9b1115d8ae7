"""Trainers that have imported everything before they begin, where Dagster starts a program."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from tests import preloaded


class ForkedTrainer:
    """What `assets.conductor` uses of `subprocess.Popen`, for `sh -c 'exec "$@" >>"$0" 2>&1' LOG TRAINER…`."""

    def __init__(self, command: Sequence[str], cwd: str, env: Mapping[str, str], **_: object) -> None:
        *_shell, log, python, _m, module, run, folder = command
        assert (python, module, run) == (sys.executable, "ops.training.grpo", "--run"), command
        process, connection = preloaded.call(_train, cwd, dict(env), log, folder)
        connection.close()
        self.pid, self.poll, self.send_signal, self.wait = process.pid, process.poll, process.send_signal, process.wait

    @property
    def returncode(self) -> int | None:
        return self.poll()


def _train(folder: str, environment: Mapping[str, str], log: str, run: str, connection: Connection) -> None:
    """Do what the program does, in its folder and environment, with everything printed in its log."""
    connection.close()
    with Path(log).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    from ops.training.grpo.__main__ import main

    sys.argv = ["ops.training.grpo", "--run", run]
    sys.exit(main())
