"""The thin edge to MLflow: model versions of the Conductor, their lineage, their aliases."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.conductor.policy import PolicyCard
from ops.config import Pool, digest, resolved
from ops.core.errors import PodiumError
from ops.core.libraries import need_mlflow
from ops.core.resources import resources
from ops.core.workspace import Workspace
from ops.evaluation.runner import ScoreRow, summarize
from ops.evaluation.scores import load_rows, save_rows
from ops.evaluation.statistics import mean_of
from ops.release.promotion import GateDecision

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.pyfunc import PyFuncModel

MODEL = "conductor"
EXPERIMENT = "podium"
CHAMPION, CHALLENGER = "champion", "challenger"
VERDICT = "verdict.json"
"""The artifact of a version's run that says why it was promoted or kept back."""
LIBRARIES = (
    "mlflow",
    "torch",
    "transformers",
    "litellm",
    "pydantic",
    "pyyaml",
    "aiohttp",
    "psutil",
    "sympy",
    "pandas",
)
"""What the served agent needs; their installed versions become the model's requirements."""

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    # With several writers MLflow 3.17 loses spans' USD when it adds them up for a trace.
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_WORKERS": "1",
}


class RegistryError(PodiumError):
    """The registry lacks what was asked for: no such version, no champion, nothing to go back to."""


@dataclass(frozen=True)
class Lineage:
    """What a model version came from; every field becomes a tag. `training_cost_usd` is in USD."""

    git_commit: str
    dvc_revision: str
    policy: str
    """The policy's key: what its scores must name."""
    pool_answers_key: str
    pool_prices_key: str
    recipe: str
    training_cost_usd: float


@dataclass(frozen=True)
class Registered:
    """A model version as the registry knows it."""

    version: str
    run_id: str
    model_id: str
    aliases: tuple[str, ...]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]


def register(
    workspace: Workspace,
    policy: Path,
    pool: Pool,
    rows: Sequence[ScoreRow],
    lineage: Lineage,
    *,
    tags: Mapping[str, str] | None = None,
) -> Registered:
    """Log the serving agent with its policy, pool and scores, and register it as challenger.

    The same policy, pool and scores are registered once: asked again, the version
    that exists is returned. Answers' texts stay out of the store (of GPQA above all).
    Raises `DataError` when the policy folder is not one.
    """
    PolicyCard.read(policy)
    content = _content(policy, pool, rows)
    with connected(workspace) as client:
        model_version = _with_content(client, content)
        if model_version is None:
            all_tags = {**vars(lineage), **(tags or {}), "content": content}
            texts = {key: str(value) for key, value in all_tags.items()}
            model_version = _log(workspace, client, policy, pool, rows, texts)
        client.set_registered_model_alias(MODEL, CHALLENGER, model_version.version)
        return _info(client, model_version.version)


def look_at(workspace: Workspace, against: Registered | None, version: str) -> int:
    """Which challenger of a champion (None: of the place that nobody has yet) this version is, 1 for the first.

    The number is written to the version before anything is judged by it, and stays: a version is a policy with its
    scores, so that the same one judged again, or after a crash, is one look. Whatever the questions were, it
    counts, for what the looks share is the chance that this champion goes to a worse one. Raises `RegistryError`
    when there is no such version.
    """
    tag = f"look_at_{against.version if against else 'nobody'}"
    with connected(workspace) as client:
        known = _version(client, version).tags.get(tag)
        if known is not None:
            return int(known)
        others = client.search_model_versions(f"name = '{MODEL}'")
        look = 1 + max((int(other.tags[tag]) for other in others if tag in other.tags), default=0)
        client.set_model_version_tag(MODEL, version, tag, str(look))
    return look


def promote(workspace: Workspace, version: str, verdict: GateDecision) -> bool:
    """Log the verdict with the version and, when it says so, make the version champion; whether it did.

    A version that was rolled back comes back by a named override only. The champion stays what it is, and
    nothing is written. Raises `RegistryError` when there is no such version.
    """
    with connected(workspace) as client:
        known = _info(client, version)
        before = _by_alias(client, CHAMPION)
        if before is not None and str(before.version) == known.version:
            return True
        client.log_dict(known.run_id, verdict.as_dict(), VERDICT)
        obstacles = [check.name for check in verdict.failed]
        if "rolled_back" in known.tags:
            obstacles.append(f"rolled back ({known.tags['rolled_back']})")
        promoted = verdict.override is not None or (verdict.promote and not obstacles)
        outcome = "promoted" if promoted else f"kept back: {', '.join(obstacles)}"
        client.set_model_version_tag(MODEL, version, "verdict", outcome)
        if verdict.override is not None:
            person = f"{verdict.override.name}: {verdict.override.reason}"
            client.set_model_version_tag(MODEL, version, "override", person)
        if promoted:
            if before is not None:
                client.set_model_version_tag(MODEL, version, "replaced", str(before.version))
            client.set_registered_model_alias(MODEL, CHAMPION, version)
    return promoted


def recorded_decision(workspace: Workspace, version: str) -> GateDecision:
    """What was last decided about a version; of one that was never judged, that it is not promoted.

    Raises `RegistryError` when there is no such version.
    """
    if not store_exists(workspace):
        raise RegistryError(f"There is no version {version} of {MODEL}: nothing is registered yet")
    with connected(workspace) as client, TemporaryDirectory() as folder:
        run = _info(client, version).run_id
        if VERDICT not in {file.path for file in client.list_artifacts(run)}:
            return GateDecision(promote=False, checks=())
        text = Path(client.download_artifacts(run, VERDICT, folder)).read_text(encoding="utf-8")
    return GateDecision.of(json.loads(text))


def attach(workspace: Workspace, policy: str, files: Sequence[Path], folder: str) -> list[str]:
    """Add files to the artifacts of every version that holds the policy of that key, replacing those of their names.

    Returns the versions, oldest first; none where the policy is not registered.
    """
    if not store_exists(workspace):
        return []
    with connected(workspace) as client:
        found = client.search_model_versions(f"name = '{MODEL}' and tags.policy = '{policy}'")
        for model_version in found:
            for file in files:
                client.log_artifact(str(model_version.run_id), str(file), folder)
        return sorted((str(model_version.version) for model_version in found), key=int)


def rollback(workspace: Workspace, reason: str) -> Registered:
    """Make the version that the champion replaced champion again, noting why on the one that goes.

    Raises `RegistryError` when there is no champion, or it replaced none.
    """
    missing = "There is no champion to roll back. Promote a version first"
    if not store_exists(workspace):
        raise RegistryError(missing)
    with connected(workspace) as client:
        now = _by_alias(client, CHAMPION)
        if now is None:
            raise RegistryError(missing)
        before = now.tags.get("replaced")
        if before is None or before == str(now.version):
            raise RegistryError(f"Champion version {now.version} replaced no other: there is nothing to go back to")
        client.set_registered_model_alias(MODEL, CHAMPION, _version(client, before).version)
        client.set_model_version_tag(MODEL, now.version, "rolled_back", reason)
        return _info(client, before)


def champion(workspace: Workspace) -> Registered | None:
    """The version with alias `champion`, or None; an empty store is not created by asking."""
    return _aliased(workspace, CHAMPION)


def challenger(workspace: Workspace) -> Registered | None:
    """The version that was registered last, or None."""
    return _aliased(workspace, CHALLENGER)


def challenger_of(workspace: Workspace, policy: str) -> Registered:
    """The challenger, which must hold the policy of that key: a verdict on other scores would say nothing of it.

    Raises `RegistryError`.
    """
    known = challenger(workspace)
    if known is None:
        raise RegistryError("There is no challenger. Materialize registered_model first")
    if (held := known.tags.get("policy")) != policy:
        raise RegistryError(
            f"The challenger, version {known.version}, holds policy {held or 'of an unknown key'}; the scores are of "
            f"{policy}. Materialize registered_model first"
        )
    return known


def _aliased(workspace: Workspace, alias: str) -> Registered | None:
    if not store_exists(workspace):
        return None
    with connected(workspace) as client:
        model_version = _by_alias(client, alias)
        return _info(client, model_version.version) if model_version else None


def score_rows(workspace: Workspace, registered: Registered) -> list[ScoreRow]:
    """The per-question scores stored with a version, for pairing; completions and answers are empty."""
    with connected(workspace) as client, TemporaryDirectory() as folder:
        return load_rows(Path(client.download_artifacts(registered.run_id, "scores.parquet", folder)))


def predict(workspace: Workspace, request: Mapping[str, Any], alias: str = CHAMPION) -> dict[str, Any]:
    """Load `models:/conductor@ALIAS` and let it answer one Responses request; MLflow keeps the trace.

    Raises `RegistryError` when there is no such version, and what the agent raises.
    """
    with loaded(workspace, alias) as model:
        return cast("dict[str, Any]", model.predict(dict(request)))


@contextmanager
def loaded(workspace: Workspace, alias: str = CHAMPION) -> Iterator[PyFuncModel]:
    """`models:/conductor@ALIAS`, whose traces MLflow keeps in this store.

    Raises `RegistryError` when there is no such version.
    """
    missing = f"There is no {alias} yet. `podium run` trains and promotes one"
    if not store_exists(workspace):
        raise RegistryError(missing)
    with connected(workspace) as client:
        if _by_alias(client, alias) is None:
            raise RegistryError(missing)
        import mlflow

        mlflow.set_experiment(experiment_id=experiment(client, workspace))  # where the trace belongs
        yield mlflow.pyfunc.load_model(f"models:/{MODEL}@{alias}")
        mlflow.flush_trace_async_logging()  # while mlflow is still set to this store


def store_exists(workspace: Workspace) -> bool:
    """Whether the tracking store can hold anything: a server, or a SQLite file that is there."""
    uri = workspace.mlflow_uri
    return not uri.startswith("sqlite:///") or Path(uri.removeprefix("sqlite:///")).is_file()


def metrics_of(rows: Sequence[ScoreRow]) -> dict[str, float]:
    """Flat metrics (`BENCHMARK/accuracy`, `…/standard_error` …) and the two means; NaN is left out."""
    summaries = summarize(rows)
    metrics: dict[str, float] = {}
    for name, summary in summaries.items():
        metrics |= {
            f"{name}/accuracy": summary.accuracy.mean,
            f"{name}/standard_error": summary.accuracy.standard_error,
            f"{name}/tokens": summary.tokens,
            f"{name}/usd": summary.cost_usd,
            f"{name}/latency_s": summary.latency_s,
            f"{name}/steps": summary.steps,
            f"{name}/format_compliance": summary.format_compliance,
            f"{name}/unscorable": float(summary.unscorable),
        }
    for label, names in (("in_domain", training_benchmarks()), ("unseen", unseen_benchmarks())):
        mean = mean_of([summaries[name].accuracy for name in names if name in summaries])
        metrics |= {f"{label}/accuracy": mean.mean, f"{label}/standard_error": mean.standard_error}
    return {key: value for key, value in metrics.items() if not math.isnan(value)}


# ── inside ───────────────────────────────────────────────────────────────────


@contextmanager
def connected(workspace: Workspace) -> Iterator[MlflowClient]:
    """A client of the workspace's store, to which mlflow's own functions are set meanwhile."""
    need_mlflow()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if workspace.mlflow_uri.startswith("sqlite:///"):
        Path(workspace.mlflow_uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(workspace.mlflow_uri)
    try:
        yield mlflow.MlflowClient()
    finally:
        # MLflow mirrors the address in the environment, which `Workspace` reads: put back what was there.
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
        if given is not None:
            os.environ["MLFLOW_TRACKING_URI"] = given


def experiment(client: MlflowClient, workspace: Workspace) -> str:
    """The id of Podium's experiment, made now unless it exists."""
    existing = client.get_experiment_by_name(EXPERIMENT)
    if existing is not None:
        return str(existing.experiment_id)
    local = workspace.mlflow_uri.startswith("sqlite:///")  # a server decides itself where artifacts go
    return client.create_experiment(EXPERIMENT, workspace.mlflow_artifacts.as_uri() if local else None)


def _log(
    workspace: Workspace,
    client: MlflowClient,
    policy: Path,
    pool: Pool,
    rows: Sequence[ScoreRow],
    tags: dict[str, str],
) -> ModelVersion:
    import mlflow

    home = experiment(client, workspace)
    with (
        TemporaryDirectory() as scratch,
        mlflow.start_run(experiment_id=home, run_name=tags["recipe"], tags=tags),
    ):
        files = _stage(workspace, Path(scratch), policy, pool, rows)
        logged = mlflow.pyfunc.log_model(
            name=MODEL,
            python_model=str(resources() / "mlflow" / "agent.py"),
            artifacts={"policy": str(files["policy"]), "pool": str(files["pool"])},
            code_paths=[str(files["ops"]), str(files["data"])],
            pip_requirements=_requirements(),
            input_example={
                "input": [{"role": "user", "content": "What is 6 * 7?"}],
                "custom_inputs": {"execute": False},  # logging a model must not ask, or pay, any worker
            },
            model_config={"root": str(workspace.root), "question_usd": 1.0, "policy": tags["policy"]},
            tags=tags,
        )
        mlflow.log_metrics(metrics_of(rows), model_id=logged.model_id)
        mlflow.log_artifact(str(files["scores"]))
        mlflow.log_artifact(str(files["pool"]))
    with redirect_stderr(StringIO()):  # it announces itself there
        return mlflow.register_model(f"models:/{logged.model_id}", MODEL, tags=tags)


def _stage(workspace: Workspace, scratch: Path, policy: Path, pool: Pool, rows: Sequence[ScoreRow]) -> dict[str, Path]:
    """Lay out what the model carries; the code keeps its place beside the small tables that it reads."""
    import ops

    source = Path(ops.__file__).resolve().parent
    files = {name: scratch / name for name in ("policy", "ops", "data")}
    shutil.copytree(policy, files["policy"], ignore=shutil.ignore_patterns("checkpoint-*", "optimizer*", "__pycache__"))
    shutil.copytree(source, files["ops"], ignore=shutil.ignore_patterns("__pycache__"))
    files["data"].mkdir()
    for name in ("knowledge", "few_shots"):
        shutil.copytree(resources() / "data" / name, files["data"] / name)
    files["pool"], files["scores"] = scratch / "pool.yaml", scratch / "scores.parquet"
    files["pool"].write_text(resolved(pool), encoding="utf-8")
    save_rows(rows, files["scores"], texts=False)
    return files


def _requirements() -> list[str]:
    requirements = []
    for name in LIBRARIES:
        try:
            requirements.append(f"{name}=={version(name).partition('+')[0]}")
        except PackageNotFoundError:
            logging.getLogger(__name__).warning("%s is not installed: left out of the model's requirements", name)
    return requirements


def _content(policy: Path, pool: Pool, rows: Sequence[ScoreRow]) -> str:
    """Hash of what makes two versions the same: the policy's files, what the pool answers, the scores."""
    files = [
        [str(file.relative_to(policy)), hashlib.sha256(file.read_bytes()).hexdigest()]
        for file in sorted(policy.rglob("*"))
        if file.is_file()
    ]
    scores = sorted([row.problem_key, row.repeat, row.correct, row.unscorable] for row in rows)
    return digest([files, pool.answers_key, scores])


def _with_content(client: MlflowClient, content: str) -> ModelVersion | None:
    versions = client.search_model_versions(f"name = '{MODEL}' and tags.content = '{content}'")
    return max(versions, key=lambda model_version: int(model_version.version), default=None)


def _by_alias(client: MlflowClient, alias: str) -> ModelVersion | None:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(MODEL, alias)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def _version(client: MlflowClient, version: str) -> ModelVersion:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version(MODEL, version)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        raise RegistryError(f"There is no version {version} of {MODEL}: see `mlflow models` or the UI") from None


def _info(client: MlflowClient, version: str) -> Registered:
    model_version = _version(client, version)
    # The SQL store keeps the logged model's id in the source alone.
    model_id = model_version.model_id or str(model_version.source).removeprefix("models:/")
    model = client.get_logged_model(model_id)
    return Registered(
        version=str(model_version.version),
        run_id=str(model_version.run_id),
        model_id=model_id,
        aliases=tuple(sorted(model_version.aliases)),
        tags=dict(model_version.tags),
        metrics={metric.key: metric.value for metric in model.metrics or []},
    )
