"""Model versions in a real MLflow store without a model that would run: files, scores, lineage, and nothing to load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from ops.core.workspace import Workspace
from ops.release import registry
from ops.release.artifacts import FILES_TAG, hash_model_files
from ops.release.lineage import Lineage
from ops.release.mlflow_store import CHALLENGER, MODEL_NAME, RegisteredVersion, connect, get_or_create_experiment
from ops.release.promotion import GateCheck, GateDecision
from ops.results.outcome_rows import OutcomeRow
from ops.results.table import save_rows
from tests.builders import make_outcome
from tests.once import made_once

YES, NO = GateDecision(True, ()), GateDecision(False, (GateCheck("cost", 2.0, 1.5, False, "costly"),))
POLICY, POOL = "test-1", "0123456789ab"
_STORE = Path(".podium", "mlflow", "mlflow.db")
_MLMODEL = """\
flavors:
  python_function:
    artifacts: {policy: {path: artifacts/policy}, pool: {path: artifacts/pool.yaml}}
"""


def empty_store(folder: Path) -> Path:
    """A new store's file, which takes MLflow seconds to make: copied, it is another new store."""
    template = Workspace(folder)
    with connect(template) as client:
        client.search_registered_models(max_results=1)
    return folder / _STORE


def shared_store() -> Path:
    """The file of one that is made once in a session."""
    return made_once("mlflow-store", empty_store) / _STORE


def checkout(folder: Path, store: Path) -> Workspace:
    """A checkout with a store of its own, a copy of `store`."""
    workspace = Workspace(folder)
    (folder / "config").mkdir(parents=True)
    (folder / "dvc.yaml").touch()
    (workspace.state / "mlflow").mkdir(parents=True)
    copyfile(store, workspace.state / "mlflow" / "mlflow.db")
    return workspace


def version(workspace: Workspace, right: int = 6, card: str | None = "{}", **tags: str) -> RegisteredVersion:
    """Register one, whose policy is a file of its own and a card (None: it lacks one), as challenger."""
    import json

    import mlflow

    lineage = Lineage("c0ffee", "d41d8c", POLICY, POOL, "prices", "test", rollouts_usd=1.25)
    facts = lineage.as_tags() | tags
    with connect(workspace) as client, TemporaryDirectory() as scratch:
        home = get_or_create_experiment(client, workspace)
        run = client.create_run(home, tags=facts)
        files = Path(scratch) / "model"
        (files / "artifacts" / "policy").mkdir(parents=True)
        (files / "artifacts" / "policy" / "model.safetensors").write_bytes(bytes(range(256)) * 16)
        if card is not None:
            (files / "artifacts" / "policy" / "podium.json").write_text(card)
        (files / "artifacts" / "pool.yaml").write_text("workers: []\n")
        (files / "agent.py").write_text("AGENT = 1\n")
        (files / "MLmodel").write_text(_MLMODEL)
        save_rows(scored(right), Path(scratch) / "scores.parquet", texts=False)
        client.log_artifact(run.info.run_id, str(Path(scratch) / "scores.parquet"))
        model = client.create_logged_model(home, MODEL_NAME, source_run_id=run.info.run_id)
        client.log_model_artifacts(model.model_id, str(files))
        client.finalize_logged_model(model.model_id, "READY")
        found = json.dumps(hash_model_files(files))
        mlflow.register_model(f"models:/{model.model_id}", MODEL_NAME, tags=facts)
        number = max(client.search_model_versions(f"name = '{MODEL_NAME}'"), key=lambda v: int(v.version)).version
        client.set_model_version_tag(MODEL_NAME, number, FILES_TAG, found)
        client.set_registered_model_alias(MODEL_NAME, CHALLENGER, number)
    return registry.get_version(workspace, str(number))


def model_folder(workspace: Workspace, registered: RegisteredVersion) -> Path:
    """Where a version's files lie in a local store."""
    return workspace.mlflow_artifacts / "models" / registered.model_id / "artifacts"


def scored(right: int, benchmarks: Sequence[str] = ("mmlu", "gpqa_diamond"), questions: int = 10) -> list[OutcomeRow]:
    """The first questions of a benchmark right."""
    costs = {"domain": "mmlu", "workers": ("algebraist",), "tokens": 30, "cost_usd": 0.002, "latency_s": 0.5}
    return [make_outcome(name, i, correct=int(i < right), **costs) for name in benchmarks for i in range(questions)]
