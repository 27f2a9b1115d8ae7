"""The hub as a source: the real `datasets` code on local folders in the upstream's shape, and a stand-in server on
loopback that fails in every way a hub can. The live hub is not contacted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import HubChanged, HubDataset, HubUnreachable, UpstreamSplit
from ops.benchmarks.problem_files import raw_file
from ops.benchmarks.registry import BENCHMARKS
from ops.config import BenchmarkSource
from ops.core.errors import ConfigError, DataError
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.stages.raw_problems import materialize_raw
from tests.loading import sound_problems
from tests.setups import without_workers
from tests.unit.data.inputs import HUB_ROWS, at, make_recipe, parquet

ROOT = Path(__file__).resolve().parents[3]
PINNED, OTHER = "a" * 40, "c" * 40
IDS = {"livecodebench": "question_id", "gpqa_diamond": "Record ID", "bigcodebench": "task_id"}
"""Columns whose values must differ between rows."""

MakeDataset = Callable[..., Path]


def read(entry: Benchmark, split: Split, workspace: Workspace) -> list[Problem]:
    return sound_problems(entry, split, BenchmarkSource(source="hub", revision=PINNED), workspace, 0)


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in ("math500", "rlpr")])
def test_every_benchmark_comes_through_datasets(name: str, dataset: MakeDataset, workspace: Workspace) -> None:
    entry, column = BENCHMARKS[name], IDS.get(name, "id")
    tables = {
        (part.config, part.split): [{**HUB_ROWS[name], column: f"rec{i}"} for i in range(3)]
        for part in entry.hub.splits.values()
    }
    entry = at(entry, dataset(tables))
    for split in entry.splits:
        problems = read(entry, split, workspace)
        assert len(problems) == len({problem.id for problem in problems}) == 3
        assert {(p.benchmark, p.split, p.grader) for p in problems} == {(name, split, entry.grader)}
        assert problems == read(entry, split, workspace)


def test_parts_cut_from_one_split_are_disjoint_and_fixed(dataset: MakeDataset, workspace: Workspace) -> None:
    rows = [{**HUB_ROWS["math500"], "unique_id": f"test/{i}", "problem": f"Q{i}"} for i in range(500)]
    entry = at(BENCHMARKS["math500"], dataset({(None, "test"): rows}))
    train, test = (read(entry, split, workspace) for split in entry.splits)
    numbers = [int(problem.id.removeprefix("test/")) for problem in test]
    assert (len(train), len(test), len({p.id for p in (*train, *test)})) == (300, 100, 400)
    assert numbers == sorted(numbers) != list(range(100))
    assert numbers[:5] == [6, 14, 17, 19, 24], "the held-out questions may never change"


def test_nested_messages_and_verdicts_come_through_datasets(dataset: MakeDataset, workspace: Workspace) -> None:
    place = dataset({(None, "train"): [HUB_ROWS["rlpr"]] * 12})
    cuts = {"test": UpstreamSplit(None, "train", 0, 4), "train": UpstreamSplit(None, "train", 4, 8)}
    entry = at(BENCHMARKS["rlpr"], place, **cuts)
    train, test = (read(entry, split, workspace) for split in entry.splits)
    assert (len(train), len(test)) == (8, 4)
    assert not {problem.id for problem in train} & {problem.id for problem in test}
    assert (train[0].question, train[0].answer, train[0].subject) == ("Q", "42 m", "physics")


FEW = [{**HUB_ROWS["math500"], "unique_id": str(i)} for i in range(399)]
OTHER_COLUMNS, MMLU = [{"id": "0", "question": "Q", "answer": "1"}], [HUB_ROWS["mmlu"]]
FOUND = r"lacks problem; it has id, question, answer\. .*columns id, problem, answer"


@pytest.mark.parametrize(
    ("name", "split", "part", "rows", "said"),
    [
        ("math500", "train", (None, "test"), FEW, "holds 399 rows; rows 100 to 400 are cut from it"),
        ("aime25", "test", (None, "test"), OTHER_COLUMNS, FOUND),
        ("mmlu", "test", ("every", "test"), MMLU, "all/test.*BuilderConfig 'all' not found"),
        ("mmlu", "test", ("all", "validation"), MMLU, 'all/test.*Unknown split "test"'),
    ],
    ids=["too few rows for the cut", "other columns", "configuration that is gone", "split that is gone"],
)
def test_a_change_upstream_is_named(
    dataset: MakeDataset, workspace: Workspace, name: str, split: Split, part: Any, rows: Any, said: str
) -> None:
    with pytest.raises(HubChanged, match=said):
        read(at(BENCHMARKS[name], dataset({part: rows})), split, workspace)


def test_files_that_do_not_fit_one_table_quote_no_row(dataset: MakeDataset, workspace: Workspace) -> None:
    place = dataset({("gpqa_diamond", "train"): [HUB_ROWS["gpqa_diamond"]]})
    (place / "gpqa_diamond" / "other.parquet").write_bytes(parquet([{"Question": "canary", "more": 1}]))
    readme = (place / "README.md").read_text(encoding="utf-8").replace("train.parquet", "*.parquet")
    (place / "README.md").write_text(readme, encoding="utf-8")
    with pytest.raises(HubChanged, match="cannot be read as one table") as caught:
        read(at(BENCHMARKS["gpqa_diamond"], place), "test", workspace)
    assert "canary" not in str(caught.value)


def test_folder_without_data(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"hub dataset .*empty"):
        list(
            HubDataset(str(tmp_path / "empty"), {"test": UpstreamSplit(None, "test")}, ("id",), "").load_rows(
                "test", None
            )
        )


def test_a_revision_must_be_pinned_and_be_a_commit(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match=r"benchmarks\.mmlu\.revision: is missing.*git ls-remote \S+/cais/mmlu HEAD"):
        sound_problems(BENCHMARKS["mmlu"], "test", BenchmarkSource(source="hub"), workspace, 0)
    for moving in ("main", "v1.0", PINNED[:12]):
        with pytest.raises(ValueError, match="revision"):
            BenchmarkSource(source="hub", revision=moving)


# ── a stand-in hub on loopback ───────────────────────────────────────────────


class StandIn(BaseHTTPRequestHandler):
    """Serves the dataset `org/good` at one revision; other names fail in different ways."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[Counter[str]] = Counter()
    good = b"".join(json.dumps({"id": str(i), "problem": f"Q{i}", "answer": i}).encode() + b"\n" for i in range(3))

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked[f"{self.command} {path}"] += 1
        if "/gated/" in path:
            self.reply(401, b"{}", X_Error_Code="GatedRepo")
        elif "/absent/" in path:
            self.reply(404, b"{}", X_Error_Code="RepoNotFound")
        elif "/garbage/" in path:
            self.reply(200, b"<html>a captive portal</html>")
        elif "/down/" in path:
            self.reply(500, b"")
        elif "/unavailable/" in path:
            self.reply(501, b"")
        elif "/good/" in path and PINNED not in path:
            self.reply(404, b"{}", X_Error_Code="RevisionNotFound")
        elif path.endswith("/good/resolve/" + PINNED + "/test.jsonl"):
            self.reply(200, self.good, ETag=f'"{"b" * 40}"', X_Repo_Commit=PINNED)
        elif "/tree/" in path:
            self.reply(200, json.dumps([self.entry]).encode())
        elif path.startswith("/api/datasets/org/good/revision/"):
            siblings = [{"rfilename": "test.jsonl"}]
            self.reply(200, json.dumps({"id": "org/good", "sha": PINNED, "tags": [], "siblings": siblings}).encode())
        else:
            self.reply(404, b"{}", X_Error_Code="EntryNotFound", X_Repo_Commit=PINNED)

    do_HEAD = do_GET  # noqa: N815 (the base class's spelling)

    def do_POST(self) -> None:
        paths = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["paths"]
        self.reply(200, json.dumps([self.entry] if "test.jsonl" in paths else []).encode())

    @property
    def entry(self) -> dict[str, Any]:
        return {"type": "file", "path": "test.jsonl", "size": len(self.good), "oid": "b" * 40}

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(240)


ASK = """
import json, sys, time
time.sleep = lambda seconds: None  # between two tries of the hub's library
from ops.benchmarks.hub import HubDataset, UpstreamSplit
from ops.core.errors import DataError
for asked in sys.argv[1:]:
    name, revision = asked.split("@")
    hub = HubDataset(name, {"test": UpstreamSplit(None, "test")}, ("id", "problem", "answer"), "")
    try:
        print(json.dumps(["rows", [row.values["problem"] for row in hub.load_rows("test", revision)]]))
    except DataError as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""


def ask(home: Path, endpoint: str, *names: str, offline: bool = False) -> list[tuple[str, Any]]:
    """Fetch `NAME@REVISION`s in a separate process, because the hub's library reads its environment at import."""
    environment = {
        **os.environ,
        "HF_HOME": str(home),
        "HF_ENDPOINT": endpoint,
        "HF_HUB_OFFLINE": str(int(offline)),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", ASK, *names]
    process = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=240
    )
    assert process.returncode == 0, process.stderr
    return [(kind, said) for kind, said in map(json.loads, process.stdout.splitlines())]


def test_any_reply_of_the_hub_becomes_rows_or_a_clear_error(tmp_path: Path, endpoint: str) -> None:
    names = ("good", "gated", "absent", "garbage", "unavailable", "down")
    good, gated, absent, garbage, unavailable, down, other = ask(
        tmp_path, endpoint, *(f"org/{name}@{PINNED}" for name in names), f"org/good@{OTHER}"
    )
    assert good == ("rows", ["Q0", "Q1", "Q2"])
    assert gated[0] == "HubRefused"
    assert "is gated. Accept its terms at https://huggingface.co/datasets/org/gated and set HF_TOKEN" in gated[1]
    assert absent[0] == "HubRefused"
    assert "does not exist or is private" in absent[1]
    assert other[0] == "HubRefused"
    assert f"has no revision {OTHER}. `git ls-remote" in other[1]
    for kind, said in (garbage, unavailable, down):
        assert kind == "HubUnreachable"
        assert "Check the network" in said
        assert "use source: file. What was loaded before is unchanged" in said
    assert max(count for request, count in StandIn.asked.items() if "/down/" in request) > 1, "it is asked again"


def test_a_cached_revision_serves_without_a_hub_and_never_for_another(tmp_path: Path, endpoint: str) -> None:
    ask(tmp_path, endpoint, f"org/good@{PINNED}")
    same, other, never = ask(
        tmp_path, endpoint, f"org/good@{PINNED}", f"org/good@{OTHER}", f"org/never@{PINNED}", offline=True
    )
    assert same == ("rows", ["Q0", "Q1", "Q2"])
    # By default `datasets` returns "the latest cached version" here, whatever its revision.
    assert other[0] == "HubUnreachable"
    assert f"revision {OTHER} is not in the local cache" in other[1]
    assert never[0] == "HubUnreachable"


def test_after_a_failure_the_last_good_files_are_untouched(
    dataset: MakeDataset, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [{**HUB_ROWS["aime25"], "id": str(i)} for i in range(3)]
    entry = at(BENCHMARKS["aime25"], dataset({(None, "test"): good}))
    monkeypatch.setitem(BENCHMARKS.entries, "aime25", entry)
    hub = BenchmarkSource(source="hub", revision=PINNED)
    recipe = make_recipe(aime25=hub)
    assert len(materialize_raw(without_workers(workspace, recipe), "aime25").test) == 3
    before = raw_file(workspace, recipe, "aime25", "test").read_bytes()
    changed = at(entry, dataset({(None, "test"): [{"id": "0", "text": "Q"}]}, "changed"))
    for broken in (changed, at(entry, Path("nobody/nothing"))):
        monkeypatch.setitem(BENCHMARKS.entries, "aime25", broken)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
        with pytest.raises((HubChanged, HubUnreachable)):
            materialize_raw(without_workers(workspace, recipe), "aime25")
        assert raw_file(workspace, recipe, "aime25", "test").read_bytes() == before
