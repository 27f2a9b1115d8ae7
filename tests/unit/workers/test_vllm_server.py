"""Start, use and end of a model server: a substitute program for vLLM, with real processes, ports and logs.

vLLM itself is started in tests/local_llm.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from ops.config import Pool, Serve, Worker
from ops.core.errors import ConfigError, WorkerUnreachable
from ops.core.workspace import Workspace
from ops.local_models.vllm_server import build_server_command, is_up, serve_model, serve_pool

ROOT = Path(__file__).parents[3]
STAND_IN = """
    import json, os, signal, subprocess, sys, time
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from pathlib import Path
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as vLLM: it does not inherit that its parent ignores the signal
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
    print("asked to serve", options["--model"], *sys.argv, flush=True)
    if options["--model"] == "broken":
        sys.exit("RuntimeError: this CPU lacks an instruction set")
    if options["--model"] == "slow":
        time.sleep(60)
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(os.environ["ENGINES"]).open("a").write(f"{engine.pid}\\n")
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"data": [{"id": options["--served-model-name"]}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        def log_message(self, *_):
            pass
    ThreadingHTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n{textwrap.dedent(STAND_IN)}", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PODIUM_VLLM_PYTHON", str(program))
    monkeypatch.setenv("ENGINES", str(tmp_path / "engines"))
    return Workspace(tmp_path)


def pool(port: int, model_path: str = "good", **settings: Any) -> Pool:
    values = {
        "name": "small", "model": "hosted_vllm/small-instruct", "api_base": f"http://127.0.0.1:{port}/v1",
        "serve": {"model_path": model_path}, "price": {"input": 0, "output": 0},
    }  # fmt: skip
    tool = Worker(name="tool", model="local/guesser")
    return Pool(name="p", workers=(tool, Worker.model_validate(values | settings)))


def engines(workspace: Workspace) -> list[int]:
    return [int(line) for line in (workspace.root / "engines").read_text(encoding="utf-8").split()]


def gone(pid: int) -> bool:
    """Return whether a process has ended; its parent may have ended as well."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for _ in range(100):
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
            time.sleep(0.05)
        return False
    return True


def test_started_waited_for_and_stopped_with_its_engine(workspace: Workspace) -> None:
    served = pool(free_port())
    with serve_pool(served, workspace) as started:
        assert started == ["small"]
        assert is_up(served.worker("small"))
        [engine] = engines(workspace)
        assert psutil.pid_exists(engine)
    assert not is_up(served.worker("small"))
    assert gone(engine)
    assert "asked to serve good" in (workspace.state / "vllm" / "small.log").read_text(encoding="utf-8")


def test_a_policy_is_served_once_at_a_free_port_by_every_gpu(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'GPU 0: one'\necho 'GPU 1: two'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    settings = Serve(model_path="policy", dtype="float32", args=("--max-model-len", "-1"))
    with serve_model("recipe-abc", settings, workspace) as url:
        with serve_model("recipe-abc", settings, workspace) as again:
            assert again == url
        worker = Worker(name="recipe-abc", model="hosted_vllm/recipe-abc", api_base=url)
        assert is_up(worker), "the other user has left"
    assert not is_up(worker)
    [engine] = engines(workspace)
    assert gone(engine)
    log = (workspace.state / "vllm" / "recipe-abc.log").read_text(encoding="utf-8")
    assert "--data-parallel-size 2 --max-model-len -1" in log
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with serve_model("recipe-abc", settings, workspace):
        pass
    assert "--data-parallel-size 1 " in (workspace.state / "vllm" / "recipe-abc.log").read_text(encoding="utf-8")


def test_a_server_that_is_there_is_used_and_an_error_in_the_block_stops_it(workspace: Workspace) -> None:
    served = pool(free_port())
    with pytest.raises(RuntimeError, match="of mine"), serve_pool(served, workspace):
        with serve_pool(served, workspace) as started:
            assert started == []
        assert is_up(served.worker("small"))
        raise RuntimeError("an error of mine")
    assert len(engines(workspace)) == 1
    assert not is_up(served.worker("small"))


@pytest.mark.parametrize(
    ("served", "start_s", "error", "says"),
    [
        pytest.param("broken", 60.0, WorkerUnreachable, r"has ended.*(?s:.*)lacks an instruction set", id="ends"),
        pytest.param("slow", 1.0, WorkerUnreachable, "did not answer within 1 s", id="never answers"),
    ],
)
def test_a_server_that_does_not_come_up(
    workspace: Workspace, served: str, start_s: float, error: type[Exception], says: str
) -> None:
    port = free_port()
    with pytest.raises(error, match=says), serve_pool(pool(port, served), workspace, start_s=start_s):
        pass
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


def test_a_port_that_another_program_holds(workspace: Workspace) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        served = pool(other.getsockname()[1])
        with pytest.raises(ConfigError, match="is used by"), serve_pool(served, workspace):
            pass


def test_a_server_of_another_model(workspace: Workspace) -> None:
    port = free_port()
    other = pool(port, model="hosted_vllm/other", name="other")
    says = "serves small-instruct, and not"
    with serve_pool(pool(port), workspace), pytest.raises(ConfigError, match=says), serve_pool(other, workspace):
        pass


@contextmanager
def another_run(workspace: Workspace, port: int) -> Iterator[subprocess.Popen[str]]:
    """Start a process that uses the server until it reads a line from standard input or is killed."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom ops.config import Pool\n"
        "from ops.local_models.vllm_server import serve_pool\nfrom ops.core.workspace import Workspace\n"
        "with serve_pool(Pool.model_validate_json(sys.argv[1]), Workspace(Path(sys.argv[2]))):\n"
        "    print('up', flush=True)\n    sys.stdin.readline()\n"
    )
    arguments = [sys.executable, "-c", script, pool(port).model_dump_json(), str(workspace.root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "up\n"
        yield run


def test_a_server_left_by_a_killed_run_is_used_and_then_stopped(workspace: Workspace) -> None:
    port = free_port()
    with another_run(workspace, port) as run:
        os.kill(run.pid, signal.SIGKILL)
    assert is_up(pool(port).worker("small"))
    with serve_pool(pool(port), workspace) as started:
        assert started == ["small"]
    assert not is_up(pool(port).worker("small"))
    assert all(gone(engine) for engine in engines(workspace))


@pytest.mark.parametrize("killed", [False, True])
def test_the_last_of_two_runs_ends_their_server(workspace: Workspace, killed: bool) -> None:
    port = free_port()
    with another_run(workspace, port) as first:
        with serve_pool(pool(port), workspace) as started:
            assert started == []
            if killed:
                first.kill()
            else:
                first.communicate("done\n")
            first.wait(240)
            assert is_up(pool(port).worker("small")), "its starter has left, and it is still in use"
        assert not is_up(pool(port).worker("small"))
    [engine] = engines(workspace)
    assert gone(engine)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_is_ended_by_a_signal_and_its_server_with_it(workspace: Workspace, number: signal.Signals) -> None:
    served = pool(free_port())
    (workspace.root / "dvc.yaml").touch()
    file = workspace.config / "pools" / "p.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(served.model_dump_json(exclude_defaults=True), encoding="utf-8")
    arguments = [sys.executable, "-c", "from pipelines.script import main; main()", "pools", "serve", "p"]
    environment = os.environ | {"PODIUM_ROOT": str(workspace.root), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert any("Press Ctrl-C to stop" in line for line in run.stdout)
        run.send_signal(number)
        assert run.stdout.read() == "All servers are stopped.\n"
    assert run.returncode == 0
    assert not is_up(served.worker("small"))
    assert all(gone(engine) for engine in engines(workspace))


def test_a_server_started_by_others_is_not_stopped(workspace: Workspace) -> None:
    port = free_port()
    with another_run(workspace, port) as first:
        with serve_pool(pool(port), workspace):
            pass
        assert is_up(pool(port).worker("small"))
        first.communicate("done\n")
    assert not is_up(pool(port).worker("small"))


def test_the_command_line_of_a_server(workspace: Workspace) -> None:
    (workspace.root / "models" / "one").mkdir(parents=True)
    serve = {"model_path": "models/one", "max_model_len": 512, "args": ["--max-num-seqs", "8"]}
    words = build_server_command(pool(8100, serve=serve).worker("small"), workspace)
    options = dict(zip(words[3::2], words[4::2], strict=False))
    assert words[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert options["--model"] == str(workspace.root / "models" / "one")
    assert (options["--served-model-name"], options["--port"]) == ("small-instruct", "8100")
    assert "--max-num-seqs 8" in " ".join(words)
    assert "--max-model-len 512" in " ".join(words)


def test_without_an_environment_or_a_port(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, local = pool(1, api_base="https://api.example.org/v1"), pool(free_port())
    with pytest.raises(ConfigError, match="is not a port of this machine"), serve_pool(remote, workspace):
        pass
    monkeypatch.delenv("PODIUM_VLLM_PYTHON")
    with pytest.raises(ConfigError, match="make vllm-local"), serve_pool(local, workspace):
        pass


def test_serving_is_no_part_of_what_a_response_is_cached_under(workspace: Workspace) -> None:
    plain, served = pool(8100, serve=None), pool(8100, serve={"model_path": "elsewhere", "dtype": "float32"})
    assert plain.worker("small").identity == served.worker("small").identity
    assert plain.answers_key == served.answers_key


def test_a_pool_without_such_workers_starts_nothing(tmp_path: Path) -> None:
    with serve_pool(
        Pool(name="p", workers=(Worker(name="tool", model="local/guesser"),)), Workspace(tmp_path)
    ) as names:
        assert names == []
    assert list(tmp_path.iterdir()) == []
