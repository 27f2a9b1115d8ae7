"""Detect the GPUs, memory, disk, sandbox and libraries of this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.grading import find_available_isolation
from ops.planning.memory import GIB

USABLE_GIB_PER_GB = 0.99
"""GiB that a program can use per advertised GB of GPU memory: an H100 of 80 GB has 79.2, an H200 of 141 GB has
139.6."""
MAX_GPUS, MAX_GB = 4096, 2000
"""The largest number of GPUs, and of GB of memory on each, for which a run can be planned."""
PACKAGES = ("deepspeed", "vllm")
"""The optional packages whose presence is checked."""
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")


class Gpu(NamedTuple):
    """A GPU's name, and the memory (GiB) that a program can use on it."""

    name: str
    """The name that nvidia-smi gives."""
    gib: float
    """The memory in GiB that a program can use."""


@dataclass(frozen=True)
class Machine:
    """The resources of a machine that a run can use."""

    gpus: tuple[Gpu, ...]
    """The GPUs that are visible to a program."""
    memory_gib: float
    """Host memory in GiB."""
    disk_gib: float
    """Free space in GiB on the file system that holds `.podium`."""
    has_bubblewrap: bool
    """True if the sandbox program bubblewrap can be used."""
    packages: frozenset[str] = frozenset()
    """The packages of `PACKAGES` that this Python can import."""
    cores: int = 1
    """The number of CPUs that this process may use."""
    is_hypothetical: bool = False
    """True if the option `--gpus` replaced this machine's GPUs by hypothetical ones."""

    @property
    def gpu_gib(self) -> float | None:
        """Return the memory of the smallest GPU in GiB, or None if there are no GPUs."""
        return min((gpu.gib for gpu in self.gpus), default=None)

    def __str__(self) -> str:
        names = sorted({f"{gpu.name}, {gpu.gib:.1f} GiB" for gpu in self.gpus})
        gpus = f"{len(self.gpus)} × {' / '.join(names)}" if self.gpus else "no GPU"
        whose = " (as asked; the rest is this machine's)" if self.is_hypothetical else ""
        wall = "bubblewrap works" if self.has_bubblewrap else "bubblewrap does not work"
        installed = ", ".join(sorted(self.packages)) or "neither deepspeed nor vllm"
        return (
            f"{gpus}{whose}; {self.memory_gib:,.0f} GiB of memory, {self.disk_gib:,.0f} GiB of disk free; "
            f"{wall}; {installed} installed"
        )


def detect_machine(workspace: Workspace, gpus: str | None = None) -> Machine:
    """Detect this machine, where `gpus` (such as "2x80") replaces its GPUs if it is given.

    Raises `PodiumError` if `gpus` cannot be parsed.
    """
    return Machine(
        gpus=_detect_gpus() if gpus is None else parse_gpus(gpus),
        memory_gib=_detect_memory_gib(),
        disk_gib=shutil.disk_usage(_nearest_existing(workspace.state)).free / GIB,
        has_bubblewrap=find_available_isolation() == "bubblewrap",
        packages=frozenset(name for name in PACKAGES if importlib.util.find_spec(name) is not None),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        is_hypothetical=gpus is not None,
    )


def parse_gpus(text: str) -> tuple[Gpu, ...]:
    """Parse a description of GPUs: "2x80" means two GPUs of 80 GB, and "0" means no GPU.

    Raises `PodiumError` for any other text.
    """
    if text == "0":
        return ()
    match = re.fullmatch(r"([0-9]{1,5})\s*[x×]\s*([0-9]{1,5})(?:\s*GB)?", text.strip(), re.IGNORECASE)
    if match is None or not 1 <= int(match[1]) <= MAX_GPUS or not 1 <= int(match[2]) <= MAX_GB:
        problem = f"is not a number of GPUs (1 to {MAX_GPUS:,}) and the memory of each in GB (1 to {MAX_GB:,})"
        raise PodiumError(f"--gpus {text:.40}: {problem}. Write 2x80, 1x141 or 0")
    return (Gpu(f"GPU of {match[2]} GB", int(match[2]) * USABLE_GIB_PER_GB),) * int(match[1])


def _detect_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that are visible to a program started here. nvidia-smi lists them, because importing torch takes
    seconds."""
    try:
        printed = subprocess.run(_QUERY, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [[cell.strip() for cell in line.split(",")] for line in printed.splitlines() if line.strip()]
    found = [(row[0], row[1], Gpu(row[2], float(row[3]) / 1024)) for row in rows if len(row) == 4 and row[3].isdigit()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(gpu for _, _, gpu in found)
    wanted = [name.strip() for name in visible.split(",") if name.strip()]
    return tuple(gpu for name in wanted for index, uuid, gpu in found if name in (index, uuid))


def _detect_memory_gib() -> float:
    """Return the memory of the machine in GiB, or the container's limit if that is lower."""
    total = int(psutil.virtual_memory().total)
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the file does not exist or contains "max"
        limit = total
    return min(total, limit) / GIB


def _nearest_existing(folder: Path) -> Path:
    """Return the folder itself, or its nearest ancestor that exists."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())
