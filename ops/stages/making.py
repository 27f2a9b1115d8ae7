"""What an experiment makes once, policies and rows, and finds again: nothing is trained, written or paid twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.conductor.policy import CARD
from ops.config import Adaptive, Setup, digest
from ops.core.errors import DataError
from ops.core.locks import alone
from ops.core.origin import Origin
from ops.evaluation.rows import ScoreRow
from ops.evaluation.scores import at_prices, load_rows, save_rows
from ops.precaching.opening import open_client
from ops.training.cold_start.base_policy import base_policy_folder, make_base_policy
from ops.training.run.plan import RESULT, RunResult, write_run
from ops.workers.client import WorkerClient

OnProgress = Callable[[int, int, str], None]


def _nothing() -> None:
    pass


@dataclass
class Making:
    """What it takes to make what is not there. Whoever has none is given what is stored, or a `DataError`."""

    trainer: Callable[[Path], RunResult]
    """Trains the run in a folder to its end. Raises `PodiumError` where it ends without a result."""
    on_progress: OnProgress | None = None
    begin: Callable[[], object] = _nothing
    """Called once, before anything is trained or anybody asked: refuses, or starts the workers that Podium serves."""
    clients: list[WorkerClient] = field(default_factory=list)
    """Those that were opened for it, with what each has asked."""
    results: list[RunResult] = field(default_factory=list)
    """Of the runs that were trained by it."""
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
        """So many of so many done."""
        if self.on_progress is not None:
            self.on_progress(done, total, note)

    def _begin(self) -> None:
        if not self._began:
            self.begin()
            self._began = True


def trained(setup: Setup, deepspeed: Mapping[str, Any] | None, making: Making | None) -> Path:
    """The folder of the finished run of GRPO of these settings, from its own cold start.

    Raises `DataError` where something is missing, and as `make_base_policy` and a training do.
    """
    base = base_policy_folder(setup)
    if not (base / CARD).is_file():
        if making is None:
            raise DataError(base, "(folder)", "does not exist: it was not trained", "Run the experiment first")
        make_base_policy(setup, making.client(setup, "training"), making.on_progress)
    return finished(write_run(setup, base, deepspeed), making)


def trained_further(
    setup: Setup, run: Path, stage: Adaptive | None, deepspeed: Mapping[str, Any] | None, making: Making | None
) -> Path:
    """The folder of the finished run of a stage on parts of the pool, from the policy of another run."""
    return finished(write_run(setup, run / "policy", deepspeed, stage), making)


def finished(run: Path, making: Making | None) -> Path:
    """The run's folder, once it has ended well. Raises `DataError`, and as a training does."""
    if RunResult.read(run) is None:
        if making is None:
            raise DataError(run / RESULT, "(file)", "does not exist: it was not trained", "Run the experiment first")
        making.train(run)
    return run


def rows_once(setup: Setup, name: str, origin: Origin, make: Callable[[], Sequence[ScoreRow]] | None) -> list[ScoreRow]:
    """The rows of that origin of the experiment NAME, at the pool's prices: stored, or made and stored now.

    Those of workers that could not be reached are asked for again. Raises `DataError` where there are none and nobody
    may `make` them.
    """
    file = setup.workspace.scores / "experiments" / name / f"{digest(origin)}.parquet"
    if make is None:
        if not file.is_file():
            raise DataError(file, "(file)", f"does not exist: {name} has not been run", "Run the experiment first")
        return at_prices(load_rows(file), setup.pool)
    with alone(setup.workspace, file):
        if not file.is_file() or any(row.unscorable for row in load_rows(file)):
            save_rows(make(), file, origin=origin)
        return at_prices(load_rows(file), setup.pool)
