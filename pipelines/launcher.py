"""Launch runs on several machines: each on the one with the fewest runs; lost machines are detected.

Dagster's own launcher starts every run on the one code server that its code location names. This one starts it on one
of several servers of the same code (`dagster api grpc`, one a machine), and lets Dagster's run monitoring ask that
server whether a run is alive: a run whose machine does not answer is marked failed, and a retry goes to another. On
Kubernetes Dagster's `K8sRunLauncher` does both, with a pod for each run.
"""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from dagster import DagsterRun, DagsterRunStatus, IntSource, RunsFilter

from assets.dagster_private import (
    GRPC_INFO_TAG,
    CanCancelExecutionRequest,
    CanCancelExecutionResult,
    CheckRunHealthResult,
    ConfigurableClassData,
    DagsterGrpcClient,
    DagsterUserCodeUnreachableError,
    DefaultRunLauncher,
    LaunchRunContext,
    WorkerStatus,
    deserialize_value,
)
from ops.core.errors import ConfigError

WORKERS = "PODIUM_RUN_WORKERS"
"""The environment variable that names the code servers: ``HOST:PORT,HOST:PORT``. A host of several addresses (a
service with replicas) is as many servers."""
UNHEARD = "podium/unheard"
"""Run tag: how often in a row the run's machine has not answered."""
_TIMEOUT_S = 5
_BUSY = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]


class Address(NamedTuple):
    """Where a code server listens."""

    host: str
    port: int


class FleetRunLauncher(DefaultRunLauncher):
    """Starts runs on the servers that PODIUM_RUN_WORKERS names; `missed_checks` silences in a row are a death."""

    def __init__(self, missed_checks: int = 3, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._missed_checks = missed_checks

    @classmethod
    def config_type(cls) -> Any:
        """The schema of `run_launcher.config` in dagster.yaml."""
        from dagster import Field

        return {"missed_checks": Field(IntSource, is_required=False, default_value=3)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> Self:
        """As Dagster makes it."""
        return cls(inst_data=inst_data, **config_value)

    def launch_run(self, context: LaunchRunContext) -> None:
        """Start it on the least busy server that answers. Raises `DagsterUserCodeUnreachableError` without one: the
        queue tries again later."""
        run, load = context.dagster_run, self._load()
        servers = sorted(addresses(), key=lambda server: load[server])
        for server in servers:
            client = DagsterGrpcClient(host=server.host, port=server.port)
            try:
                client.ping("")
            except DagsterUserCodeUnreachableError:
                continue
            self._instance.add_run_tags(run.run_id, {UNHEARD: "0"})  # a retry has its run's tags
            DefaultRunLauncher.launch_run_from_grpc_client(self._instance, run, client)
            self._run_ids.add(run.run_id)
            return
        named = ", ".join(f"{host}:{port}" for host, port in servers)
        raise DagsterUserCodeUnreachableError(f"none of the run workers in {WORKERS} answers ({named})")

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Dagster's run monitoring asks."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the server that the run was started on still executes it."""
        place = _place(run)
        if place is None:
            return CheckRunHealthResult(WorkerStatus.UNKNOWN, "the run does not say where it was started")
        try:
            answer = deserialize_value(
                DagsterGrpcClient(host=place.host, port=place.port).can_cancel_execution(
                    CanCancelExecutionRequest(run_id=run.run_id), timeout=_TIMEOUT_S
                ),
                CanCancelExecutionResult,
            )
        except DagsterUserCodeUnreachableError:
            return self._unheard(run, place)
        if run.tags.get(UNHEARD, "0") != "0":
            self._instance.add_run_tags(run.run_id, {UNHEARD: "0"})
        if answer.can_cancel:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        # The run has ended: by itself, which the next check shows, or with the previous server.
        return self._unheard(run, place)

    def _unheard(self, run: DagsterRun, place: Address) -> CheckRunHealthResult:
        times = int(run.tags.get(UNHEARD, "0")) + 1
        self._instance.add_run_tags(run.run_id, {UNHEARD: str(times)})
        if times < self._missed_checks:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"{place.host}:{place.port} does not execute it any more")

    def _load(self) -> Counter[Address]:
        runs = self._instance.get_runs(RunsFilter(statuses=_BUSY))
        return Counter(place for run in runs if (place := _place(run)) is not None)


def addresses() -> list[Address]:
    """Every server that PODIUM_RUN_WORKERS names. Raises `ConfigError` where it names none."""
    found: list[Address] = []
    for name in os.environ.get(WORKERS, "").split(","):
        host, _, port = name.strip().rpartition(":")
        if not host or not port.isdigit():
            remedy = "Write HOST:PORT,HOST:PORT, the code servers on which runs are to be executed"
            raise ConfigError(WORKERS, "", f"{name.strip()!r} is not an address", remedy)
        try:
            known = socket.getaddrinfo(host, int(port), proto=socket.IPPROTO_TCP)
        except socket.gaierror:  # none of that name at present
            continue
        found += [Address(str(address[0]), int(port)) for *_, address in known]
    return list(dict.fromkeys(found))


def _place(run: DagsterRun) -> Address | None:
    text = run.tags.get(GRPC_INFO_TAG)
    known = json.loads(text) if text else {}
    return Address(str(known["host"]), int(known["port"])) if known.get("port") else None
