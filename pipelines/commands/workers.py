"""`python -m ops.workers COMMAND`: DVC stages, the pools, the response cache, the ledger."""

from __future__ import annotations

import argparse
import sys

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from pipelines.commands import (
    cache,
    ledger,
    pools,
    serve,
    stages,
)

GROUPS = (stages, cache, ledger, pools, serve)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 1 after an error that the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m ops.workers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for group in GROUPS:
        group.add(commands)
    chosen = parser.parse_args(arguments)
    try:
        chosen.run(Workspace.find(), chosen)
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
