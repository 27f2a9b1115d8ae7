"""The deployment of docs/deployment.md: valid by its schemas, without secrets, and consistent with the code."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config
from dagster._core.storage.tags import GRPC_INFO_TAG

from assets import partitions, placement
from assets.dagster_private import WorkerStatus
from assets.resources import EXCLUSIVE_RUN_TAGS, SNAPSHOT_TAG, RunResource
from ops.core.errors import ConfigError, PodiumError
from ops.core.processes import lock_files
from ops.core.workspace import Workspace
from ops.serving.http.access import TOKENS_VARIABLE, AccessControl
from pipelines.commands.team import JOBS as NAMED_JOBS
from pipelines.commands.team import _open_workspace
from pipelines.definitions import make_definitions
from pipelines.launching import submit_run
from pipelines.lifecycle import JOBS
from pipelines.run_launcher import CodeServerLauncher
from tests.team.fleet import PROGRAMS, listens
from tests.team.servers import Process, free_port, until
from tests.unit.test_home import HOLD, python

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "config" / "deploy" / "kubernetes").glob("*.yaml"))


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return loaded


def manifest(name: str, kind: str) -> dict[str, Any]:
    documents = (each for file in MANIFESTS for each in yaml.safe_load_all(file.read_text(encoding="utf-8")))
    [found] = [each for each in documents if (each["metadata"]["name"], each["kind"]) == (name, kind)]
    return found


def test_compose_keeps_to_its_schema() -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed (pip install -e '.[dev]')")
    import jsonschema

    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(compose(), json.loads(schema.read_text(encoding="utf-8")))


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_kubernetes_manifests_keep_to_their_schemas(file: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install -e '.[dev]'")
    documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    assert documents
    for document in documents:
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_a_misspelt_field_of_a_manifest_is_reported() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    document = yaml.safe_load((ROOT / "config/deploy/kubernetes/3-setup.yaml").read_text(encoding="utf-8"))
    document["spec"]["template"]["spec"]["restartPolicies"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_no_file_holds_a_secret_and_every_variable_is_in_the_example() -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    deployed = [ROOT / "compose.yaml", ROOT / "Dockerfile", *MANIFESTS, *(ROOT / "config" / "team").iterdir()]
    for file in deployed:
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r"(?<!\$)\$\{(\w+)", text):
            assert f"{name}=" in example, f"{file.name}: {name}"
        for value in re.findall(r"^ *\w*(?:PASSWORD|SECRET|KEY)\w*\s*[:=]\s*(\S+)", text, re.MULTILINE):
            assert value.startswith("${"), f"{file.name}: {value}"
        for user, password in re.findall(r"//(\w*):([^@\s]*)@", text):
            assert password.startswith("${") or password == "PASSWORD", f"{file.name}: {user}"
    services = compose()["services"]
    for published in (port for service in services.values() for port in service.get("ports", ())):
        assert published.startswith("127.0.0.1:"), "nothing is published beyond loopback"


OTHERS_SET = {
    "RANK", "LOCAL_RANK", "ACCELERATE_USE_DEEPSPEED",  # accelerate's launcher
    "PODIUM_PARENT",  # Podium, for the trainer that it starts
    "CUDA_VISIBLE_DEVICES",  # set by the scheduler of the GPUs
}  # fmt: skip
"""Variables that the code reads and that no person sets in `.env`, with the program that sets them."""


def test_every_variable_that_the_code_reads_is_in_the_example() -> None:
    example = set(re.findall(r"^#?(\w+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    read = variables_read()
    assert {"PODIUM_ROOT", "PODIUM_SERVE_TOKENS", "VLLM_API_KEY", "PODIUM_NODES"} <= read, "the search finds them"
    pools = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in (ROOT / "config" / "pools").glob("*.yaml"))
    keys = {worker["api_key_env"] for pool in pools for worker in pool["workers"] if worker.get("api_key_env")}
    assert read - OTHERS_SET | keys <= example, (read - OTHERS_SET | keys) - example
    assert read >= OTHERS_SET, "no longer read"


def variables_read() -> set[str]:
    """Return the names that modules read from `os.environ`: strings, and constants that a module has."""
    names: set[str | None] = set()
    for file in (file for layer in ("ops", "assets", "pipelines", "mlflow") for file in (ROOT / layer).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(text)) if "environ" in text or "getenv" in text else ()
        for asked in filter(None, map(_asked, nodes)):
            if isinstance(asked, ast.Constant):
                names.add(str(asked.value))
            elif isinstance(asked, ast.Name):
                module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
                names.add(getattr(importlib.import_module(module), asked.id, None))
    return {name for name in names if name}


def _asked(node: ast.AST) -> ast.expr | None:
    """Return the variable that is read from `os.environ` here, if any."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv"):
        return node.args[0]
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ" and isinstance(node.ctx, ast.Load):
        return node.slice
    if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "os.environ":
        return node.left
    return None


def test_compose_and_kubernetes_set_everything_that_serving_requires() -> None:
    serving = compose()["services"]["serve"]
    host = serving["command"][serving["command"].index("--host") + 1]
    with pytest.raises(ConfigError, match=TOKENS_VARIABLE):
        AccessControl.from_environment(host)
    assert TOKENS_VARIABLE in serving["environment"]
    assert set(compose()["x-podium"]["environment"]) <= serving["environment"].keys(), "the engines, too"
    [pod] = manifest("podium-serve", "Deployment")["spec"]["template"]["spec"]["containers"]
    secret = {"secretKeyRef": {"name": "podium", "key": TOKENS_VARIABLE}}
    assert {"name": TOKENS_VARIABLE, "valueFrom": secret} in pod["env"], "without the key the pod says what is missing"
    assert TOKENS_VARIABLE in (ROOT / "config/deploy/kubernetes/0-namespace.yaml").read_text(encoding="utf-8")
    assert pod["readinessProbe"]["httpGet"]["path"] == "/health"


def test_the_teams_instances_are_valid_for_dagster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dagster_k8s", reason="pip install -e '.[team]'")
    settings = manifest("podium-dagster", "ConfigMap")["data"]["dagster.yaml"]
    team = (ROOT / "config" / "team" / "dagster.yaml").read_text(encoding="utf-8")
    for text in (team, settings):
        (tmp_path / "dagster.yaml").write_text(text, encoding="utf-8")
        monkeypatch.setenv("PODIUM_DAGSTER_URL", "postgresql+psycopg2://podium@127.0.0.1:1/none")
        assert dagster_instance_config(str(tmp_path))
        freed = yaml.safe_load(text)["run_monitoring"]["free_slots_after_run_end_seconds"]
        assert freed > 0, "a dead run would keep the slot that its retry waits for"
    for name in ("storage", "run_coordinator", "concurrency", "run_retries"):
        assert yaml.safe_load(team)[name] == yaml.safe_load(settings)[name], name


def test_the_command_knows_the_jobs() -> None:
    assert set(NAMED_JOBS) <= JOBS.keys()


def test_without_the_variable_the_commands_say_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PODIUM_TEAM", "PODIUM_DAGSTER_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PodiumError, match="podium run"):
        _open_workspace()
    monkeypatch.setenv("PODIUM_TEAM", "1")
    monkeypatch.setenv("PODIUM_DAGSTER_URL", "postgresql://u:secret@h/db")
    with pytest.raises(ConfigError, match=r"does not begin with postgresql\+psycopg2") as caught:
        _open_workspace()
    assert "secret" not in str(caught.value)


# ── a run in the queue ───────────────────────────────────────────────────────


@pytest.mark.timeout(300)
def test_a_teams_run_waits_in_the_queue_and_works_from_one_snapshot(project: Workspace) -> None:
    resource = RunResource(root=str(project.root), recipe="quickstart")
    with queueing(project) as instance:
        run = instance.get_run_by_id(submit_run(resource, instance, "train"))
        assert run is not None and run.status == dg.DagsterRunStatus.QUEUED
        assert (run.job_name, SNAPSHOT_TAG in run.tags) == ("train", True)
        assert (EXCLUSIVE_RUN_TAGS | partitions.tag_all_benchmarks()).items() <= run.tags.items()
        with pytest.raises(PodiumError, match=f"train run {run.run_id[:8]} is not finished"):
            submit_run(resource, instance)
        instance.report_run_failed(run)
        refused = pytest.raises(PodiumError, match="another pipeline run of this workspace is going on")
        with python(HOLD, str(project.root)), refused:  # one that this instance does not know of
            submit_run(resource, instance)


def test_a_run_of_dagsters_is_refused_while_a_command_executes_another(project: Workspace) -> None:
    resource = RunResource(root=str(project.root), recipe="quickstart")
    job = make_definitions(resource).resolve_job_def("lifecycle")
    with (
        python(HOLD, str(project.root)),
        dg.DagsterInstance.ephemeral() as instance,
        pytest.raises(dg.DagsterError) as failed,
    ):
        job.execute_in_process(instance=instance, run_config=resource.make_run_config())
    assert "another pipeline run of this workspace is going on" in str(failed.value.__cause__)
    assert not project.data.joinpath("raw").exists(), "nothing was done"


@contextmanager
def queueing(project: Workspace) -> Iterator[dg.DagsterInstance]:
    """An instance with the queue of dagster.yaml, whose daemon is away."""
    project.state.mkdir(exist_ok=True)
    queue = {"module": "pipelines.run_queue", "class": "RunQueue"}
    with dg.DagsterInstance.local_temp(str(project.state), overrides={"run_coordinator": queue}) as instance:
        yield instance


def test_a_run_whose_code_server_was_restarted_has_failed(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("import dagster as dg\n\ndefs = dg.Definitions()\n", encoding="utf-8")
    port, launcher = free_port(), CodeServerLauncher()
    command = [str(PROGRAMS / "dagster"), "api", "grpc", "-f", str(tmp_path / "code.py"), "-p", str(port)]
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        launcher.register_instance(instance)
        at = json.dumps({"host": "127.0.0.1", "port": port})
        run = instance.create_run_for_job(of_no_step, tags={GRPC_INFO_TAG: at})
        assert launcher.check_run_worker_health(run).status == WorkerStatus.RUNNING, "no answer, no news"
        server = Process(command, tmp_path / "server.log")
        try:
            until(lambda: listens(port), "the code server answers")
            assert launcher.check_run_worker_health(run).status == WorkerStatus.FAILED
        finally:
            server.stop()


@dg.job
def of_no_step() -> None: ...


# ── where work is done ───────────────────────────────────────────────────────


def test_a_pod_with_gpus_only_on_kubernetes_and_only_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        placement.EXECUTOR_VARIABLE,
        placement.GPUS_VARIABLE,
        placement.GPU_NODES_VARIABLE,
        placement.GPU_IMAGE_VARIABLE,
    ):
        monkeypatch.delenv(name, raising=False)
    assert placement.make_gpu_tags() == {} and placement.make_executor() is dg.in_process_executor
    monkeypatch.setenv(placement.EXECUTOR_VARIABLE, "multiprocess")
    assert placement.make_gpu_tags() == {} and placement.make_executor() is placement.forking_executor
    monkeypatch.setenv(placement.EXECUTOR_VARIABLE, "kubernetes")
    monkeypatch.setenv(placement.GPUS_VARIABLE, "2")
    monkeypatch.setenv(placement.GPU_NODES_VARIABLE, "gpu=h100")
    monkeypatch.setenv(placement.GPU_IMAGE_VARIABLE, "podium-gpu:latest")
    pod = placement.make_gpu_tags()["dagster-k8s/config"]
    assert pod["container_config"]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert pod["pod_spec_config"]["node_selector"] == {"gpu": "h100"}
    assert pod["container_config"]["image"] == "podium-gpu:latest"
    k8s = pytest.importorskip("dagster_k8s")
    assert placement.make_executor() is k8s.k8s_job_executor
    from dagster_k8s.job import UserDefinedDagsterK8sConfig

    assert UserDefinedDagsterK8sConfig.from_dict(pod).pod_spec_config["node_selector"] == {"gpu": "h100"}
    monkeypatch.setenv(placement.GPUS_VARIABLE, "0")
    assert placement.make_gpu_tags() == {"dagster-k8s/config": {}}
    monkeypatch.setenv(placement.EXECUTOR_VARIABLE, "slurm")
    with pytest.raises(ConfigError, match="in_process, multiprocess, kubernetes"):
        placement.make_executor()


def test_a_step_of_its_own_process_is_forked_and_a_run_may_still_bound_them() -> None:
    @dg.job(executor_def=placement.forking_executor)
    def nothing() -> None: ...

    for bounds in ({}, {"max_concurrent": 1}):
        resolved = dg.validate_run_config(nothing, {"execution": {"config": bounds}})["execution"]["multiprocess"]
        assert "pipelines.definitions" in resolved["start_method"]["forkserver"]["preload_modules"]
        assert resolved["max_concurrent"] == bounds.get("max_concurrent")


# ── who writes what ──────────────────────────────────────────────────────────


def test_writers_of_different_files_go_side_by_side_and_of_the_same_one_waits(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    one, two = (workspace.data / "responses" / name / "mmlu.parquet" for name in ("one", "two"))
    inside, order = threading.Barrier(2, timeout=60), []

    def write(file: Path) -> None:
        with lock_files(workspace, file):
            inside.wait(60)

    def write_after() -> None:
        with lock_files(workspace, two, one):
            order.append("second")

    with ThreadPoolExecutor(2) as threads:
        for written in [threads.submit(write, file) for file in (one, two)]:
            written.result(60)  # both were inside at once
        with lock_files(workspace, one):
            waiting = threads.submit(write_after)
            time.sleep(0.3)
            order.append("first")
        waiting.result(60)
    assert order == ["first", "second"]
    assert os.listdir(workspace.state / "locks")  # noqa: PTH208
