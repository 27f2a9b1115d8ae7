"""The work of a study: train policies, open clients and make rows, unless the results are stored already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.benchmarks.graded import GRADER_KEY, prepare_tables
from ops.config import Adaptive, Setup, digest
from ops.core.errors import DataError
from ops.core.once import CODE, Key, make_once
from ops.core.processes import lock_files
from ops.core.workspace import Workspace
from ops.evaluation.stored_studies import StudyInputs
from ops.precaching.client_setup import open_client
from ops.results.outcome_rows import OutcomeRow
from ops.results.table import reprice_by_benchmark, save_rows, scan_rows
from ops.stages.restoring import restore_run
from ops.training.cold_start.base_policy import base_policy_folder, is_intact_policy, make_base_policy
from ops.training.run.training_run import RESULT_FILE, RunResult, write_run_plan
from ops.workers.client import WorkerClient

if TYPE_CHECKING:
    import polars as pl

OnProgress = Callable[[int, int, str], None]


def _do_nothing() -> None:
    pass


@dataclass
class StudyContext:
    """What a study works with: the trainer, the clients and the callbacks."""

    trainer: Callable[[Path], RunResult]
    """Trains the run in a folder to its end. Raises `PodiumError` if the training ends without a result."""
    on_progress: OnProgress | None = None
    on_begin: Callable[[], object] = _do_nothing
    """Called once, before the first training or worker call. It may raise an error, or start the workers that Podium
    serves."""
    clients: list[WorkerClient] = field(default_factory=list)
    """The clients that were opened, with their call counts."""
    results: list[RunResult] = field(default_factory=list)
    """The results of the runs that this study trained."""
    _has_begun: bool = False

    def open_client(self, setup: Setup, purpose: str) -> WorkerClient:
        """Open a client on the workspace's cache and ledger, and add it to `clients`."""
        self._begin_once()
        self.clients.append(open_client(setup, purpose))
        return self.clients[-1]

    def train(self, run: Path) -> None:
        """Train the run in that folder to its end, and add its result to `results`."""
        self._begin_once()
        self.results.append(self.trainer(run))

    def report(self, done: int, total: int, note: str) -> None:
        """Report progress: `done` of `total` units of work, with a note."""
        if self.on_progress is not None:
            self.on_progress(done, total, note)

    def _begin_once(self) -> None:
        if not self._has_begun:
            self.on_begin()
            self._has_begun = True


def train_policy(setup: Setup, deepspeed: Mapping[str, Any] | None, context: StudyContext) -> Path:
    """Return the folder of the finished GRPO run with these settings and its own cold start; train it unless it exists.

    Raises the errors of `make_base_policy` and of training.
    """
    base = base_policy_folder(setup)
    if not is_intact_policy(base):
        make_base_policy(setup, context.open_client(setup, "training"), context.on_progress)
    return _train_unless_finished(setup.workspace, write_run_plan(setup, base, deepspeed), context)


def train_on_subsets(
    setup: Setup, run: Path, stage: Adaptive | None, deepspeed: Mapping[str, Any] | None, context: StudyContext
) -> Path:
    """Return the folder of the finished run that continues the policy of `run` on worker subsets; train it unless it
    exists."""
    return _train_unless_finished(setup.workspace, write_run_plan(setup, run / "policy", deepspeed, stage), context)


def _train_unless_finished(workspace: Workspace, run: Path, making: StudyContext) -> Path:
    restore_run(workspace, run)
    if RunResult.read(run) is None:
        making.train(run)
    return run


def find_finished_run(inputs: StudyInputs, stage: str) -> Path:
    """Return the run of the named training stage, or of the last earlier stage that the recipe has.

    Raises `DataError` if the run has not finished with a policy.
    """
    stages = ("conductor", "adaptive_conductor", "recursive_conductor")
    run = [inputs.run_folders[name] for name in stages[: stages.index(stage) + 1] if name in inputs.run_folders][-1]
    if RunResult.read(run) is None:
        remedy = f"`podium run {inputs.setup.recipe.name}` first"
        raise DataError(
            run / RESULT_FILE, "", "does not exist: the recipe has not been trained with its present settings", remedy
        )
    return run


def make_rows_once(setup: Setup, name: str, key: Key, make: Callable[[], Sequence[OutcomeRow]]) -> pl.LazyFrame:
    """Return the rows of study `name` with this key, at the pool's prices; `make` is called unless they are stored.

    Stored rows are made again if any of them is unscorable.
    """
    others = {name: value for name, value in key.items() if name not in (GRADER_KEY, CODE)}
    file = setup.workspace.scores / "studies" / name / "rows" / f"{digest(others)}.parquet"
    with lock_files(setup.workspace, file):
        prepare_tables({file: key})
        make_once([file], key, lambda: save_rows(make(), file, key=key))
        return reprice_by_benchmark(scan_rows(file), setup)
