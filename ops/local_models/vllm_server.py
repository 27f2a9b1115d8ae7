"""Start, check and stop vLLM servers for workers of the pool and for policies.

vLLM is installed in a virtual environment of its own (`$PODIUM_VLLM_PYTHON`, or else `.venv-vllm`), because it pins
torch and other packages more tightly than Podium does. With the extra `gpu` it is in Podium's own environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from filelock import FileLock

from ops.config import Pool, Serve, Worker
from ops.core.atomic import write_text
from ops.core.errors import ConfigError, WorkerUnreachable
from ops.core.installation import make_command
from ops.core.processes import free_port, unique_process_name
from ops.core.workspace import Workspace

START_TIMEOUT_S = 600.0
"""Seconds until a server must answer. A CPU under load needs a minute, and a large model on a GPU needs several."""
STOP_TIMEOUT_S = 20.0
"""Seconds until a server must have ended after a signal."""
GPU_SHARE = 0.9
"""The share (0-1) of each GPU's memory that a served policy may use for weights, activations and cache. No training
runs on the GPU at that time."""
_POLL_S = 0.5
_LOG_LINES = 15


def find_vllm_python(workspace: Workspace) -> Path:
    """Return the path of a Python that has vLLM. Raises `ConfigError` if there is none."""
    named = os.environ.get("PODIUM_VLLM_PYTHON")
    python = Path(named or workspace.root / ".venv-vllm" / "bin" / "python")
    if not named and not python.is_file() and find_spec("vllm") is not None:
        return Path(sys.executable)
    if not python.is_file():
        raise ConfigError(
            python, "", "does not exist: there is no environment with vLLM",
            make_command("vllm-local", "Install vLLM in an environment of its own")
            + ", or name a Python that has vLLM in PODIUM_VLLM_PYTHON",
        )  # fmt: skip
    return python


def build_server_command(worker: Worker, workspace: Workspace) -> list[str]:
    """Return the command line of a worker's server. Raises `ConfigError` for incomplete settings."""
    assert worker.serve is not None
    serve, (host, port) = worker.serve, _local_address(worker)
    folder = workspace.root / serve.model_path
    options = [
        "--model", str(folder) if folder.is_dir() else serve.model_path,
        "--served-model-name", worker.model.partition("/")[2],
        "--host", host, "--port", str(port),
        "--dtype", serve.dtype,
    ]  # fmt: skip
    if serve.max_model_len is not None:
        options += ["--max-model-len", str(serve.max_model_len)]
    if not _has_gpu():
        options.append("--enforce-eager")  # compilation would take longer than the whole run of a small model
        # vLLM 0.32 on a CPU fails if it reads a prompt in two steps and the request has a seed. It then resets its
        # random generator, which is possible only on a GPU ("CPU Generator does not use offset").
        options.append("--no-enable-chunked-prefill")
    # The script `vllm` is not used, because it looks for a package of that name and the CPU build has another name.
    module = ["-m", "vllm.entrypoints.openai.api_server"]
    return [str(find_vllm_python(workspace)), *module, *options, *serve.args]


@contextmanager
def serve_pool(pool: Pool, workspace: Workspace, *, start_s: float = START_TIMEOUT_S) -> Iterator[list[str]]:
    """Inside the block, serve every worker of `pool` that has a `serve` section; yield the names of those started here.

    A server that already answers at the worker's address with its model is used. If Podium did not start it, it is left
    running; otherwise its last user stops it. Raises `ConfigError` (no environment, no port, another program at the
    port), and `WorkerUnreachable` with the end of the server's log if the server ends or does not answer in time.
    """
    with ExitStack() as stack:
        served = [stack.enter_context(_serve_worker(each, workspace, start_s)) for each in pool.workers if each.serve]
        yield [worker.name for worker, started in served if started]


@contextmanager
def serve_model(name: str, serve: Serve, workspace: Workspace, *, start_s: float = START_TIMEOUT_S) -> Iterator[str]:
    """Inside the block, serve one model under the name `name`; yield the server's URL.

    The server has a free port of this machine and uses all of its GPUs, with a replica on each. Processes that serve
    the same name in one workspace share the server, and the last of them stops it. Raises the errors of `serve_pool`.
    """
    if count := count_gpus():
        options = ("--gpu-memory-utilization", str(GPU_SHARE), "--data-parallel-size", str(count))
        serve = serve.model_copy(update={"args": (*options, *serve.args)})
    worker = Worker(name=name, model=f"hosted_vllm/{name}", serve=serve)
    with _serve_worker(worker, workspace, start_s) as (placed, _):
        assert placed.api_base is not None
        yield placed.api_base


def is_up(worker: Worker) -> bool:
    """Return True if the worker's server is healthy and serves its model. Raises `ConfigError` if it serves another
    model."""
    import httpx

    host, port = _local_address(worker)
    try:
        # A proxy that the environment names cannot reach this machine's ports, so it is not used.
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=5, trust_env=False) as client:
            client.get("/health").raise_for_status()
            models = [entry["id"] for entry in client.get("/v1/models").raise_for_status().json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return False
    wanted = worker.model.partition("/")[2]
    if wanted not in models:
        raise ConfigError(
            f"worker {worker.name!r}", "api_base",
            f"{worker.api_base} serves {', '.join(models) or 'nothing'}, and not {wanted!r}",
            "Stop that server or choose another port",
        )  # fmt: skip
    return True


@contextmanager
def _serve_worker(worker: Worker, workspace: Workspace, start_s: float) -> Iterator[tuple[Worker, bool]]:
    """Inside the block, serve a worker; yield the worker with its address, and whether this process owns the server.

    A process owns the server if it started it, or if the runs that used it were killed. Several processes may use one
    server that Podium started, and the last of them stops it. A worker without `api_base` gets the address of the
    server that is recorded under its name, or a free port.
    """
    folder, me = workspace.state / "vllm", unique_process_name(os.getpid())
    folder.mkdir(parents=True, exist_ok=True)
    note, log = folder / f"{worker.name}.json", folder / f"{worker.name}.log"
    lock = FileLock(folder / f"{worker.name}.lock")
    with lock:  # if two processes find no server, only one of them starts it
        if worker.api_base is None:
            worker = worker.model_copy(update={"api_base": _read_record(note).get("url") or _free_url()})
            if not is_up(worker):  # the recorded server has ended
                worker = worker.model_copy(update={"api_base": _free_url()})
        users, up = _living_users(note), is_up(worker)
        server = _recorded_server(note) if up else _start_server(worker, workspace, log)
        if server:
            _write_record(note, server, worker, [*users, me])
        if server and not up:
            try:
                _wait_until_up(worker, server, log, start_s)
            except BaseException:
                _stop_server(server)
                note.unlink()
                raise
    try:
        yield worker, server is not None and not (up and users)
    finally:
        if server:
            with lock:
                _release_server(note, me, server, worker)


def _release_server(note: Path, me: str, server: psutil.Process, worker: Worker) -> None:
    """Remove one use by the process `me` from the server's record, and stop the server if no use is left."""
    users, there = _living_users(note), _recorded_server(note)
    if me in users:
        users.remove(me)
    if there and users:
        _write_record(note, there, worker, users)
        return
    if there:
        _stop_server(server if server.pid == there.pid else there)
    note.unlink(missing_ok=True)


def _recorded_server(note: Path) -> psutil.Process | None:
    """Return the process of the server that Podium started, or None if it has ended."""
    pid = _read_record(note).get("server")
    return psutil.Process(pid) if pid is not None and psutil.pid_exists(pid) else None


def _living_users(note: Path) -> list[str]:
    """Return the running processes that use the server, each as often as it uses it."""
    users = _read_record(note).get("users", ())
    return [user for user in users if unique_process_name(int(user.partition(":")[0])) == user]


def _read_record(note: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else {}
    return record


def _write_record(note: Path, server: psutil.Process, worker: Worker, users: Sequence[str]) -> None:
    write_text(note, json.dumps({"server": server.pid, "url": worker.api_base, "users": users}))


def _start_server(worker: Worker, workspace: Workspace, log: Path) -> psutil.Process:
    host, port = _local_address(worker)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            raise ConfigError(
                f"worker {worker.name!r}", "api_base", f"port {port} is used by a program that is not a healthy vLLM "
                "server",
                "Stop that program or choose another port",
            ) from None  # fmt: skip
    assert worker.serve is not None
    arguments = build_server_command(worker, workspace)
    with log.open("wb") as sink:
        # The server gets a session of its own, so that the engine's processes can be ended together with it.
        return psutil.Popen(
            arguments, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=_environment(offline=(workspace.root / worker.serve.model_path).is_dir()), start_new_session=True,
        )  # fmt: skip


def _environment(*, offline: bool) -> dict[str, str]:
    defaults = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if offline:  # a local folder needs no access to a hub
        defaults["HF_HUB_OFFLINE"] = "1"
    if not _has_gpu():
        defaults["VLLM_CPU_KVCACHE_SPACE"] = "1"  # GiB; its default takes half of the machine's memory
    # A limit on threads is meant for the trainer and would apply to the server as well, so it is left out.
    kept = {name: value for name, value in os.environ.items() if name not in {"OMP_NUM_THREADS", "PYTHONPATH"}}
    return defaults | kept


def _wait_until_up(worker: Worker, server: psutil.Process, log: Path, start_s: float) -> None:
    """Wait until the server answers. Raises `WorkerUnreachable` if it ends or does not answer within `start_s`
    seconds."""
    deadline = time.monotonic() + start_s
    while not is_up(worker):
        if not server.is_running() or server.status() == psutil.STATUS_ZOMBIE:
            what = "the vLLM server has ended"
        elif time.monotonic() > deadline:
            what = f"the vLLM server did not answer within {start_s:.0f} s"
        else:
            time.sleep(_POLL_S)
            continue
        raise WorkerUnreachable(f"worker {worker.name!r}: {what}. {log} ends:\n{_last_lines(log)}")


def _stop_server(server: psutil.Process) -> None:
    """End the server's whole process group by SIGTERM and then SIGKILL, because an engine may run longer than its
    server."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with contextlib.suppress(psutil.TimeoutExpired):
            server.wait(STOP_TIMEOUT_S)


def _local_address(worker: Worker) -> tuple[str, int]:
    """Return host and port of a worker's server. Raises `ConfigError` unless its address is a port of this machine."""
    place = urlsplit(worker.api_base or "")
    if place.hostname not in {"127.0.0.1", "localhost"} or place.port is None:
        raise ConfigError(
            f"worker {worker.name!r}", "api_base", f"{worker.api_base!r} is not a port of this machine",
            "Write http://127.0.0.1:PORT/v1, or remove the serve section",
        )  # fmt: skip
    return "127.0.0.1", place.port


def _free_url() -> str:
    return f"http://127.0.0.1:{free_port()}/v1"


def _has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None


def count_gpus() -> int:
    """Return the number of GPUs that this process may use. A served policy has a replica on each of them."""
    if not _has_gpu():
        return 0
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([device for device in visible.split(",") if device.strip()])
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False).stdout
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def _last_lines(log: Path) -> str:
    lines: Sequence[str] = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:]) or "(nothing)"
