"""`python -m ops.benchmarks`: the DVC stage `raw_problems`."""

from __future__ import annotations

import argparse
import sys

from ops.benchmarks.stage import materialize_raw
from ops.config import load_recipe
from ops.errors import PodiumError
from ops.workspace import Workspace


def main(arguments: list[str] | None = None) -> int:
    """Load every benchmark of the recipe into `data/raw`; 1 after an error that the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m ops.benchmarks", description=__doc__)
    parser.add_argument("--recipe", default="quickstart", help="a file in config/recipes, without .yaml")
    chosen = parser.parse_args(arguments)
    workspace = Workspace.find()
    try:
        recipe = load_recipe(workspace.config, chosen.recipe)
        for name in recipe.benchmarks:
            raw = materialize_raw(workspace, recipe, name)
            print(f"{name}: {len(raw.train)} to train on, {len(raw.test)} to evaluate on")
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
