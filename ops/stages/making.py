"""What a study makes once, policies and rows, and finds again: nothing is trained, written or paid twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.conductor.policy import CARD
from ops.config import Adaptive, Setup, digest
from ops.core.errors import DataError
from ops.core.processes import alone
from ops.core.rows import Origin
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.scores import load_rows, priced, save_rows
from ops.evaluation.stored_studies import Lab
from ops.precaching.opening import open_client
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.run.plan import RESULT, RunResult, write_run
from ops.workers.client import WorkerClient

OnProgress = Callable[[int, int, str], None]


def _nothing() -> None:
    pass


@dataclass
class Making:
    """What a study trains and asks with."""

    trainer: Callable[[Path], RunResult]
    """Trains the run in a folder to its end. Raises `PodiumError` where it ends without a result."""
    on_progress: OnProgress | None = None
    begin: Callable[[], object] = _nothing
    """Called once, before the first training or call: refuses, or starts the workers that Podium serves."""
    clients: list[WorkerClient] = field(default_factory=list)
    """Those that were opened, with what each has asked."""
    results: list[RunResult] = field(default_factory=list)
    """The results of the runs that were trained."""
    _began: bool = False

    def client(self, setup: Setup, purpose: str, beside: str = "") -> WorkerClient:
        """As `open_client`."""
        self._begin()
        self.clients.append(open_client(setup, purpose, beside))
        return self.clients[-1]

    def train(self, run: Path) -> None:
        """Train the run in that folder to its end."""
        self._begin()
        self.results.append(self.trainer(run))

    def tell(self, done: int, total: int, note: str) -> None:
        """Report that `done` of `total` are done."""
        if self.on_progress is not None:
            self.on_progress(done, total, note)

    def _begin(self) -> None:
        if not self._began:
            self.begin()
            self._began = True


def trained(setup: Setup, deepspeed: Mapping[str, Any] | None, making: Making) -> Path:
    """The folder of the finished run of GRPO of these settings, from its own cold start.

    Raises as `make_base_policy` and a training do.
    """
    base = base_policy_folder(setup)
    if not (base / CARD).is_file():
        make_base_policy(setup, making.client(setup, "training"), making.on_progress)
    return _trained(write_run(setup, base, deepspeed), making)


def trained_further(
    setup: Setup, run: Path, stage: Adaptive | None, deepspeed: Mapping[str, Any] | None, making: Making
) -> Path:
    """The folder of the finished run of a stage on subsets of the pool, from the policy of another run."""
    return _trained(write_run(setup, run / "policy", deepspeed, stage), making)


def _trained(run: Path, making: Making) -> Path:
    if RunResult.read(run) is None:
        making.train(run)
    return run


def finished(lab: Lab, stage: str) -> Path:
    """The run of that stage, or of the last one before it that the recipe has. Raises `DataError` where the run has not
    ended with a policy."""
    stages = ("conductor", "adaptive_conductor", "recursive_conductor")
    run = [lab.runs[name] for name in stages[: stages.index(stage) + 1] if name in lab.runs][-1]
    if RunResult.read(run) is None:
        remedy = f"`podium run {lab.setup.recipe.name}` first"
        raise DataError(run / RESULT, "(file)", "does not exist: the recipe was not trained as it is", remedy)
    return run


def rows_once(setup: Setup, name: str, origin: Origin, make: Callable[[], Sequence[OutcomeRow]]) -> list[OutcomeRow]:
    """The rows of that origin of the study NAME, at the pool's prices: stored, or made and stored now.

    Rows of workers that could not be reached are made again.
    """
    file = setup.workspace.scores / "studies" / name / "rows" / f"{digest(origin)}.parquet"
    with alone(setup.workspace, file):
        if not file.is_file() or any(row.unscorable for row in load_rows(file)):
            save_rows(make(), file, origin=origin)
        return priced(load_rows(file), setup)
