"""A process that takes part in a promotion, or holds the lock until it is killed."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.release import aliases, registry
from ops.release.lock import alone
from ops.release.promotion import GateDecision


@dataclass(frozen=True)
class Order:
    """Promote `version`, which was judged against version `against`; without a version, hold the lock."""

    workspace: Workspace
    version: str = ""
    against: str = ""


def live(order: Order, end: Connection) -> None:
    registry.champion(order.workspace)  # mlflow is imported and the store is reached
    end.send("ready")
    end.recv()
    if not order.version:
        with alone(order.workspace):
            end.send("held")
            time.sleep(600)
    try:
        verdict = replace(GateDecision(True, ()), against=order.against)
        end.send("promoted" if aliases.promote(order.workspace, order.version, verdict) else "kept back")
    except PodiumError as error:
        end.send(f"{type(error).__name__}: {error}")
