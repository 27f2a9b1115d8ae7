"""Training on several machines: this machine's rank, from environment variables that a deployment sets.

A run's folder is on a volume that all machines share. Each machine starts accelerate's launcher for its own share of
`grpo.processes` ranks: the asset starts the first machine's, and `podium train --run FOLDER` those of the others.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ops.core.errors import ConfigError

NODES, RANK, MAIN = "PODIUM_NODES", "PODIUM_NODE_RANK", "PODIUM_MAIN_NODE"
"""The number of machines that train together; this machine's number,
where 0 writes the results; HOST:PORT of number 0.
"""


class TrainingNode(NamedTuple):
    """One of `nodes` machines that train together."""

    nodes: int = 1
    rank: int = 0
    host: str = ""
    port: int = 0

    def arguments(self, processes: int) -> list[str]:
        """Return the arguments of accelerate's launcher. Raises
        `ConfigError` unless each machine has equally many ranks.
        """
        if self.nodes == 1:
            return ["--num_machines", "1"]
        if processes % self.nodes:
            problem = f"{processes} ranks (grpo.processes) do not divide among {self.nodes} machines"
            raise ConfigError(NODES, "", problem, "Change one of them")
        return [
            "--num_machines", str(self.nodes), "--machine_rank", str(self.rank),
            "--main_process_ip", self.host, "--main_process_port", str(self.port),
            "--deepspeed_multinode_launcher", "standard",  # every machine starts its own ranks
        ]  # fmt: skip


def this_node() -> TrainingNode:
    """Read the environment variables. Raises `ConfigError`."""
    count = os.environ.get(NODES) or "1"
    if count == "1":
        return TrainingNode()
    rank, (host, _, port) = os.environ.get(RANK) or "", (os.environ.get(MAIN) or "").rpartition(":")
    if not (count.isdigit() and rank.isdigit() and int(rank) < int(count) and host and port.isdigit()):
        remedy = f"Set {NODES} to their number, {RANK} to 0, 1 … and {MAIN} to HOST:PORT of the one with rank 0"
        raise ConfigError(NODES, "", "does not, together with the other two variables, identify this machine", remedy)
    return TrainingNode(int(count), int(rank), host, int(port))
