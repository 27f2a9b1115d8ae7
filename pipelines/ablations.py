"""What one change each to a recipe does once it is trained, on the same data and questions, as a table in docs."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from subprocess import call
from typing import Any

from assets.conductor import LOG
from assets.resources import Podium, servers
from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.conductor.policy import CARD
from ops.config import Setup
from ops.config.ablations import ABLATIONS, Change, changed, load_ablations
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.report import percent
from ops.evaluation.runner import ScoreRow
from ops.evaluation.statistics import MeanEstimate, clustered, mean_of
from ops.precaching.opening import open_client
from ops.training.cold_start import base_policy_folder, make_base_policy
from ops.training.ending import why
from ops.training.plan import RunPlan, RunResult, command, environment, write_run
from pipelines.pages import write_between
from pipelines.run import live
from pipelines.seeds import FILE, SYSTEMS, Outcome, entropy, read, right_if_valid, score

MARK = "<!-- made by `make ablations` -->"
"""Round the table of config/ablations.yaml."""
NOTHING = "nothing: the recipe as it is"
HEAD = ("change", "cold start", "Conductor", "GRPO adds", "beside the recipe", "unseen", "beside the recipe",
        "right if valid", "entropy, bits", "USD a question", "s of GRPO")  # fmt: skip
CONDUCTOR, COLD = SYSTEMS[0], SYSTEMS[1]


def write_table(
    workspace: Workspace, names: Sequence[str], seeds: Sequence[int], file: str = ABLATIONS, mark: str = MARK
) -> Path:
    """Train the recipe and each change of the `file` in config/ that is named (all of them, where none is) on the same
    data, and write what they did between the marks in docs/results.md, which grows with each. What was trained before
    is not trained again; of one seed it stands in the table too.

    Raises `ConfigError` for a change that is not in the file or leaves no recipe, `PodiumError` where a training ends
    without a result.
    """
    place = workspace.config / file
    ablations = load_ablations(workspace.config, file)
    for name in names:
        if name not in ablations.changes:
            raise PodiumError(f"{place}: there is no change “{name}”. Changes there: {'; '.join(ablations.changes)}")
    podiums = {seed: Podium(root=str(workspace.root), recipe=ablations.recipe, seed=seed) for seed in seeds}
    every = {NOTHING: Change()} | ablations.changes
    setups = {
        (seed, name): _setup(podium.load(), change, place, len(every))
        for seed, podium in podiums.items()
        for name, change in every.items()
    }  # all of them are checked before the first is trained
    wanted = {NOTHING, *(names or every)}
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    for seed in seeds:
        live(workspace, ablations.recipe, seed)  # the data, and the recipe as it is
        deepspeed = podiums[seed].snapshot().deepspeed
        if len(seeds) == 1:  # of several, changes would have unequal numbers
            wanted |= {name for name in every if _ended(setups[seed, name], deepspeed)}
        chosen = [name for name in every if name in wanted]
        known: dict[Path, list[ScoreRow]] = {}  # most changes leave the cold start as it is
        for name in chosen:
            setup = setups[seed, name]
            folder = trained(setup, deepspeed)
            outcomes[name].append(_measured(setup, folder, known))
            print(f"seed {seed}, {name}: {100 * outcomes[name][-1].scores[CONDUCTOR].seen:.1f} % in-domain", flush=True)
            if seed == seeds[0] or name == chosen[-1]:  # in between, changes have unequal numbers of seeds
                write_between(workspace.root / FILE, mark, _table(outcomes))
    return FILE


def _ended(setup: Setup, deepspeed: Mapping[str, Any] | None) -> bool:
    """Whether a training run of these settings has finished."""
    base = base_policy_folder(setup)
    return (base / CARD).is_file() and RunResult.read(write_run(setup, base, deepspeed)) is not None


def _measured(setup: Setup, folder: Path, known: dict[Path, list[ScoreRow]]) -> Outcome:
    """The trained policy and the one that it started from, read greedily; `known` ones are not read again."""
    base, trained = base_policy_folder(setup), RunResult.read(folder)
    assert trained is not None  # the training has just ended well
    if base not in known:
        known[base] = read(setup, base)
    return Outcome(setup.recipe.seed, {COLD: known[base], CONDUCTOR: read(setup, folder / "policy")}, trained)


def _setup(setup: Setup, change: Change, file: Path, trainings: int) -> Setup:
    """With the change made. To the ledger all trainings of a seed are one run: its cap is that of so many."""
    recipe = changed(setup.recipe, change, file)
    budget = recipe.budget.model_copy(update={"run_usd": trainings * recipe.budget.run_usd})
    return replace(setup, recipe=recipe.model_copy(update={"budget": budget}))


def trained(setup: Setup, deepspeed: Mapping[str, Any] | None) -> Path:
    """The folder of the finished training run of these settings. Raises `PodiumError` where it ends without a
    result."""
    with servers(setup):
        return finished(write_run(setup, make_base_policy(setup, open_client(setup, "training")), deepspeed))


def finished(folder: Path) -> Path:
    """The folder of a run, which is trained to its end unless it has ended. Raises as `trained` does."""
    if RunResult.read(folder) is None:
        plan, log = RunPlan.read(folder), folder / LOG
        began = log.stat().st_size if log.is_file() else 0
        variables = os.environ | environment(plan, folder)
        with log.open("ab") as output:
            status = call(command(plan, folder), cwd=plan.root, env=variables, stdout=output, stderr=output)
        if status:
            raise PodiumError(why(status, log, began, plan.recipe.grpo))
    return folder


def _table(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    lines = [f"| {' | '.join(HEAD)} |", f"|{' --- |' * len(HEAD)}"]
    as_it_is = outcomes[NOTHING]
    for name, made in outcomes.items():
        conductors = [outcome.rows[CONDUCTOR] for outcome in made]
        cells = (
            f"{mean([100 * outcome.scores[COLD].seen for outcome in made]):.1f}",
            f"{mean([100 * outcome.scores[CONDUCTOR].seen for outcome in made]):.1f}",
            _paired(made, made, COLD, seen=True),
            "" if name == NOTHING else _paired(made, as_it_is, CONDUCTOR, seen=True),
            f"{mean([100 * outcome.scores[CONDUCTOR].unseen for outcome in made]):.1f}",
            "" if name == NOTHING else _paired(made, as_it_is, CONDUCTOR, seen=False),
            f"{100 * mean([right_if_valid(rows) for rows in conductors]):.1f} %",
            f"{mean([entropy(rows) for rows in conductors]):.2f}",
            f"{mean([score(rows).usd for rows in conductors]):.6f}",
            f"{mean([outcome.trained.seconds for outcome in made]):.0f}",
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _paired(ours: Sequence[Outcome], theirs: Sequence[Outcome], other: str, *, seen: bool) -> str:
    """Greedy Conductors minus `other` of `theirs`, question by question: points ± the standard error."""
    names = training_benchmarks() if seen else unseen_benchmarks()
    return percent(mean_of([_difference(name, ours, theirs, other) for name in names]))


def _difference(benchmark: str, ours: Sequence[Outcome], theirs: Sequence[Outcome], other: str) -> MeanEstimate:
    """Of one benchmark; seeds are repeats of a question."""
    differences: dict[str, list[float]] = defaultdict(list)
    for one_seed, same_seed in zip(ours, theirs, strict=True):
        right = _right(same_seed.rows[other])
        for key, correct in _right(one_seed.rows[CONDUCTOR]).items():
            if key[0] == benchmark:
                differences[key[1]].append(correct - right[key])
    return clustered(list(differences.values()))


def _right(rows: Sequence[ScoreRow]) -> dict[tuple[str, str], int]:
    return {(row.benchmark, row.problem_id): row.correct for row in rows}
