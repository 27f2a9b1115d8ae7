"""Where steps run: in one process, in one process per step, or in pods of Kubernetes.

A deployment sets the environment variables once (docs/deployment.md). Without them everything runs on one machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import dagster as dg

from ops.core.errors import ConfigError
from ops.core.installation import install_extra_command

TEAM = "PODIUM_TEAM"
"""The environment variable which says that Dagster has a daemon, a queue and one storage for several machines."""
EXECUTOR = "PODIUM_EXECUTOR"
"""The environment variable that decides how the steps of a run are executed: in_process (default), multiprocess, or
kubernetes (one pod per step)."""
GPU_NODES = "PODIUM_GPU_NODES"
"""The environment variable with the label, KEY=VALUE, of the Kubernetes nodes with GPUs; by default any node with a GPU
is used."""
GPUS = "PODIUM_GPUS"
"""The environment variable with the number of GPUs of a step that trains or generates workflows on Kubernetes (default
1); 0 for policies that need none."""
GPU_IMAGE = "PODIUM_GPU_IMAGE"
"""The environment variable with the image of such a step on Kubernetes, the target gpu of the Dockerfile; by default it
is the image of all other steps."""
GPU = "gpu"
"""Dagster's pool of the steps that need a GPU: a team's instance limits how many of them run at once."""


def one_process() -> bool:
    """Return whether a run is a single process on one machine, so that a lock shows whether it has died."""
    return not os.environ.get(TEAM) and os.environ.get(EXECUTOR, "in_process") == "in_process"


_PRELOADED = ("pipelines.definitions", "dagster_postgres", "great_expectations", "litellm", "mlflow", "torch")
"""Modules that take seconds to import and that many steps need; one that is not installed is skipped."""


def _fork(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"start_method": {"forkserver": {"preload_modules": list(_PRELOADED)}}, **config}


forking = dg.multiprocess_executor.configured(
    _fork, name="multiprocess", config_schema=dg.multiprocess_executor.config_schema
)
"""One process per step, forked from one that has imported what steps need. Dagster's default starts a Python for each
step, which imports it again: four seconds or more, for steps that often take less."""


def executor() -> dg.ExecutorDefinition:
    """Return the executor of the steps. Raises `ConfigError`."""
    named = os.environ.get(EXECUTOR) or "in_process"
    if named == "kubernetes":
        try:
            from dagster_k8s import k8s_job_executor
        except ModuleNotFoundError:
            problem, remedy = "needs dagster-k8s, which is not installed", f"Run {install_extra_command('team')}"
            raise ConfigError(EXECUTOR, named, problem, remedy) from None
        made: dg.ExecutorDefinition = k8s_job_executor
        return made
    known = {"in_process": dg.in_process_executor, "multiprocess": forking}
    if named not in known:
        raise ConfigError(EXECUTOR, "", f"is {named!r}", f"Use one of {', '.join([*known, 'kubernetes'])}")
    return known[named]


def gpu_pod() -> dict[str, Any]:
    """Return the tags of a step that needs a GPU: on Kubernetes the nodes, resources and image of its pod, otherwise
    none.

    Raises `ConfigError`.
    """
    if os.environ.get(EXECUTOR) != "kubernetes":
        return {}
    count = os.environ.get(GPUS) or "1"
    if not count.isdigit():
        raise ConfigError(GPUS, "", f"is {count!r}", "Write a number of GPUs")
    pod: dict[str, Any] = {}
    if int(count):
        pod["container_config"] = {"resources": {"limits": {"nvidia.com/gpu": count}}}
        if image := os.environ.get(GPU_IMAGE):
            pod["container_config"]["image"] = image
        pod["pod_spec_config"] = {
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        }
        if nodes := os.environ.get(GPU_NODES):
            label, _, value = nodes.partition("=")
            pod["pod_spec_config"]["node_selector"] = {label: value}
    return {"dagster-k8s/config": pod}


on_gpu = gpu_pod()
"""Tags of assets that train or generate workflows."""
