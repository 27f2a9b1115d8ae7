"""Load LiteLLM's proxy in front of one embedded worker (`python -m tests.bench.proxy PROGRAM`), into the measurements,
beside the rows of `tests.bench.serving`.

PROGRAM is `litellm` of an environment with `litellm[proxy]`, which Podium does not install, and SymPy. A request
is one call of the quickstart's best worker there, and a workflow of several calls at `podium serve`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import yaml

from ops.core.workspace import Workspace
from tests.bench import serving
from tests.bench.client import EMBEDDED
from tests.bench.row import Absent, Row
from tests.bench.serving import CORES, START_S, Cells, Server, fresh, loaded, publish, range_of

MARK = "<!-- made by `python -m tests.bench.proxy` -->"
PROVIDER = Path(__file__).with_name("embedded_provider.py")
WORKER = "solver"
PORT = 4017
PROGRAM = "PODIUM_LITELLM_PROXY"
"""The environment variable that names the proxy's program for `make bench`."""


@contextmanager
def proxy(program: Path) -> Iterator[Server]:
    """Start the proxy with one worker under the name `conductor`, and wait until it is ready."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(PROVIDER, Path(folder, "embedded_provider.py"))
        file = Path(folder, "config.yaml")
        model = {"model_name": "conductor", "litellm_params": {"model": f"{EMBEDDED}/{WORKER}"}}
        provider = {"provider": EMBEDDED, "custom_handler": "embedded_provider.PROVIDER"}
        settings = {
            "model_list": [model],
            "litellm_settings": {"custom_provider_map": [provider]},
            "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},  # on loopback
        }
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        environment = {**os.environ, **offline, "PYTHONPATH": str(Workspace.find().root)}
        command = [str(program), "--config", str(file), "--host", "127.0.0.1", "--port", str(PORT)]
        began, url = time.monotonic(), f"http://127.0.0.1:{PORT}"
        with Path(folder, "log").open("w", encoding="utf-8") as log:
            server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            while not _ready(url):
                if server.poll() is not None or time.monotonic() - began > START_S:
                    sys.exit(f"the proxy did not start:\n{Path(folder, 'log').read_text(encoding='utf-8')}")
                time.sleep(0.2)
            yield Server(url, psutil.Process(server.pid), time.monotonic() - began, 0.0)
        finally:
            server.terminate()
            server.wait(START_S)


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/readiness", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def under_load(server: Server, clients: int, seconds: float) -> Cells:
    """Return a row of the table."""
    done = loaded(server, clients, seconds, fresh(10_000))
    times = [reply.seconds for reply in done.whole]
    rates = (f"{len(times) / seconds:.1f}", f"{len(times) / done.cpu_s:.1f}")
    return clients, done.statuses, range_of(times), *rates, f"{done.mib:,.0f} MiB"


def _served() -> Iterator[Row]:
    """Measure the server's CPU time of an answer with every request traced, beside one call through the proxy."""
    program = shutil.which(os.environ.get(PROGRAM, "litellm-proxy"))
    if program is None:
        raise Absent(f"the program of LiteLLM's proxy (name it in ${PROGRAM})")
    ours = serving.under_load(serving.champions_workspace(), serving.AT_ONCE, serving.SECONDS, 1.0).cpu_ms
    with proxy(Path(program)) as server:
        done = loaded(server, serving.AT_ONCE, serving.SECONDS, fresh(10_000))
    theirs = 1000 * done.cpu_s / len(done.whole)
    yield Row(f"a served answer, {serving.AT_ONCE} clients, traced", ours, "LiteLLM's proxy", theirs, 2.0, "CPU ms")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("program", type=Path)
    arguments.add_argument("--clients", type=int, nargs="+", default=[1, 10, 50, 200])
    arguments.add_argument("--seconds", type=float, default=60.0, help="of each row")
    chosen = arguments.parse_args()
    with proxy(chosen.program.absolute()) as server:
        rows = [under_load(server, clients, chosen.seconds) for clients in sorted(chosen.clients)]
    head = (
        f"LiteLLM's proxy in front of `{WORKER}` alone makes one call for each request. Each row was measured for "
        f"{chosen.seconds:g} s on {CORES}. The load average at the end was {psutil.getloadavg()[0]:.1f}. Times are in "
        "seconds: median / 99th percentile."
    )
    columns = ("clients", "responses", "whole request", "requests/s", "requests per core second", "memory")
    publish(MARK, head, columns, rows)


PARTS = (_served,)
"""The measurements of `make bench`."""


if __name__ == "__main__":
    main()
