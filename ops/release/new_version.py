"""Log a new version of the model in MLflow with its contents, its origin and its scores."""

from __future__ import annotations

import json
import math
import shutil
import time
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ops.benchmarks.problem_files import raw_file, read_problems
from ops.benchmarks.registry import is_confidential, ood_benchmarks, training_benchmarks
from ops.config import Pool, digest, dump_settings, hyperparameters
from ops.core.atomic import sha256_of
from ops.core.digests import DIGEST_SUFFIX, SUMS_FILE
from ops.core.installation import resources_folder
from ops.core.mlflow_runs import PURPOSE_TAG, name_run
from ops.core.workspace import Workspace
from ops.release.artifacts import FILES_TAG, hash_files
from ops.release.lineage import COST_TAGS, Lineage, read_question_keys
from ops.release.mlflow_store import MODEL_NAME, RUN_SOURCE, get_or_create_experiment
from ops.release.model_card import CARD_FILE, MODEL_DESCRIPTION, Release
from ops.release.requirements import list_requirements
from ops.results.statistics import average_estimates
from ops.results.summary import mean_usd, select_grades, summarize
from ops.results.table import Rows, save_rows
from ops.serving.scope import TrainingScope
from ops.serving.worker_strengths import WorkerStrengths

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

INPUT_EXAMPLE = {"input": [{"role": "user", "content": "What is 6 * 7?"}]}
"""The question that MLflow shows as the example of a version's input."""
_EXCLUDED_FILES = ("checkpoint-*", "optimizer*", "*.bin", "*.pt", "*.pkl", "__pycache__", SUMS_FILE)
"""Files of a policy that serving does not need. Pickles such as `training_args.bin` also contain paths of the machine.
The digests of a version's files are in one of its tags instead."""


def log_version(
    workspace: Workspace, client: MlflowClient, policy: Path, release: Release, tags: dict[str, str]
) -> ModelVersion:
    """Log the agent with its policy, pool and scores as a model, and register it. `tags` become the tags of the
    version."""
    import mlflow

    home = get_or_create_experiment(client, workspace)
    described = {"mlflow.note.content": release.write_summary(), "licence": release.describe_licence()}
    parameters = {} if release.recipe is None else hyperparameters(release.recipe)
    if (scope := measure_scope(workspace, release)) is not None:
        parameters["scope.least"] = f"{scope.min_known_share:.4f}"
    if not math.isnan(usd := mean_usd(release.rows)):
        tags = tags | {"usd_a_question": f"{usd:.6f}"}
    tags = tags | {"pool": release.pool.name}
    of_run = tags | described | _source_tags(release.lineage) | {PURPOSE_TAG: "release"}
    with (
        TemporaryDirectory() as scratch,
        mlflow.start_run(experiment_id=home, run_name=name_run("release", tags["policy"]), tags=of_run) as active,
    ):
        files = _stage_contents(workspace, Path(scratch), policy, release, scope)
        found = hash_files({
            "artifacts/policy": files["policy"], "artifacts/pool.yaml": files["pool"], "agent.py": files["agent"],
            "code/ops": files["ops"], "code/data": files["data"],
        })  # fmt: skip
        mlflow.log_params(parameters)
        mlflow.log_metrics({name: getattr(release.lineage, name) for name in COST_TAGS})
        logged = mlflow.pyfunc.log_model(
            name=MODEL_NAME,
            python_model=str(files["agent"]),
            artifacts={"policy": str(files["policy"]), "pool": str(files["pool"])},
            code_paths=[str(files["ops"]), str(files["data"])],
            pip_requirements=list_requirements(files["agent"], files["ops"]),
            # Logging a model must not pay any worker, also not one that writes the workflows.
            input_example=INPUT_EXAMPLE | {"custom_inputs": {"execute": False, "budget_usd": 1e-9}},
            model_config={
                "question_usd": 1.0,
                "policy": tags["policy"],
                "strengths": WorkerStrengths.load(workspace.data).as_dict(),
            },
            params=parameters,
            tags=tags | described,
        )
        client.log_model_artifact(logged.model_id, str(files["card"]))
        _log_data(client, workspace, release, active.info.run_id, logged.model_id)
        _link_checkpoint(client, release, active.info.run_id)
        for name in ("scores", "scores_digest", "pool", "card"):
            mlflow.log_artifact(str(files[name]))
    with redirect_stderr(StringIO()):  # otherwise the library prints an announcement
        own = tags | {"licence": release.describe_licence(), FILES_TAG: json.dumps(found)}
        made = mlflow.register_model(f"models:/{logged.model_id}", MODEL_NAME, tags=own)
    _describe(client, release, made)
    return made


def _source_tags(lineage: Lineage) -> dict[str, str]:
    return {
        "mlflow.source.name": RUN_SOURCE,
        "mlflow.source.type": "PROJECT",
        "mlflow.source.git.commit": lineage.git_commit,
    }


def _log_data(client: MlflowClient, workspace: Workspace, release: Release, run: str, model_id: str) -> None:
    """Log the version's data by name and hash, and its scores by benchmark."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric

    source = json.dumps({"tags": {"mlflow.source.name": RUN_SOURCE, "dvc_revision": release.lineage.dvc_revision}})
    questions = read_question_keys(release.lineage.as_tags())
    used = {name: ("evaluation", questions.get(name, "unknown")) for name in summarize(release.rows)}
    mix = workspace.data / "training_mix.jsonl"
    if mix.is_file():
        used["training_mix"] = ("training", sha256_of(mix)[:12])
    data = [
        DatasetInput(Dataset(name, key, "code", source), [InputTag("mlflow.data.context", context)])
        for name, (context, key) in used.items()
    ]
    client.log_inputs(run, datasets=data)
    now, metrics = time.time_ns() // 1_000_000, []
    for name, value in compute_metrics(release.rows).items():
        benchmark = name.partition("/")[0]
        dataset, key = (benchmark, used[benchmark][1]) if benchmark in used else (None, None)
        metrics.append(Metric(name, value, now, 0, model_id, dataset, key, run))
    client.log_batch(run, metrics=metrics)


def _link_checkpoint(client: MlflowClient, release: Release, run: str) -> None:
    """Name the training's last checkpoint as what the version was made of, and give it the version's scores."""
    from mlflow.entities import LoggedModelInput, Metric

    if release.checkpoint is None:
        return
    client.log_inputs(run, models=[LoggedModelInput(release.checkpoint)])
    client.set_logged_model_tags(release.checkpoint, {"dvc_revision": release.lineage.dvc_revision, "release_run": run})
    step, now = int(client.get_logged_model(release.checkpoint).tags["step"]), time.time_ns() // 1_000_000
    scores = compute_metrics(release.rows).items()
    client.log_batch(run, [Metric(name, value, now, step, release.checkpoint, run_id=run) for name, value in scores])


def _describe(client: MlflowClient, release: Release, made: ModelVersion) -> None:
    """Write the descriptions of model and version, and link the version at each training run."""
    runs = release.training_runs or {}
    experiments = {run: str(client.get_run(run).info.experiment_id) for run in runs.values()}
    client.update_registered_model(MODEL_NAME, MODEL_DESCRIPTION)
    if release.checkpoint is not None:
        experiments[release.checkpoint] = str(client.get_logged_model(release.checkpoint).experiment_id)
    client.update_model_version(MODEL_NAME, made.version, release.write_description(experiments))
    name = name_run("release", f"of version {made.version}", release.lineage.policy)
    client.update_run(str(made.run_id), name=name)
    client.set_tag(str(made.run_id), "model_version", str(made.version))
    for stage, run in runs.items():
        client.set_tag(str(made.run_id), f"training_run.{stage}", run)
        client.set_tag(run, "release_run", str(made.run_id))
        client.set_tag(run, "model_version", str(made.version))
        for name in COST_TAGS:
            client.set_tag(run, name, str(getattr(release.lineage, name)))
    if release.checkpoint is not None:
        client.set_logged_model_tags(release.checkpoint, {"model_version": str(made.version)})


def _stage_contents(
    workspace: Workspace, scratch: Path, policy: Path, release: Release, scope: TrainingScope | None
) -> dict[str, Path]:
    """Lay out the contents of the model; the code keeps its place beside the small tables that it reads.

    The agent is copied too, because MLflow records the path that it was read from.
    """
    import ops

    source = Path(ops.__file__).resolve().parent
    files = {name: scratch / name for name in ("policy", "ops", "data")}
    shutil.copytree(policy, files["policy"], ignore=shutil.ignore_patterns(*_EXCLUDED_FILES))
    if scope is not None:
        scope.write(files["policy"])
    shutil.copytree(source, files["ops"], ignore=shutil.ignore_patterns("__pycache__"))
    files["data"].mkdir()
    shutil.copytree(resources_folder() / "data" / "knowledge", files["data"] / "knowledge")
    written = workspace.texts / "few_shots"
    shutil.copytree(
        written if written.is_dir() else resources_folder() / "data" / "few_shots", files["data"] / "few_shots"
    )
    files["agent"] = Path(shutil.copy(resources_folder() / "mlflow" / "agent.py", scratch))
    files["pool"], files["scores"] = scratch / "pool.yaml", scratch / "scores.parquet"
    files["pool"].write_text(dump_settings(release.pool), encoding="utf-8")
    save_rows(release.rows, files["scores"], texts=False)
    files["scores_digest"] = files["scores"].with_name(files["scores"].name + DIGEST_SUFFIX)
    files["card"] = scratch / CARD_FILE
    files["card"].write_text(release.write_model_card(scope), encoding="utf-8")
    return files


def measure_scope(workspace: Workspace, release: Release) -> TrainingScope | None:
    """Measure what a policy that was trained from scratch was trained on; return None for any other policy.

    An untrained policy has no training mix. A pretrained language model has read far more than its mix, and on real
    questions the measure does not separate its training from other questions (docs/serving.md). No scope is measured
    for a mix with confidential questions, because not even hashes of their words may be published.
    """
    mix_file = workspace.data / "training_mix.jsonl"
    if release.recipe is None or release.card.untrained or release.card.pretrained or not mix_file.is_file():
        return None
    mix = read_problems(mix_file)
    names = sorted({problem.benchmark for problem in mix})
    if any(name not in release.recipe.benchmarks or is_confidential(name) for name in names):
        return None
    files = [file for name in names if (file := raw_file(workspace, release.recipe, name, "test")).is_file()]
    tests = [problem.question for file in files for problem in read_problems(file)]
    return TrainingScope.measure([problem.question for problem in mix], tests)


def compute_content_key(policy: Path, pool: Pool, rows: Rows) -> str:
    """Return a hash over everything that makes two versions the same: the policy's files, the pool's answers key and
    the scores."""
    files = [
        [str(file.relative_to(policy)), sha256_of(file)]
        for file in sorted(policy.rglob("*"))
        if file.is_file() and not any(file.relative_to(policy).match(pattern) for pattern in _EXCLUDED_FILES)
    ]
    scores = [list(row) for row in select_grades(rows).iter_rows()]
    return digest([files, pool.answers_key, scores])


def compute_metrics(rows: Rows) -> dict[str, float]:
    """Return the version's metrics by name: `BENCHMARK/accuracy`, `BENCHMARK/standard_error` and so on, and the two
    means. A metric that is NaN is left out.

    `…/accuracy_low` and `…/accuracy_high` are the ends of the 95 % interval.
    """
    summaries = summarize(rows)
    metrics = {f"{name}/{key}": value for name, each in summaries.items() for key, value in each.metrics.items()}
    for label, names in (("in_domain", training_benchmarks()), ("unseen", ood_benchmarks())):
        mean = average_estimates([summaries[name].accuracy for name in names if name in summaries])
        metrics |= {f"{label}/accuracy": mean.mean, f"{label}/standard_error": mean.standard_error}
        metrics |= {f"{label}/accuracy_low": mean.low, f"{label}/accuracy_high": mean.high}
    return {key: value for key, value in metrics.items() if not math.isnan(value)}
