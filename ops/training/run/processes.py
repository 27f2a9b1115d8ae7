"""The processes of a training: its machines and ranks, their launcher, their end with their parent, quiet libraries.

A run's folder is on a volume that all machines share. Each machine starts accelerate's launcher for its own share of
`grpo.processes` ranks: the asset starts the first machine's, and `podium train --run FOLDER` those of the others.
A deployment sets environment variables with this machine's rank.

torch's elastic launcher, which accelerate uses, gives ranks 30 s after a signal and ends at a second one, which Ctrl-C
at a terminal sends. A rank must be allowed to finish its step, so `main` starts the launcher and passes requests to
stop on.

Dagster ends a cancelled child, but a killed Dagster ends nothing, and a launcher's ranks may lose their parent.
Therefore the process that starts a training writes its name into the environment, and every process of the training
watches it; a rank watches its launcher too. This module does not import torch.
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
"""The number of machines that train together; this machine's number, where 0 writes the results; HOST:PORT of number 0.
"""


class TrainingNode(NamedTuple):
    """One of `nodes` machines that train together."""

    nodes: int = 1
    rank: int = 0
    host: str = ""
    port: int = 0

    def launcher_arguments(self, processes: int) -> list[str]:
        """Return the arguments of accelerate's launcher. Raises
        `ConfigError` unless each machine has equally many ranks.
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
    """Read the environment variables. Raises `ConfigError`."""
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
"""Signals that request a stop, any number of times."""


def forward_signal(number: int, *_: Any) -> None:
    """Send a signal to this process's children, which are the ranks."""
    for rank in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            rank.send_signal(number)


def main() -> None:
    """Run `python -m ops.training.run.processes` with the arguments of `accelerate launch`; end with the ranks."""
    os.environ["PET_SIGNALS_TO_HANDLE"] = "SIGHUP,SIGQUIT"  # this process handles the other arguments
    for number in STOP_SIGNALS:
        signal.signal(number, forward_signal)
    from accelerate.commands.launch import main as launch

    launch()


PARENT_VARIABLE = "PODIUM_PARENT"
"""The environment variable with the name of the process that started the training."""
_POLL_S = 0.5
_EXIT_STATUS = 143
"""The exit status after SIGTERM."""


def list_watched_processes() -> list[str]:
    """Return the processes whose end also ends this one: the starting process, and a rank's own launcher.

    A killed launcher (for example by a lack of memory, which its ranks use) does not end its ranks. A trainer that was
    started by hand has no launcher and may outlive its shell.
    """
    launcher = unique_process_name(os.getppid()) if "LOCAL_RANK" in os.environ else ""
    return [name for name in (os.environ.get(PARENT_VARIABLE, ""), launcher) if name]


def watch_parents() -> None:
    """End this process, at once and without clean-up, when a process of `list_watched_processes` has ended.

    Checkpoints are written atomically, so only the steps since the last one are lost. Does nothing if no process is to
    be watched.
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
    """Turn off telemetry, progress bars and advice on stderr, where no variable is set.

    Call it before torch or transformers is imported.
    """
    for name, value in _QUIET_VARIABLES.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*deprecated", category=FutureWarning)
    for noisy in ("transformers", "trl", "LiteLLM", "alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


if __name__ == "__main__":
    main()
