"""The paths of a workspace in one object, which tests can replace."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ops.core.errors import PodiumError


@dataclass(frozen=True)
class Workspace:
    """A checkout, or a folder made by `podium init`: `config/`, `data/`, `dvc.yaml` at `root`, state in `.podium/`.

    A `rehearsal` reads the same data and the same cache, and writes its results (policies, runs, scores, models) into
    its own folder, so that rehearsed scores are never beside real ones.
    """

    root: Path
    rehearsal: bool = False
    kept_texts: Path | None = field(default=None, compare=False)
    """The folder in which a run's snapshot stores its texts; None: the original folders."""

    @classmethod
    def find(cls) -> Workspace:
        """Return `$PODIUM_ROOT`, or the nearest parent folder with `dvc.yaml` and `config/`. Raises `PodiumError` if
        there is none."""
        if value := os.environ.get("PODIUM_ROOT"):
            return cls(Path(value).resolve())
        try:
            here = Path.cwd().resolve()
        except FileNotFoundError:
            raise PodiumError("the current folder was deleted. Go to another one") from None
        for folder in (here, *here.parents):
            if (folder / "dvc.yaml").is_file() and (folder / "config").is_dir():
                return cls(folder)
        remedy = "Go to the project's folder, set PODIUM_ROOT, or let `podium init` lay one out here"
        raise PodiumError(f"{here} is not inside a Podium workspace. {remedy}")

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def environment_file(self) -> Path:
        """Keys and addresses, which git ignores."""
        return self.root / ".env"

    @property
    def data(self) -> Path:
        """DVC's outputs: `raw/`, `shortlist.jsonl`, `responses/`, `profiles.json`, `training_mix.jsonl`."""
        return self.root / "data"

    @property
    def texts(self) -> Path:
        """Texts that people write and a run reads besides `config/`: `few_shots/`, `cold_start/`."""
        return self.kept_texts or self.data

    @property
    def state(self) -> Path:
        """Everything that runs leave behind and git ignores."""
        return self.root / ".podium"

    @property
    def results_folder(self) -> Path:
        """The folder of policies, runs, scores and models."""
        return self.state / "rehearsal" if self.rehearsal else self.state

    @property
    def dagster_home(self) -> Path:
        return self.state / "dagster"

    @property
    def snapshots(self) -> Path:
        """The snapshots of all runs, by key."""
        return self.state / "snapshots"

    @property
    def cache(self) -> Path:
        """Folder of the response cache."""
        return self.state / "cache"

    @property
    def ledger(self) -> Path:
        """SQLite file of the budget ledger."""
        return self.state / "ledger.sqlite"

    @property
    def policies(self) -> Path:
        """Base policies, one folder per content key."""
        return self.results_folder / "policies"

    @property
    def runs(self) -> Path:
        """Training runs (checkpoints, curves), one folder per content key."""
        return self.results_folder / "runs"

    @property
    def scores(self) -> Path:
        """Per-question evaluation results, one file per model and benchmark."""
        return self.results_folder / "scores"

    @property
    def reports(self) -> Path:
        """The reports' pages."""
        return self.results_folder / "reports"

    @property
    def mlflow_uri(self) -> str:
        """`$MLFLOW_TRACKING_URI`, or the workspace's SQLite store; a rehearsal always uses its own."""
        own = f"sqlite:///{self.results_folder / 'mlflow' / 'mlflow.db'}"
        return own if self.rehearsal else os.environ.get("MLFLOW_TRACKING_URI") or own

    @property
    def mlflow_artifacts(self) -> Path:
        return self.results_folder / "mlflow" / "artifacts"
