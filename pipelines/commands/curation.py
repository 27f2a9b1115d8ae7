"""`python -m ops.curation shortlist | mix`: the DVC stages `shortlist` and `training_mix`."""

from __future__ import annotations

import argparse
import sys

from ops.config import Setup
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.stages.curation import materialize_mix, materialize_shortlist


def main(arguments: list[str] | None = None) -> int:
    """Run one stage; 1 after an error that the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m ops.curation", description=__doc__)
    parser.add_argument("stage", choices=("shortlist", "mix"))
    parser.add_argument("--recipe", default="quickstart", help="a file in config/recipes, without .yaml")
    parser.add_argument("--seed", type=int, help="replaces the recipe's seed")
    chosen = parser.parse_args(arguments)
    workspace = Workspace.find()
    try:
        setup = Setup.read(workspace, chosen.recipe, chosen.seed)
        if chosen.stage == "shortlist":
            found = materialize_shortlist(setup)
            print(f"shortlist: {len(found.problems)} problems, {len(found.report['pairs'])} candidates removed")
        else:
            mix = materialize_mix(setup)
            print(f"training mix: {len(mix.problems)} problems, solved alone by: {mix.agreement}")
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
