"""All paths of a workspace, derived from its root, so that tests can use another root."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ops.core.errors import PodiumError


@dataclass(frozen=True)
class Workspace:
    """A checkout of the repository, or a folder that `podium init` created.

    `root` contains `config/`, `data/` and `dvc.yaml`; everything that runs write is in `.podium/`. With `rehearsal`,
    data and cache are the same, and results (policies, runs, scores, models) are written into a folder of their own, so
    that they are never mixed with results of real runs.
    """

    root: Path
    rehearsal: bool = False
    kept_texts: Path | None = field(default=None, compare=False)
    """The folder in which a run's snapshot keeps its texts; None to read them from the original folders."""

    @classmethod
    def find(cls) -> Workspace:
        """Return the workspace at `$PODIUM_ROOT`, or at the nearest parent folder with `dvc.yaml` and `config/`.

        Raises `PodiumError` if there is none.
        """
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
        """The folder of recipes, pools and other settings."""
        return self.root / "config"

    @property
    def environment_file(self) -> Path:
        """The file with API keys and server addresses, which git ignores."""
        return self.root / ".env"

    @property
    def data(self) -> Path:
        """The folder of DVC's outputs: `raw/`, `shortlist.jsonl`, `responses/`, `profiles.json`,
        `training_mix.jsonl`."""
        return self.root / "data"

    @property
    def texts(self) -> Path:
        """The folder of texts besides `config/` that people write and runs read: `few_shots/`, `cold_start/`."""
        return self.kept_texts or self.data

    @property
    def state(self) -> Path:
        """The folder of everything that runs write, which git ignores."""
        return self.root / ".podium"

    @property
    def results_folder(self) -> Path:
        """The folder of policies, runs, scores and models."""
        return self.state / "rehearsal" if self.rehearsal else self.state

    @property
    def dagster_home(self) -> Path:
        """The folder of Dagster's instance (`$DAGSTER_HOME`)."""
        return self.state / "dagster"

    @property
    def snapshots(self) -> Path:
        """The folder of the snapshots of all runs, by their keys."""
        return self.state / "snapshots"

    @property
    def cache(self) -> Path:
        """The folder of the store with paid responses."""
        return self.state / "cache"

    @property
    def ledger(self) -> Path:
        """The SQLite file of the ledger, which records spending."""
        return self.state / "ledger.sqlite"

    @property
    def policies(self) -> Path:
        """The folder of base policies, with one folder for each key of their inputs."""
        return self.results_folder / "policies"

    @property
    def runs(self) -> Path:
        """The folder of training runs (checkpoints, curves), with one folder for each key of their inputs."""
        return self.results_folder / "runs"

    @property
    def scores(self) -> Path:
        """The folder of evaluation results for each question, with one file for each model and benchmark."""
        return self.results_folder / "scores"

    @property
    def reports(self) -> Path:
        """The folder of the reports' pages."""
        return self.results_folder / "reports"

    @property
    def mlflow_uri(self) -> str:
        """The address in `$MLFLOW_TRACKING_URI`, or that of the workspace's SQLite store, which a rehearsal always
        uses."""
        local_uri = f"sqlite:///{self.results_folder / 'mlflow' / 'mlflow.db'}"
        return local_uri if self.rehearsal else os.environ.get("MLFLOW_TRACKING_URI") or local_uri

    @property
    def mlflow_artifacts(self) -> Path:
        """The folder of the artifacts in the workspace's own MLflow store."""
        return self.results_folder / "mlflow" / "artifacts"
