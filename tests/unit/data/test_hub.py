"""The hub as a source: the real `datasets` code on local folders in the upstream's shape, and a stand-in server on
loopback that fails in every way a hub can. The live hub is not contacted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ops.benchmarks.base import Benchmark
from ops.benchmarks.hub import Hub, HubChanged, HubUnreachable, UpstreamSplit
from ops.benchmarks.registry import BENCHMARKS
from ops.benchmarks.store import raw_file
from ops.config import BenchmarkSource
from ops.core.errors import ConfigError, DataError
from ops.core.problem import Problem, Split
from ops.core.workspace import Workspace
from ops.stages.problems import materialize_raw
from tests.loading import sound_problems
from tests.setups import without_workers
from tests.unit.data.upstream import HUB_ROWS, make_recipe

ROOT = Path(__file__).resolve().parents[3]
PINNED, OTHER = "a" * 40, "c" * 40
IDS = {"livecodebench": "question_id", "gpqa_diamond": "Record ID", "bigcodebench": "task_id"}
"""Columns whose values must differ between rows."""

Rows = Sequence[Mapping[str, Any]]
MakeFolder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeFolder:
    """`folder({(config, split): rows})`: a local dataset of Parquet files that `datasets` reads."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def made(tables: Mapping[tuple[str | None, str], Rows], name: str = "upstream") -> Path:
        configs: dict[str, list[dict[str, str]]] = {}
        for (config, split), rows in tables.items():
            file = tmp_path / name / (config or "default") / f"{split}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
            path = str(file.relative_to(tmp_path / name))
            configs.setdefault(config or "default", []).append({"split": split, "path": path})
        stated = [{"config_name": config, "data_files": files} for config, files in configs.items()]
        (tmp_path / name / "README.md").write_text(f"---\nconfigs: {json.dumps(stated)}\n---\n", encoding="utf-8")
        return tmp_path / name

    return made


def at(entry: Benchmark, place: Path, **parts: UpstreamSplit) -> Benchmark:
    """Return the benchmark with its dataset at `place`, and other cuts if the real ones need too many rows."""
    return replace(entry, hub=replace(entry.hub, id=str(place), parts=parts or entry.hub.parts))


def read(entry: Benchmark, split: Split, workspace: Workspace) -> list[Problem]:
    return sound_problems(entry, split, BenchmarkSource(source="hub", revision=PINNED), workspace, 0)


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in ("math500", "rlpr")])
def test_every_benchmark_comes_through_datasets(name: str, folder: MakeFolder, workspace: Workspace) -> None:
    entry, column = BENCHMARKS[name], IDS.get(name, "id")
    tables = {
        (part.config, part.split): [{**HUB_ROWS[name], column: f"rec{i}"} for i in range(3)]
        for part in entry.hub.parts.values()
    }
    entry = at(entry, folder(tables))
    for split in entry.splits:
        problems = read(entry, split, workspace)
        assert len(problems) == len({problem.id for problem in problems}) == 3
        assert {(p.benchmark, p.split, p.grader) for p in problems} == {(name, split, entry.grader)}
        assert problems == read(entry, split, workspace)


def test_parts_cut_from_one_split_are_disjoint_and_fixed(folder: MakeFolder, workspace: Workspace) -> None:
    rows = [{**HUB_ROWS["math500"], "unique_id": f"test/{i}", "problem": f"Q{i}"} for i in range(500)]
    entry = at(BENCHMARKS["math500"], folder({(None, "test"): rows}))
    train, test = (read(entry, split, workspace) for split in entry.splits)
    numbers = [int(problem.id.removeprefix("test/")) for problem in test]
    assert (len(train), len(test), len({p.id for p in (*train, *test)})) == (300, 100, 400)
    assert numbers == sorted(numbers) != list(range(100))
    assert numbers[:5] == [6, 14, 17, 19, 24], "the held-out questions may never change"


def test_nested_messages_and_verdicts_come_through_datasets(folder: MakeFolder, workspace: Workspace) -> None:
    entry = at(
        BENCHMARKS["rlpr"],
        folder({(None, "train"): [HUB_ROWS["rlpr"]] * 12}),
        test=UpstreamSplit(None, "train", 0, 4),
        train=UpstreamSplit(None, "train", 4, 8),
    )
    train, test = (read(entry, split, workspace) for split in entry.splits)
    assert (len(train), len(test)) == (8, 4)
    assert not {problem.id for problem in train} & {problem.id for problem in test}
    assert (train[0].question, train[0].answer, train[0].subject) == ("Q", "42 m", "physics")


def test_too_few_rows_for_the_cut_are_reported(folder: MakeFolder, workspace: Workspace) -> None:
    rows = [{**HUB_ROWS["math500"], "unique_id": str(i)} for i in range(399)]
    entry = at(BENCHMARKS["math500"], folder({(None, "test"): rows}))
    with pytest.raises(HubChanged, match=r"holds 399 rows; rows 100 to 400 are cut from it"):
        read(entry, "train", workspace)


def test_changed_schema_lists_columns_found_and_expected(folder: MakeFolder, workspace: Workspace) -> None:
    entry = at(BENCHMARKS["aime25"], folder({(None, "test"): [{"id": "0", "question": "Q", "answer": "1"}]}))
    with pytest.raises(HubChanged, match=r"lacks problem; it has id, question, answer\. .*columns id, problem, answer"):
        read(entry, "test", workspace)


def test_configuration_or_split_that_is_gone(folder: MakeFolder, workspace: Workspace) -> None:
    mmlu = [HUB_ROWS["mmlu"]] * 2
    entry = at(BENCHMARKS["mmlu"], folder({("every", "test"): mmlu}))
    with pytest.raises(HubChanged, match=r"all/test.*BuilderConfig 'all' not found"):
        read(entry, "test", workspace)
    entry = at(BENCHMARKS["mmlu"], folder({("all", "validation"): mmlu}, "other"))
    with pytest.raises(HubChanged, match=r'all/test.*Unknown split "test"'):
        read(entry, "test", workspace)


def test_files_that_do_not_fit_one_table_quote_no_row(folder: MakeFolder, workspace: Workspace) -> None:
    place = folder({("gpqa_diamond", "train"): [HUB_ROWS["gpqa_diamond"]]})
    pq.write_table(pa.table({"Question": ["canary"], "more": [1]}), place / "gpqa_diamond" / "other.parquet")
    readme = (place / "README.md").read_text(encoding="utf-8").replace("train.parquet", "*.parquet")
    (place / "README.md").write_text(readme, encoding="utf-8")
    with pytest.raises(HubChanged, match="cannot be read as one table") as caught:
        read(at(BENCHMARKS["gpqa_diamond"], place), "test", workspace)
    assert "canary" not in str(caught.value)


def test_folder_without_data(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"hub dataset .*empty"):
        list(Hub(str(tmp_path / "empty"), {"test": UpstreamSplit(None, "test")}, ("id",), "").rows("test", None))


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
from ops.benchmarks.hub import Hub, UpstreamSplit
from ops.core.errors import DataError
for asked in sys.argv[1:]:
    name, revision = asked.split("@")
    hub = Hub(name, {"test": UpstreamSplit(None, "test")}, ("id", "problem", "answer"), "")
    try:
        print(json.dumps(["rows", [row.values["problem"] for row in hub.rows("test", revision)]]))
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
    names = ("good", "gated", "absent", "garbage", "unavailable")
    good, gated, absent, garbage, unavailable, other = ask(
        tmp_path, endpoint, *(f"org/{name}@{PINNED}" for name in names), f"org/good@{OTHER}"
    )
    assert good == ("rows", ["Q0", "Q1", "Q2"])
    assert gated[0] == "HubRefused"
    assert "is gated. Accept its terms at https://huggingface.co/datasets/org/gated and set HF_TOKEN" in gated[1]
    assert absent[0] == "HubRefused"
    assert "does not exist or is private" in absent[1]
    assert other[0] == "HubRefused"
    assert f"has no revision {OTHER}. `git ls-remote" in other[1]
    for kind, said in (garbage, unavailable):
        assert kind == "HubUnreachable"
        assert "use source: file. What was loaded before is unchanged" in said


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


def test_a_hub_that_is_down_is_retried_and_then_reported(tmp_path: Path, endpoint: str) -> None:
    ((kind, said),) = ask(tmp_path, endpoint, f"org/down@{PINNED}")
    assert kind == "HubUnreachable"
    assert "Check the network" in said
    assert max(count for request, count in StandIn.asked.items() if "/down/" in request) > 1


def test_after_a_failure_the_last_good_files_are_untouched(
    folder: MakeFolder, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [{**HUB_ROWS["aime25"], "id": str(i)} for i in range(3)]
    entry = at(BENCHMARKS["aime25"], folder({(None, "test"): good}))
    monkeypatch.setitem(BENCHMARKS.entries, "aime25", entry)
    hub = BenchmarkSource(source="hub", revision=PINNED)
    recipe = make_recipe(aime25=hub)
    assert len(materialize_raw(without_workers(workspace, recipe), "aime25").test) == 3
    before = raw_file(workspace, recipe, "aime25", "test").read_bytes()
    changed = at(entry, folder({(None, "test"): [{"id": "0", "text": "Q"}]}, "changed"))
    for broken in (changed, at(entry, Path("nobody/nothing"))):
        monkeypatch.setitem(BENCHMARKS.entries, "aime25", broken)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
        with pytest.raises((HubChanged, HubUnreachable)):
            materialize_raw(without_workers(workspace, recipe), "aime25")
        assert raw_file(workspace, recipe, "aime25", "test").read_bytes() == before
