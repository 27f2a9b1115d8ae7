"""`python -m pipelines.run`, what `make run` calls: one whole lifecycle in this process, shown to a person."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the lifecycle. Returns 1 after an error that the user can mend, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.run", description="Run the whole lifecycle once.")
    parser.add_argument("--recipe", default="quickstart", help="a file in config/recipes, without .yaml")
    parser.add_argument("--seed", type=int, default=None, help="replaces the recipe's seed")
    chosen = parser.parse_args(arguments)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    errors = Console(stderr=True, highlight=False)
    try:
        _live(Workspace.find(), chosen.recipe, chosen.seed, console)
    except (PodiumError, FileNotFoundError) as error:
        errors.print(f"error: {error}", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        errors.print("Stopped. `make run` goes on from here; what was paid for is kept.")
        return 130
    return 0


def _live(workspace: Workspace, recipe: str, seed: int | None, console: Console) -> None:
    from pipelines.home import prepare

    prepare(workspace)
    # Read the configuration before anything heavy is imported: a mistake in it shows at once.
    from ops.config import Snapshot, pool_file
    from ops.versioning import git_commit
    from ops.workers.providers import check_pool

    asked = Snapshot.take(workspace.config, recipe, seed, git_commit(workspace))
    if asked.recipe.asks_workers:
        check_pool(asked.pool, pool_file(workspace.config, asked.recipe.pool))
    import warnings

    import dagster as dg

    warnings.simplefilter("ignore", dg.BetaWarning)  # backfill policies: known, and the UI needs them
    from assets.resources import Podium
    from pipelines.definitions import definitions
    from pipelines.home import bury_dead_runs, only_one, this_process
    from pipelines.summary import print_summary
    from pipelines.terminal import Terminal

    began = time.monotonic()
    podium = Podium(root=str(workspace.root), recipe=recipe, seed=seed).of(asked)
    with only_one(workspace), dg.DagsterInstance.get() as instance, Terminal(console) as terminal:
        bury_dead_runs(instance)
        job = definitions(podium, terminal, {"terminal": terminal.logger()}).resolve_job_def("lifecycle")
        run_config = {**podium.run_config(), "loggers": {"terminal": {}}}
        try:
            job.execute_in_process(instance=instance, run_config=run_config, tags=this_process() | podium.launch_tags())
        except dg.DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None
        except dg.DagsterError as error:  # a check that failed: which and why stands above already
            raise PodiumError(f"{error}\n`make dev` shows the run with all its events") from error
    print_summary(console, podium, terminal.total, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
