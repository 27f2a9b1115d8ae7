"""A whole pipeline run with a key and GPQA questions that contain canaries: nothing that it leaves behind contains
either.

The run's workers quote their prompt in every answer over HTTP, and their errors quote prompt and key. Then every byte
that the run wrote is searched, packed or not.
"""

from __future__ import annotations

import base64
import gzip
import os
import sqlite3
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pandas as pd
import pytest
import yaml

from ops.core.workspace import Workspace
from ops.release import mlflow_store, registry
from ops.results.table import load_rows
from tests.command import PODIUM
from tests.faults.remote import PRICE, FaultServer
from tests.integration.checkouts import LENIENT, SHORT, changed, configure, sizes
from tests.integration.search import holders
from tests.integration.test_confidential import record, write_gpqa

# A whole pipeline run; `make test` covers the stages (test_confidential) and the calls (tests/faults/test_canaries).
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

QUESTION, KEY, KEY_VARIABLE = "canaryquestion7f3a", "canarykey9c1f7e2ab0", "CANARY_KEY"
ECHOES = ("echo-1", "echo-2", "echo-3", "echo-4")
"""Four, so that a policy that chooses randomly chooses one of them often enough."""
ASKED = 6
"""Number of GPQA questions; one more record is malformed."""
RECIPE = changed(
    SHORT, name="canaries", pool="canaries",
    benchmarks={
        **sizes(24, 2), "gpqa_diamond": {"source": "file", "test_file": "gpqa.csv", "max_malformed_share": 0.2},
    },
    curation={"shortlist_factor": 1.5}, prompting={"max_steps": 2}, policy={"vocabulary": 600, "hidden": 64},
    # Random workflows, so that the policy sends confidential questions to workers that quote them.
    cold_start={"steps": 120, "success_share": 0.0}, grpo={"max_completion_tokens": 56},
    execution={"traces": 24}, evaluation={"batch": 64, "temperature": 0.8, "repeats": 3},
)  # fmt: skip
LOUD = {"LITELLM_LOG": "DEBUG", "OPENAI_LOG": "debug", "HTTPX_LOG_LEVEL": "debug"}

HOMES = (".dvc/cache", ".podium/cache")
"""Folders reported as one, because their files are named by hashes."""


class FinishedRun(NamedTuple):
    """A finished pipeline run: the folder with all of its files, the project in it, and the server's log."""

    folder: Path
    workspace: Workspace
    seen: list[dict[str, Any]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> FinishedRun:
    folder = tmp_path_factory.mktemp("canaries")
    workspace = make(folder / "project")
    (folder / "tmp").mkdir()
    with FaultServer(tmp_path_factory.mktemp("server")) as server:
        write_settings(workspace, server)
        server.order(rate=1.0, faults=[*["echo"] * 9, "413"])
        own = {"PODIUM_ROOT": str(workspace.root), "TMPDIR": str(folder / "tmp"), KEY_VARIABLE: KEY}
        with (folder / "printed.log").open("w", encoding="utf-8") as printed:
            done = subprocess.run(
                [*PODIUM, "run", "canaries", "--yes"],
                env=os.environ | LOUD | own,
                cwd=workspace.root, stdout=printed, stderr=subprocess.STDOUT, check=False, timeout=720,
            )  # fmt: skip
        assert done.returncode == 0, (folder / "printed.log").read_text(encoding="utf-8")[-3000:]
        return FinishedRun(folder, workspace, server.log())


def write_settings(workspace: Workspace, server: FaultServer) -> None:
    """Set up the quickstart's pool with workers over HTTP, GPQA from a file, and a gate that passes everything."""
    pool = yaml.safe_load((workspace.config / "pools" / "quickstart.yaml").read_text(encoding="utf-8"))
    remote = {
        "model": "openai/some-model", "api_base": f"{server.url}/v1", "api_key_env": KEY_VARIABLE,
        "price": PRICE, "max_tokens": 64, "timeout_s": 30.0,
    }  # fmt: skip
    quoting = [remote | {"name": name, "temperature": i / 10} for i, name in enumerate(ECHOES)]
    pool |= {"name": "canaries", "workers": [*pool["workers"], *quoting]}
    configure(workspace, {"pools/canaries": pool, "recipes/canaries": RECIPE, "promotion": LENIENT})
    broken = record("broken", QUESTION, **{"Incorrect Answer 2": ""})
    write_gpqa(workspace.root, [*(record(f"rec{i}", QUESTION) for i in range(ASKED)), broken])


def places(finished: FinishedRun, wanted: str) -> set[str]:
    """Return the places in the run's files that contain `wanted`."""
    homes = set()
    for name in holders(finished.folder, wanted.encode()):
        inner = name.removeprefix("project/")
        homes.add(next((home for home in HOMES if inner.startswith(f"{home}/")), inner))
    return homes


def test_questions_are_where_the_work_is_done_and_nowhere_else(finished: FinishedRun) -> None:
    raw = "data/raw/gpqa_diamond-test.jsonl"
    assert places(finished, QUESTION) == {"gpqa.csv", raw, ".dvc/cache", ".podium/cache"}


def test_the_key_is_nowhere(finished: FinishedRun) -> None:
    assert {entry["key"] for entry in finished.seen} == {KEY}  # it was sent, with every call
    assert KEY_VARIABLE in (finished.workspace.config / "pools" / "canaries.yaml").read_text(encoding="utf-8")
    assert places(finished, KEY_VARIABLE) > {"config/pools/canaries.yaml"}  # stored with the pool
    assert places(finished, KEY) == set()


def test_the_remote_workers_quoted_questions_and_failed_on_some(finished: FinishedRun) -> None:
    steps = {entry["step"] for entry in finished.seen if QUESTION in entry["prompt"]}
    assert "echo" in steps
    assert {entry["step"] for entry in finished.seen} == {"echo", "413"}


def test_every_place_that_could_contain_the_canary_was_written(
    finished: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = finished.workspace.state
    champion = registry.find_champion(finished.workspace)
    assert champion is not None and champion.metrics["gpqa_diamond/accuracy"] >= 0
    with mlflow_store.connect(finished.workspace) as client:
        home = mlflow_store.get_or_create_experiment(client, finished.workspace)
        traces = client.search_traces(locations=[home], filter_string="tags.benchmark = 'gpqa_diamond'")
    assert any(span.name.endswith(ECHOES) for trace in traces for span in trace.data.spans)
    scores = [
        file for system in ("conductor", "cold_start") for file in state.glob(f"scores/{system}/*/gpqa_diamond.parquet")
    ]
    assert len(scores) == 2
    assert any(row.workers[-1:] and row.workers[-1] in ECHOES for file in scores for row in load_rows(file))
    monkeypatch.setenv("DAGSTER_HOME", str(finished.workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        # One for each benchmark of the run's range; those that the recipe lacks have no example.
        loaded = instance.fetch_materializations(dg.AssetKey("raw_problems"), limit=100).records
        assert any("rec0" in str(record) for record in loaded)
    assert (state / "scores" / "workers" / ECHOES[0] / "gpqa_diamond.parquet").is_file()
    for made in ("data_docs", "mlflow/artifacts", "policies", "quarantine", "runs"):
        assert any((state / made).rglob("*")), made


@pytest.mark.parametrize("packing", ["plain", "name", "gzip", "zlib", "zip", "base64", "parquet", "sqlite", "wal"])
def test_the_search_finds_what_is_packed(tmp_path: Path, packing: str) -> None:
    hidden = f"{'x' * 5000} {QUESTION} {'y' * 5000}".encode()
    file = tmp_path / (QUESTION if packing == "name" else "file")
    if packing in ("sqlite", "wal"):
        database = sqlite3.connect(file)
        database.execute(f"PRAGMA journal_mode={'WAL' if packing == 'wal' else 'DELETE'}")
        database.execute("CREATE TABLE events (body)")
        database.execute("INSERT INTO events VALUES (?)", (zlib.compress(hidden),))
        database.commit()
    elif packing == "parquet":
        pd.DataFrame({"texts": [[hidden.decode()]]}).to_parquet(file, compression="gzip")
    elif packing == "zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inner", gzip.compress(hidden))
    else:
        pack: dict[str, Callable[[bytes], bytes]] = {
            "plain": bytes, "name": lambda _: b"", "gzip": gzip.compress, "zlib": zlib.compress,
            "base64": lambda data: b'{"picture": "data:image/svg+xml;base64,' + base64.b64encode(data) + b'"}',
        }  # fmt: skip
        file.write_bytes(pack[packing](hidden))
    assert holders(tmp_path, QUESTION.encode()) == {file.name}
    assert holders(tmp_path, KEY.encode()) == set()
