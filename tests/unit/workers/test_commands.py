"""`podium cache …` and `podium ledger`: their output, and an error message for each failure."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ops.config import Worker, load_pool
from ops.core.response import Response
from ops.core.usage import Usage
from ops.core.workspace import Workspace
from ops.precaching.precache import build_solo_messages
from ops.spending.ledger import Bill, Ledger, OutgoingCall
from ops.store import Kind, ResponseCache, ValueStore, cache_key, cache_material, open_backend
from tests.builders import make_problem
from tests.command import podium

ROOT = Path(__file__).parents[3]
SUM = make_problem(id="rlpr-001", question="What is two and two?")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Make a checkout with the real pools and one worker's answer."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "pools").symlink_to(ROOT / "config" / "pools")
    monkeypatch.setenv("PODIUM_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    made = Workspace(tmp_path)
    store(made, guesser(made))
    return made


def guesser(workspace: Workspace) -> Worker:
    return load_pool(workspace.config, "quickstart").worker("guesser")


def store(workspace: Workspace, worker: Worker) -> str:
    cache, messages = ResponseCache(workspace.cache), build_solo_messages(SUM)
    key, material = (make(worker.identity, messages, 0) for make in (cache_key, cache_material))
    cache.put_many([(key, material, Response("Answer: 4", Usage(10, 5), 0.001, 0.5, "stop"))])
    cache.close()
    return key


def test_inspect_show_export_verify(workspace: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    key = store(workspace, guesser(workspace))
    values = ValueStore(open_backend(workspace.cache), Kind.COMPLETION, str)
    values.put({"x" * 64: "A workflow."})
    assert podium("cache", "inspect") == 0
    assert podium("cache", "show", key[:10]) == 0
    assert podium("cache", "show", "xxx") == 0
    assert podium("cache", "export", str(tmp_path / "all.parquet")) == 0
    assert podium("cache", "verify") == 0
    out = capsys.readouterr().out
    held = "1 responses of 1 workers, each with its settings; 1 completions of policies"
    for expected in (guesser(workspace).model, held, "What is two and two?", "Answer: 4", "A workflow."):
        assert expected in out
    assert "1 responses in" in out
    assert "2 entries read, 0 damaged" in out


def test_prune(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    store(workspace, guesser(workspace).model_copy(update={"temperature": 1.5}))
    assert podium("cache", "prune", "--older-than", "0", "--kind", "verdict", "--dry-run") == 0
    assert "0 entries would be deleted of 2" in capsys.readouterr().out
    assert podium("cache", "prune", "--keep-pool", "quickstart", "--dry-run") == 0
    assert "1 entries would be deleted of 2" in capsys.readouterr().out
    assert podium("cache", "prune", "--keep-pool", "quickstart") == 0
    assert "1 entries deleted. The store now holds 1" in capsys.readouterr().out


def test_the_ledger_in_tables(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger(workspace.ledger)
    ledger.settle(Bill(ledger.reserve("one-run", 1.0, 9.0), "precache", "guesser", 0.125, Usage(1000, 40)))
    ledger.settle(Bill(ledger.reserve("another", 1.0, 9.0), "serving", "editor", 0.25, Usage(10, 4)))
    held = ledger.reserve("held-run", 1.0, 9.0)
    assert podium("ledger", "--calls", "5") == 0
    out = capsys.readouterr().out
    for expected in ("one-run", "another", "precache", "serving", "guesser", "0.1250", "0.3750", "1,010", "0.250000"):
        assert expected in out
    assert "Running processes have reserved $1.00 for run held-run." in out
    ledger.mark_lost(*ledger.mark_sent(OutgoingCall(held, "precache", "solver", "a key of no entry")))
    assert podium("ledger") == 0
    out = capsys.readouterr().out
    assert "Run held-run: 1 call sent without a response" in out
    assert "$1.00 for them" in out and "1.3750" in out
    assert podium("ledger", "--run", "another") == 0
    out = capsys.readouterr().out
    assert "serving" in out
    assert "precache" not in out


@pytest.mark.parametrize("columns", [80, 120, None], ids=["80", "120", "piped"])
def test_the_ledger_cuts_no_name(
    workspace: Workspace, columns: int | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, worker = "quickstart-adaptive-1-96573bdda8f6-cards", "a-worker-of-another-provider"
    ledger = Ledger(workspace.ledger)
    ledger.settle(Bill(ledger.reserve(run, 1e3, 1e4), "precache", worker, 123.4567, Usage(123_456_789, 12_345_678)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: columns is not None)
    monkeypatch.setenv("COLUMNS", str(columns or 80))
    assert podium("ledger", "--calls", "1") == 0
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "…" not in out
    assert out.count(run) == 2 and worker in out and "123,456,789" in out
    assert all(len(line.rstrip()) <= (columns or 200) for line in out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cache", "show", "ffff"], "is not the key of a valid entry"),
        (["cache", "prune"], "--keep-pool or --older-than"),
        (["cache", "prune", "--keep-pool", "nonesuch"], "does not exist"),
    ],
)
def test_errors_say_what_to_do(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert podium(*arguments) == 1
    assert message in capsys.readouterr().err
