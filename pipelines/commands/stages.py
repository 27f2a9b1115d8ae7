"""`responses` and `profiles`: the DVC stages of this room."""

from __future__ import annotations

from argparse import Namespace, _SubParsersAction
from contextlib import nullcontext
from typing import Any

from ops.config import Setup
from ops.core.progress import bar
from ops.core.workspace import Workspace
from ops.grading import configure
from ops.local_models.vllm_server import serving
from ops.precaching.opening import open_client
from ops.stages.responses import estimate_responses, materialize_profiles, materialize_responses


def add(commands: _SubParsersAction[Any]) -> None:
    """Add both stages' parsers."""
    for name, run in (("responses", _responses), ("profiles", _profiles)):
        parser = commands.add_parser(name, help=f"the DVC stage worker_{name}")
        parser.add_argument("--recipe", default="quickstart", help="a file in config/recipes, without .yaml")
        parser.set_defaults(run=run)
        if name == "responses":
            parser.add_argument("--estimate", action="store_true", help="say what it would cost, and ask nothing")


def _responses(workspace: Workspace, arguments: Namespace) -> None:
    setup = Setup.read(workspace, arguments.recipe)
    recipe = setup.recipe
    configure(recipe.grading, workspace.root)
    client = open_client(setup, "precache")
    if recipe.asks_workers:
        print(estimate_responses(setup, client), flush=True)
    if arguments.estimate:
        return
    with serving(setup.pool, workspace) if recipe.asks_workers else nullcontext(), bar() as on_progress:
        rows = materialize_responses(setup, client, on_progress=on_progress)
    counts = client.counts
    print(
        f"{sum(map(len, rows.values()))} responses: {counts.live} calls, {counts.cached} from the cache, "
        f"{counts.replayed} replayed, ${counts.usd:.4f}"
    )


def _profiles(workspace: Workspace, arguments: Namespace) -> None:
    found = materialize_profiles(Setup.read(workspace, arguments.recipe))
    print(f"{len(found.workers)} profiles, forecast of the training signal {found.forecast:.0%}")
