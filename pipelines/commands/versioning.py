"""`python -m ops.versioning --recipe R`: the DVC stage `settings`, the slice of a recipe that the data depends on."""

from __future__ import annotations

import argparse
import sys

from ops.config import load_pool, load_recipe
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.versioning.settings import write_settings


def main(arguments: list[str] | None = None) -> int:
    """Write `data/settings.yaml`; 1 after an error that the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m ops.versioning", description=__doc__)
    parser.add_argument("--recipe", default="quickstart", help="a file in config/recipes, without .yaml")
    parser.add_argument("--seed", type=int, help="replaces the recipe's seed")
    chosen = parser.parse_args(arguments)
    workspace = Workspace.find()
    try:
        recipe = load_recipe(workspace.config, chosen.recipe, chosen.seed)
        write_settings(workspace, recipe, load_pool(workspace.config, recipe.pool))
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
