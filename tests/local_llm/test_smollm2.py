"""A real language model: SmolLM2-135M behind vLLM on this machine, precached on 40 embedded problems.

`make test-local-llm` prepares what this needs. The asset itself starts the server, waits for it and stops it.
"""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import dagster as dg
import pytest
import yaml

from assets import partitions
from assets.resources import RunResource
from ops.benchmarks.registry import training_benchmarks
from ops.config import load_pool, load_recipe
from ops.core.response_rows import ResponseRow, load_responses
from ops.core.workspace import Workspace
from ops.local_models.vllm_server import is_up
from ops.precaching.profiles import profile_workers
from ops.stages.curation import materialize_shortlist
from ops.stages.raw_problems import materialize_raw
from pipelines.definitions import make_definitions
from tests.local_llm import test_writers
from tests.local_llm.test_writers import PYTHON, ROOT
from tests.setups import without_workers
from tests.team.servers import free_port

pytestmark = test_writers.pytestmark
WORKER, PROBLEMS, MAX_TOKENS = "smollm2-135m", 40, 96
RECIPE = {
    "name": "local",
    "pool": "local-llm",
    "benchmarks": {name: {"train": 20, "test": 2} for name in training_benchmarks()},
    "curation": {"per_domain": PROBLEMS // 4, "near_duplicate_jaccard": 1.0},
    "policy": {"kind": "scratch", "max_tokens": 1536},
    "grpo": {"max_completion_tokens": 64, "micro_batch": 4},
    "cold_start": {},
}


class Watch(threading.Thread):
    """Reads the server's own counters while it lives: the most requests that ran at once, and the last totals."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.url = address.removesuffix("/v1") + "/metrics"
        self.most_at_once = 0.0
        self.totals: dict[str, float] = {}
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            try:
                with urllib.request.urlopen(self.url, timeout=5) as reply:
                    text = reply.read().decode()
            except OSError:
                continue
            gauges = {
                name: sum(map(float, re.findall(rf"^vllm:{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)))
                for name in ("num_requests_running", "generation_tokens_total", "iteration_tokens_total_count")
            }
            self.most_at_once = max(self.most_at_once, gauges["num_requests_running"])
            self.totals = gauges


class Precached(NamedTuple):
    """Two materializations of the worker's responses, and what was seen of the server meanwhile."""

    workspace: Workspace
    first: dict[str, object]
    second: dict[str, object]
    started_again: bool
    watch: Watch
    rows: list[ResponseRow]


@pytest.fixture(scope="module")
def precached(tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], Workspace]) -> Precached:
    workspace = make(tmp_path_factory.mktemp("local") / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_VLLM_PYTHON", str(PYTHON))
        _configure(workspace)
        recipe = load_recipe(workspace.config, "local")
        for benchmark in recipe.benchmarks:
            materialize_raw(without_workers(workspace, recipe), benchmark)
        assert len(materialize_shortlist(without_workers(workspace, recipe)).problems) == PROBLEMS
        worker = load_pool(workspace.config, "local-llm").worker(WORKER)
        watch = Watch(str(worker.api_base))
        watch.start()
        with dg.DagsterInstance.ephemeral() as instance:
            first = _materialize(workspace, instance)
            log = workspace.state / "vllm" / f"{WORKER}.log"
            written = log.stat().st_mtime_ns
            second = _materialize(workspace, instance)
            started_again = log.stat().st_mtime_ns != written
        watch.ended.set()
        watch.join(1200)
        assert not is_up(worker), "the asset leaves no server behind"
    return Precached(workspace, first, second, started_again, watch, load_responses(workspace.data / "responses"))


def _configure(workspace: Workspace) -> None:
    """The recipe, and of the shipped pool one worker, with a free port and the model that `make` prepared."""
    (workspace.config / "recipes" / "local.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    file = workspace.config / "pools" / "local-llm.yaml"
    pool = yaml.safe_load(file.read_text(encoding="utf-8"))
    [worker] = [entry for entry in pool["workers"] if entry["name"] == WORKER]
    worker |= {"api_base": f"http://127.0.0.1:{free_port()}/v1", "max_tokens": MAX_TOKENS}
    pool["workers"] = [worker]
    worker["serve"]["model_path"] = str(ROOT / worker["serve"]["model_path"])
    file.write_text(yaml.safe_dump(pool), encoding="utf-8")


def _materialize(workspace: Workspace, instance: dg.DagsterInstance) -> dict[str, object]:
    """Materialize the worker's answers in Dagster; their metadata."""
    podium = RunResource(root=str(workspace.root), recipe="local")
    done = (
        make_definitions(podium)
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey("worker_responses")],
            run_config=podium.make_run_config(),
            tags=partitions.tag_recipe_benchmarks(podium.load_setup().recipe),
        )
    )
    assert done.success
    event = instance.get_latest_materialization_event(dg.AssetKey("worker_responses"))
    assert event is not None
    assert event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


def test_every_problem_is_answered_by_the_model(precached: Precached) -> None:
    assert precached.first["calls_live"] == PROBLEMS
    assert [row.status for row in precached.rows] == ["ok"] * PROBLEMS
    assert len({row.response.text for row in precached.rows}) > PROBLEMS // 2
    responses = [row.response for row in precached.rows]
    assert all(said.completion_tokens > 0 and said.latency_s > 0 and said.cost_usd == 0 for said in responses)
    assert {row.response.finish_reason for row in precached.rows} <= {"stop", "length"}


def test_requests_run_together_in_one_batch(precached: Precached) -> None:
    totals = precached.watch.totals
    assert precached.watch.most_at_once > 1
    # One at a time, every token would be an iteration of its own.
    assert totals["generation_tokens_total"] > 3 * totals["iteration_tokens_total_count"] > 0


def test_the_second_time_no_worker_is_called(precached: Precached) -> None:
    assert (precached.second["calls_live"], precached.second["calls_cached"]) == (0, 0), "the step is unchanged"
    assert not precached.started_again


def test_the_profile_says_what_the_model_is_like(precached: Precached, capsys: pytest.CaptureFixture[str]) -> None:
    [worker] = profile_workers(precached.rows)
    assert set(worker.by_benchmark) == set(training_benchmarks())
    assert worker.calls == PROBLEMS
    assert 0 <= worker.overall.accuracy < 0.6, "a model of 135 million parameters is seldom right here"
    assert worker.truncated == sum(row.response.finish_reason == "length" for row in precached.rows)
    assert 0 < worker.latency_s.p50 <= worker.latency_s.p90 <= worker.latency_s.p99
    totals = precached.watch.totals
    with capsys.disabled():
        print(
            f"\nSmolLM2-135M: {100 * worker.overall.accuracy:.1f} ± {100 * worker.overall.se:.1f} % of {PROBLEMS}; "
            f"{worker.truncated} of {PROBLEMS} answers cut at {MAX_TOKENS} tokens\n"
            f"{precached.watch.most_at_once:.0f} requests at once; {totals['generation_tokens_total']:.0f} tokens "
            f"generated in {totals['iteration_tokens_total_count']:.0f} iterations"
        )
