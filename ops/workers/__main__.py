"""`python -m ops.workers responses | profiles`: the DVC stages `worker_responses` and `worker_profiles`."""

from __future__ import annotations

import argparse
import sys

from ops.config import load_pool, load_recipe
from ops.errors import PodiumError
from ops.workers.stage import materialize_profiles, materialize_responses, open_client
from ops.workspace import Workspace


def main(arguments: list[str] | None = None) -> int:
    """Run one stage; 1 after an error that the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m ops.workers", description=__doc__)
    parser.add_argument("stage", choices=("responses", "profiles"))
    parser.add_argument("--recipe", default="quickstart", help="a file in config/recipes, without .yaml")
    chosen = parser.parse_args(arguments)
    workspace = Workspace.find()
    try:
        recipe = load_recipe(workspace.config, chosen.recipe)
        if chosen.stage == "responses":
            pool = load_pool(workspace.config, recipe.pool)
            client = open_client(workspace, recipe, pool, "precache")
            rows = materialize_responses(workspace, recipe, pool, client)
            counts = client.counts
            print(
                f"{sum(map(len, rows.values()))} responses: {counts.live} calls, "
                f"{counts.cached} from the cache, ${counts.usd:.4f}"
            )
        else:
            found = materialize_profiles(workspace, recipe)
            print(f"{len(found.workers)} profiles, forecast of the training signal {found.forecast:.0%}")
    except PodiumError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
