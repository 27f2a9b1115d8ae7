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

TEAM_VARIABLE = "PODIUM_TEAM"
"""The environment variable which says that Dagster has a daemon, a queue and one storage for several machines."""
EXECUTOR_VARIABLE = "PODIUM_EXECUTOR"
"""The environment variable that decides how the steps of a run are executed: in_process (default), multiprocess, or
kubernetes (one pod per step)."""
GPU_NODES_VARIABLE = "PODIUM_GPU_NODES"
"""The environment variable with the label, KEY=VALUE, of the Kubernetes nodes with GPUs; by default any node with a GPU
is used."""
GPUS_VARIABLE = "PODIUM_GPUS"
"""The environment variable with the number of GPUs of a step that trains or generates workflows on Kubernetes (default
1); 0 for policies that need none."""
GPU_IMAGE_VARIABLE = "PODIUM_GPU_IMAGE"
"""The environment variable with the image of such a step on Kubernetes, the target gpu of the Dockerfile; by default it
is the image of all other steps."""
GPU_POOL = "gpu"
"""Dagster's pool of the steps that need a GPU: a team's instance limits how many of them run at once."""


def is_single_process() -> bool:
    """Return whether a run is a single process on one machine, so that a lock shows whether it has died."""
    return not os.environ.get(TEAM_VARIABLE) and os.environ.get(EXECUTOR_VARIABLE, "in_process") == "in_process"


_PRELOADED = ("pipelines.definitions", "dagster_postgres", "great_expectations", "litellm", "mlflow", "torch")
"""Modules that take seconds to import and that many steps need; one that is not installed is skipped."""


def _configure_fork(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"start_method": {"forkserver": {"preload_modules": list(_PRELOADED)}}, **config}


forking_executor = dg.multiprocess_executor.configured(
    _configure_fork, name="multiprocess", config_schema=dg.multiprocess_executor.config_schema
)
"""One process per step, forked from one that has imported what steps need. Dagster's default starts a Python for each
step, which imports it again: four seconds or more, for steps that often take less."""


def make_executor() -> dg.ExecutorDefinition:
    """Return the executor of the steps. Raises `ConfigError`."""
    named = os.environ.get(EXECUTOR_VARIABLE) or "in_process"
    if named == "kubernetes":
        try:
            from dagster_k8s import k8s_job_executor
        except ModuleNotFoundError:
            problem, remedy = "needs dagster-k8s, which is not installed", f"Run {install_extra_command('team')}"
            raise ConfigError(EXECUTOR_VARIABLE, named, problem, remedy) from None
        made: dg.ExecutorDefinition = k8s_job_executor
        return made
    known = {"in_process": dg.in_process_executor, "multiprocess": forking_executor}
    if named not in known:
        raise ConfigError(EXECUTOR_VARIABLE, "", f"is {named!r}", f"Use one of {', '.join([*known, 'kubernetes'])}")
    return known[named]


def make_gpu_tags() -> dict[str, Any]:
    """Return the tags of a step that needs a GPU: on Kubernetes the nodes, resources and image of its pod, otherwise
    none.

    Raises `ConfigError`.
    """
    if os.environ.get(EXECUTOR_VARIABLE) != "kubernetes":
        return {}
    count = os.environ.get(GPUS_VARIABLE) or "1"
    if not count.isdigit():
        raise ConfigError(GPUS_VARIABLE, "", f"is {count!r}", "Write a number of GPUs")
    pod: dict[str, Any] = {}
    if int(count):
        pod["container_config"] = {"resources": {"limits": {"nvidia.com/gpu": count}}}
        if image := os.environ.get(GPU_IMAGE_VARIABLE):
            pod["container_config"]["image"] = image
        pod["pod_spec_config"] = {
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        }
        if nodes := os.environ.get(GPU_NODES_VARIABLE):
            label, _, value = nodes.partition("=")
            pod["pod_spec_config"]["node_selector"] = {label: value}
    return {"dagster-k8s/config": pod}


gpu_tags = make_gpu_tags()
"""Tags of assets that train or generate workflows."""
