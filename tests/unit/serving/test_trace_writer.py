"""Traces of served requests: each is stored or counted as dropped, and shows waiting, generation and work."""

from __future__ import annotations

import io
import pickle
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from ops.config import Pool, load_pool
from ops.core.workspace import Workspace
from ops.release import trace_writer
from ops.release.store import connected, experiment
from ops.release.trace_writer import TraceWriter, main
from ops.release.tracing import of_request, store_traces
from ops.serving.answer import Answer
from ops.serving.http.routes import RequestRecord
from ops.serving.request_options import RequestOptions, question
from ops.workflow.grammar import Step, Workflow
from tests.releases import shared_store
from tests.serving.script import Scripted, engine_of

pytestmark = pytest.mark.timeout(300)
POOL: Pool = load_pool(Workspace.find().config, "quickstart")
WORKFLOW = Workflow((Step(0, "Compute."), Step(0, "Check it.", "all"))).render()
QUESTION = "What is 6 * 7?"


class Store:
    """A workspace's own MLflow store."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        with connected(workspace) as client:
            self.home = experiment(client, workspace)

    def holds(self, *records: RequestRecord) -> list[Any]:
        """Return whether exactly these traces are stored, in order."""
        with connected(self.workspace) as client:
            traces = [of_request(each) for each in records]
            return [client.get_trace(each) for each in store_traces(self.workspace.mlflow_uri, self.home, traces)]

    def count(self) -> int:
        with sqlite3.connect(self.workspace.state / "mlflow" / "mlflow.db") as connection:
            return int(connection.execute("SELECT count(*) FROM trace_info").fetchone()[0])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = Workspace(tmp_path)
    (workspace.state / "mlflow").mkdir(parents=True)
    copyfile(shared_store(), workspace.state / "mlflow" / "mlflow.db")
    return Store(workspace)


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """An answer after a second completion, by a Conductor that needs a tenth of a second for each."""
    engine = engine_of(tmp_path_factory.mktemp("engine"), POOL, Scripted("nothing", WORKFLOW, seconds=0.1))
    try:
        return engine.ask(question(QUESTION, RequestOptions()), RequestOptions())
    finally:
        engine.close()


def record(answer: Answer, number: int = 0, *, texts: bool = True, before_s: float = 0.0) -> RequestRecord:
    """A request that arrived this many seconds before its answer was begun, and ended a second after that or later."""
    ended = max(time.time(), answer.began + 1.0)
    return RequestRecord(f"req_{number}", "/v1/chat/completions", answer, texts, answer.began - before_s, ended)


def test_a_trace_shows_waiting_writing_and_work_from_the_arrival_on(store: Store, answer: Answer) -> None:
    [trace] = store.holds(record(replace(answer, waited_s=0.25), before_s=2.0))
    spans = {span.name: span for span in trace.data.spans}
    root = next(span for span in trace.data.spans if span.parent_id is None)
    assert root.start_time_ns == pytest.approx((answer.began - 2.0) * 1e9, abs=1e6)
    assert trace.info.execution_duration >= 2000
    assert (trace.info.tags["request"], trace.info.tags["status"]) == ("req_0", "answered")
    waiting = spans["waiting for a place"]
    assert (waiting.end_time_ns - waiting.start_time_ns) / 1e9 == pytest.approx(0.25, abs=0.01)
    first, second = spans["Conductor"], spans["Conductor (2)"]
    for span in (first, second):
        assert (span.end_time_ns - span.start_time_ns) / 1e9 >= 0.1
    assert second.inputs["messages"][-1]["content"].startswith(QUESTION)
    assert second.outputs["choices"][0]["message"]["content"] == WORKFLOW
    usage = {"input_tokens": 100, "output_tokens": len(WORKFLOW), "total_tokens": 100 + len(WORKFLOW)}
    assert second.attributes["mlflow.chat.tokenUsage"] == usage
    assert {"workflow", "1 · algebraist", "2 · algebraist"} <= spans.keys()
    parts = [span for span in trace.data.spans if span.parent_id == root.span_id]
    assert all(span.start_time_ns >= root.start_time_ns and span.end_time_ns <= root.end_time_ns for span in parts)


def test_questions_that_wait_for_the_policy_show_it(tmp_path: Path, store: Store) -> None:
    engine = engine_of(tmp_path / "engine", POOL, Scripted(WORKFLOW, seconds=2.0), batch=1)
    try:
        with ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(engine.ask, question(QUESTION, RequestOptions()), RequestOptions()) for _ in "12"]
            traces = store.holds(*(record(each.result(timeout=60), number) for number, each in enumerate(asked)))
    finally:
        engine.close()
    spans = [span for trace in traces for span in trace.data.spans if span.name == "waiting for the Conductor"]
    longest = max((span.end_time_ns - span.start_time_ns) / 1e9 for span in spans)
    assert longest > 0.1, "of the one whose writing waited for the other's"


def test_without_texts_the_store_has_no_word_of_it(store: Store, answer: Answer) -> None:
    [trace] = store.holds(record(answer, texts=False))
    assert "6 * 7" not in trace.to_json() and "Compute" not in trace.to_json()
    assert {span.name for span in trace.data.spans} >= {"Conductor", "workflow"}


def test_half_a_surrogate_pair_spoils_no_batch(store: Store, answer: Answer) -> None:
    broken = replace(answer, problem=replace(answer.problem, question="half a pair: \ud83d"))
    store.holds(*(record(each, number) for number, each in enumerate((answer, broken, answer))))
    assert store.count() == 3


def test_refused_records_of_the_store_are_reported(
    store: Store, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    good = [pickle.dumps(record(answer, number)) for number in range(2)]
    batches, replies = io.BytesIO(b"".join(map(pickle.dumps, ([*good, b"no record"], good)))), io.BytesIO()
    main(store.workspace.root, store.home, batches, replies)
    with sqlite3.connect(store.workspace.state / "mlflow" / "mlflow.db") as connection:
        connection.execute("ALTER TABLE spans RENAME TO lost")
    main(store.workspace.root, store.home, io.BytesIO(pickle.dumps(good)), replies)
    replies.seek(0)
    assert [pickle.load(replies) for _ in range(3)] == [2, 2, 0]
    assert "a request has no trace" in caplog.text and "MLflow does not take traces" in caplog.text


@pytest.mark.long
def test_many_at_once_are_stored_or_counted_also_where_the_process_is_killed(
    store: Store, answer: Answer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(pickle.dumps(record(answer, 100), pickle.HIGHEST_PROTOCOL))
    monkeypatch.setattr(trace_writer, "WAITING_BYTES", 100 * size)
    monkeypatch.setattr(trace_writer, "AGAIN_S", 0.0)
    stored, dropped = [], []
    writer = TraceWriter(store.workspace.root, store.home)
    writer.on_stored, writer.on_dropped = stored.append, dropped.append
    writer.keep(record(answer))
    until(lambda: stored == [1])
    assert writer._process is not None
    writer._process.kill()
    writer._process.wait(60)
    writer.keep(record(answer, 1))
    until(lambda: dropped == [1])
    assert "1 traces were dropped: the process that stores them ended" in caplog.text
    for number in range(300):
        writer.keep(record(answer, number))
    writer.close(120)
    assert sum(dropped) >= 50 and sum(stored) >= 90, "more came than may wait"
    assert sum(stored) + sum(dropped) == 302
    assert store.count() == sum(stored)
    writer.keep(record(answer, 301))
    assert sum(stored) + sum(dropped) == 303, "one that comes too late is counted"


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)
