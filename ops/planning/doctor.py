"""Check what this machine provides of what Podium needs: Python, disk, sandbox, keys, GPUs and engines."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Literal, NamedTuple

from ops.config import load_pool
from ops.config.base import key_problem
from ops.core.errors import ConfigError
from ops.core.installation import install_extra_command, pip_install_command
from ops.core.workspace import Workspace
from ops.grading.isolation import choose_isolation
from ops.planning.machine import Machine, detect_machine

MIN_PYTHON, FIRST_UNSUPPORTED_PYTHON = (3, 11, 5), (3, 13)
"""The range of CPython versions that the package supports, from the first version up to but not including the second
(`pyproject.toml`)."""
MIN_FREE_GIB = 5.0
"""The free disk space (GiB) that a small recipe needs for responses, a policy, its checkpoints and MLflow's store."""


class Diagnosis(NamedTuple):
    """The result of one check of this machine."""

    what: str
    """What was checked."""
    state: Literal["ok", "optional", "missing"]
    """The result of the check. With "missing" no recipe can run, and with "optional" only some recipes cannot."""
    said: str
    """What the check found, in words."""
    remedy: str = ""
    """What the user can do about it; empty if nothing is to be done."""


def diagnose_machine(workspace: Workspace) -> list[Diagnosis]:
    """Return the results of all checks, which need no network and make no calls. Raises `ConfigError` for an unreadable
    pool."""
    machine = detect_machine(workspace)
    return [
        _check_python(), _check_git(), _check_disk(workspace, machine), _check_sandbox(), *_check_keys(workspace),
        _check_gpus(machine), *_check_engines(machine),
    ]  # fmt: skip


def _check_python() -> Diagnosis:
    version = ".".join(map(str, sys.version_info[:3]))
    if MIN_PYTHON <= sys.version_info < FIRST_UNSUPPORTED_PYTHON:
        return Diagnosis("Python", "ok", version)
    return Diagnosis("Python", "missing", f"is {version}", "Make the environment with CPython 3.11, 3.11.5 or later")


def _check_git() -> Diagnosis:
    if shutil.which("git"):
        return Diagnosis("git", "ok", "found")
    return Diagnosis("git", "missing", "is not on the PATH", "Install it, because every run records its commit")


def _check_disk(workspace: Workspace, machine: Machine) -> Diagnosis:
    folder = next(each for each in (workspace.state, *workspace.state.parents) if each.exists())
    if not os.access(folder, os.W_OK):
        return Diagnosis("disk", "missing", f"{folder} cannot be written", "Change its owner or permissions")
    free = f"{machine.disk_gib:,.0f} GiB free"
    if machine.disk_gib >= MIN_FREE_GIB:
        return Diagnosis("disk", "ok", free)
    return Diagnosis("disk", "missing", free, f"Free {MIN_FREE_GIB:g} GiB, or let .podium be a link to a larger disk")


def _check_sandbox() -> Diagnosis:
    try:
        choose_isolation()
    except ConfigError as error:
        remedy = error.remedy.partition(", or accept")[0]
        return Diagnosis("sandbox", "optional", "bubblewrap does not work: no programming benchmark", remedy)
    return Diagnosis("sandbox", "ok", "bubblewrap works")


def _check_keys(workspace: Workspace) -> Iterator[Diagnosis]:
    """Yield the result for each environment variable that a pool names for a key."""
    pools: dict[str, list[str]] = {}
    for file in sorted((workspace.config / "pools").glob("*.yaml")):
        for worker in load_pool(workspace.config, file.stem).workers:
            if worker.api_key_env and file.stem not in pools.setdefault(worker.api_key_env, []):
                pools[worker.api_key_env].append(file.stem)
    for variable, names in sorted(pools.items()):
        used = f"needed by the pool{'s' * (len(names) > 1)} {', '.join(names)}"
        problem = key_problem(variable)
        if problem is None:
            yield Diagnosis(variable, "ok", f"is set; {used}. `podium pools ping {names[0]}` tests it")
        else:
            yield Diagnosis(variable, "optional", f"{problem}; {used}", "Write it into .env or the environment")


def _check_gpus(machine: Machine) -> Diagnosis:
    if machine.gpus:
        return Diagnosis("GPUs", "ok", ", ".join(f"{gpu.name} ({gpu.gib:.0f} GiB)" for gpu in machine.gpus))
    remedy = "The quickstart and prompted and static policies need none. `podium plan RECIPE` says what a recipe needs"
    return Diagnosis("GPUs", "optional", "nvidia-smi finds none", remedy)


def _check_engines(machine: Machine) -> Iterator[Diagnosis]:
    remedies = {
        "vllm": f"Install it on the machine with the GPUs: {install_extra_command('gpu')}",
        "deepspeed": f"Run {pip_install_command('deepspeed')}",
    }
    for name, remedy in remedies.items():
        if name in machine.packages:
            yield Diagnosis(name, "ok", "installed")
        else:
            yield Diagnosis(name, "optional", "is not installed", remedy)
