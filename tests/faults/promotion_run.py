"""A process that takes part in a promotion: `promote VERSION AGAINST`, or `hold` the lock until it is killed."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.release import aliases, registry
from ops.release.lock import alone
from ops.release.promotion import GateDecision


def main(root: str, what: str, *rest: str) -> None:
    workspace = Workspace(Path(root))
    registry.champion(workspace)  # mlflow is imported, the store reached
    print("ready", flush=True)
    sys.stdin.readline()
    if what == "hold":
        with alone(workspace):
            print("held", flush=True)
            time.sleep(600)
    version, against = rest
    try:
        verdict = replace(GateDecision(True, ()), against=against)
        print("promoted" if aliases.promote(workspace, version, verdict) else "kept back", flush=True)
    except PodiumError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
