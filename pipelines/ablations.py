"""What one change each to a recipe does once it is trained, on the same data and questions, into docs/reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from assets.resources import Podium, servers
from ops.config.ablations import ABLATIONS, Change, load_ablations
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.ablations import AS_IT_IS, Outcome, table
from ops.evaluation.experiment_report import markdown
from ops.evaluation.reading import score
from ops.evaluation.report import Columns
from ops.stages.ablations import is_trained, outcome, with_change
from ops.stages.making import Making
from ops.training.run.alone import train
from pipelines.pages import MEASUREMENTS, write_between
from pipelines.run import live

MARK = "<!-- made by `make ablations` -->"
"""Round the table of config/ablations.yaml."""
HEAD = ["change", "cold start", "Conductor", "GRPO adds", "beside the recipe", "unseen", "beside the recipe",
        "right if valid", "entropy, bits", "USD a question", "s of GRPO"]  # fmt: skip


def write_table(
    workspace: Workspace,
    names: Sequence[str],
    seeds: Sequence[int],
    file: str = ABLATIONS,
    mark: str = MARK,
    materialize: Callable[[str], None] | None = None,
) -> Path:
    """Train the recipe and each change of the `file` in config/ that is named (all of them, where none is) on the same
    data, and write the outcomes into docs/reference/measurements.md. A change that was trained before is not
    trained again; with one seed it is in the table too. `materialize`: trains a change that is an asset.

    Raises `ConfigError` for a change that is not in the file or leaves no recipe, `PodiumError` where a training ends
    without a result.
    """
    place = workspace.config / file
    ablations = load_ablations(workspace.config, file)
    for name in names:
        if name not in ablations.changes:
            raise PodiumError(f"{place}: there is no change “{name}”. Changes there: {'; '.join(ablations.changes)}")
    podiums = {seed: Podium(root=str(workspace.root), recipe=ablations.recipe, seed=seed) for seed in seeds}
    every = {AS_IT_IS: Change()} | ablations.changes
    setups = {
        (seed, name): with_change(podium.load(), change, place, len(every))
        for seed, podium in podiums.items()
        for name, change in every.items()
    }  # all of them are checked before the first is trained
    wanted = {AS_IT_IS, *(names or every)}
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    for seed in seeds:
        live(workspace, ablations.recipe, seed)  # the data, and the recipe as it is
        deepspeed = podiums[seed].snapshot().deepspeed
        if len(seeds) == 1:  # of several, changes would have unequal numbers
            wanted |= {name for name in every if is_trained(setups[seed, name], deepspeed)}
        chosen = [name for name in every if name in wanted]
        for name in chosen:
            if materialize is not None and name != AS_IT_IS:
                materialize(name)
            with ExitStack() as stack:
                served = servers(setups[seed, name])
                making = Making(train, begin=partial(stack.enter_context, served))
                outcomes[name].append(outcome(setups[seed, name], deepspeed, making))
            print(f"seed {seed}, {name}: {100 * score(outcomes[name][-1].conductor).seen:.1f} % in-domain", flush=True)
            if seed == seeds[0] or name == chosen[-1]:  # in between, changes have unequal numbers of seeds
                write_between(workspace.root / MEASUREMENTS, mark, _table(outcomes))
    return MEASUREMENTS


def _table(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    return markdown(Columns(HEAD, table(outcomes).rows))
