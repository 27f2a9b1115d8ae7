"""The processes of a training: machines and ranks, their launcher, their end, and variables that keep libraries quiet.

A run's folder is on a volume that all machines share. Each machine starts accelerate's launcher for its own share of
`grpo.processes` ranks. The asset starts the launcher of the first machine, and `podium train --run FOLDER` that of
another machine. A deployment sets environment variables with the rank of each machine.

accelerate uses torch's elastic launcher. It ends ranks 30 s after a signal, or at once after a second signal, and
Ctrl-C at a terminal can send two. A rank must be allowed to finish its step, so `main` starts the launcher and passes
requests to stop on to the ranks.

Dagster ends the process of a cancelled run. If Dagster itself is killed, it ends nothing, and the ranks of a launcher
may lose their parent. Therefore the process that starts a training writes its name into the environment, and every
process of the training watches that process; a rank also watches its launcher. This module does not import torch.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import warnings
from contextlib import suppress
from typing import Any, NamedTuple

import psutil

from ops.core.errors import ConfigError
from ops.core.processes import unique_process_name

NODES_VARIABLE, RANK_VARIABLE, MAIN_NODE_VARIABLE = "PODIUM_NODES", "PODIUM_NODE_RANK", "PODIUM_MAIN_NODE"
"""The environment variables with the number of machines that train together, with the rank of this machine, and with
HOST:PORT of the machine of rank 0. The machine of rank 0 writes the results."""


class TrainingNode(NamedTuple):
    """One of the machines that train together."""

    nodes: int = 1
    """The number of machines that train together."""
    rank: int = 0
    """The rank of this machine among them, from 0."""
    host: str = ""
    """The host name or address of the machine of rank 0."""
    port: int = 0
    """The port at which the machine of rank 0 coordinates the others."""

    def launcher_arguments(self, processes: int) -> list[str]:
        """Return the arguments of accelerate's launcher on this machine, for `processes` ranks on all machines.

        Raises `ConfigError` if the ranks cannot be divided equally among the machines.
        """
        if self.nodes == 1:
            return ["--num_machines", "1"]
        if processes % self.nodes:
            problem = f"{processes} ranks (grpo.processes) do not divide among {self.nodes} machines"
            raise ConfigError(NODES_VARIABLE, "", problem, "Change one of them")
        return [
            "--num_machines", str(self.nodes), "--machine_rank", str(self.rank),
            "--main_process_ip", self.host, "--main_process_port", str(self.port),
            "--deepspeed_multinode_launcher", "standard",  # every machine starts its own ranks
        ]  # fmt: skip


def read_training_node() -> TrainingNode:
    """Return this machine's place among those that train together, from the environment variables.

    Raises `ConfigError` if the variables do not identify it.
    """
    count = os.environ.get(NODES_VARIABLE) or "1"
    if count == "1":
        return TrainingNode()
    rank, (host, _, port) = (
        os.environ.get(RANK_VARIABLE) or "",
        (os.environ.get(MAIN_NODE_VARIABLE) or "").rpartition(":"),
    )
    if not (count.isdigit() and rank.isdigit() and int(rank) < int(count) and host and port.isdigit()):
        remedy = (
            f"Set {NODES_VARIABLE} to their number, {RANK_VARIABLE} to 0, 1 … and {MAIN_NODE_VARIABLE} to HOST:PORT of "
            "the one with rank 0"
        )
        raise ConfigError(
            NODES_VARIABLE, "", "does not, together with the other two variables, identify this machine", remedy
        )
    return TrainingNode(int(count), int(rank), host, int(port))


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""The signals that request a stop. Each may arrive any number of times."""


def forward_signal(number: int, *_: Any) -> None:
    """Send a signal to this process's children, which are the ranks."""
    for rank in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            rank.send_signal(number)


def main() -> None:
    """Start accelerate's launcher with the arguments of this program, and pass stop signals on to its ranks.

    The program is `python -m ops.training.run.processes`. It ends when the ranks have ended.
    """
    os.environ["PET_SIGNALS_TO_HANDLE"] = "SIGHUP,SIGQUIT"  # this process handles the other signals
    for number in STOP_SIGNALS:
        signal.signal(number, forward_signal)
    from accelerate.commands.launch import main as launch

    launch()


PARENT_VARIABLE = "PODIUM_PARENT"
"""The environment variable with the name of the process that started the training."""
_POLL_S = 0.5
_EXIT_STATUS = 143
"""The usual exit status of a process that SIGTERM ended."""


def list_watched_processes() -> list[str]:
    """Return the names of the processes whose end also ends this one: the starting process, and a rank's own launcher.

    If a launcher is killed (for example because its ranks use too much memory), its ranks are not ended. A trainer that
    was started by hand has no launcher and may run longer than its shell.
    """
    launcher = unique_process_name(os.getppid()) if "LOCAL_RANK" in os.environ else ""
    return [name for name in (os.environ.get(PARENT_VARIABLE, ""), launcher) if name]


def watch_parents() -> None:
    """End this process, immediately and without clean-up, when a process of `list_watched_processes` has ended.

    Checkpoints are written atomically, so only the steps since the last checkpoint are lost. Nothing happens if no
    process is to be watched.
    """
    names = list_watched_processes()
    if not names:
        return

    def wait() -> None:
        while all(unique_process_name(int(name.partition(":")[0])) == name for name in names):
            time.sleep(_POLL_S)
        os._exit(_EXIT_STATUS)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()


_QUIET_VARIABLES = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "VLLM_NO_USAGE_STATS": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


def silence_libraries() -> None:
    """Turn off telemetry, progress bars and advice on stderr by environment variables that are not set yet.

    It must be called before torch or transformers is imported.
    """
    for name, value in _QUIET_VARIABLES.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*deprecated", category=FutureWarning)
    for noisy in ("transformers", "trl", "LiteLLM", "alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


if __name__ == "__main__":
    main()
