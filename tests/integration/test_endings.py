"""Ends of commands: unusable state or configuration, Ctrl-C and SIGTERM at any moment, a deleted folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ops.core import sqlite
from ops.core.errors import ConfigError, DataError
from ops.core.workspace import Workspace
from ops.versioning import git_commit
from ops.versioning.dvc import commit_stages
from pipelines import termination
from tests.command import PODIUM, default_signals, podium, start_run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace without any run."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    shutil.copytree(ROOT / "data" / "few_shots", tmp_path / "data" / "few_shots")
    for file in ("dvc.yaml", "dagster.yaml"):
        shutil.copy(ROOT / file, tmp_path)
    monkeypatch.setenv("PODIUM_ROOT", str(tmp_path))
    return Workspace(tmp_path)


def garbage(file: Path) -> None:
    file.write_bytes(b"garbage " * 1000)


def one_line(printed: str) -> bool:
    """Whether it is an error of one line: what is wrong, and then what to do."""
    return re.fullmatch(r"error: [^\n]+\. [A-Z][^\n]+\n", printed) is not None


@pytest.mark.parametrize(("place", "spoil", "words", "said"), [
    (".podium/ledger.sqlite", garbage, ["ledger"], "is not a database"),
    (".podium/ledger.sqlite", Path.mkdir, ["ledger"], "is a folder, and a database belongs there"),
    (".podium/cache/responses.sqlite", Path.mkdir, ["cache", "inspect"], "is a folder, and a database belongs there"),
    (".podium/mlflow/mlflow.db", garbage, ["rollback", "--reason", "why"], "is not a database"),
    (".podium/mlflow/mlflow.db", garbage, ["ask", "Why?"], "is not a database"),
    (".podium/mlflow/mlflow.db", garbage, ["run"], "is not a database"),
    (".podium/mlflow/mlflow.db", Path.mkdir, ["run"], "is a folder, and a database belongs there"),
    (".podium/dagster/history/runs.db", garbage, ["run"], "is not a database"),
    (".podium", garbage, ["ledger"], "File exists"),
    (".podium", garbage, ["run"], "Not a directory|File exists"),
])  # fmt: skip
def test_state_that_cannot_be_used_is_one_line(
    workspace: Workspace, place: str, spoil: Callable[[Path], None], words: list[str], said: str,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = workspace.root / place
    file.parent.mkdir(parents=True, exist_ok=True)
    spoil(file)
    code = podium(*words)
    printed = capfd.readouterr().err
    assert code == 1 and one_line(printed), printed
    assert re.search(said, printed) and file.name in printed, printed


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda file: file.write_text("a: [\n"), "line 2: is not valid YAML"),
    (lambda file: file.write_bytes(b"\xff\xfe"), "is not UTF-8"),
    (lambda file: file.write_text("[1]"), "is not a mapping"),
    (lambda file: file.write_text("nonsense: 1"), 'refused by Dagster (Received unexpected config entry "nonsense"'),
    (lambda file: file.write_text("concurrency: {pools: {granularity: x}}"), "Expected value 'run' or 'op'"),
    (os.mkfifo, "is a pipe"), (Path.mkdir, "is a folder"), (lambda file: None, "does not exist"),
])  # fmt: skip
def test_a_broken_dagster_file_is_one_line(
    workspace: Workspace, spoil: Callable[[Path], None], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = workspace.root / "dagster.yaml"
    file.unlink()
    spoil(file)
    assert podium("run") == 1
    printed = capfd.readouterr().err
    assert one_line(printed) and printed.startswith(f"error: {file}: ") and said in printed, printed


def test_a_mistake_in_the_configuration_is_one_line(workspace: Workspace, capfd: pytest.CaptureFixture[str]) -> None:
    (workspace.config / "recipes" / "wrong.yaml").write_text("base: quickstart\nsed: 1\n", encoding="utf-8")
    assert podium("run", "wrong") == 1
    printed = capfd.readouterr()
    wanted = r"error: \S+wrong\.yaml: sed \(line 2\): is not a known key\. Did you mean seed\? .*\n"
    assert re.fullmatch(wanted, printed.out + printed.err)


def test_a_ledger_that_another_process_holds_is_one_line(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.2)
    workspace.state.mkdir()
    with closing(sqlite3.connect(workspace.ledger, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert podium("ledger") == 1
    printed = capsys.readouterr().err
    assert re.fullmatch(r"error: \S+ledger\.sqlite: database is locked\. Another[^\n]+\n", printed)


@pytest.mark.parametrize(("error", "line"), [
    (OSError(28, "No space left on device", "scores/a.jsonl"), "scores/a.jsonl: No space left on device. Make room"),
    (OSError(28, "No space left on device"), "No space left on device. Make room"),
    (PermissionError(13, "Permission denied", "x"), "x: Permission denied. Give"),
    (sqlite3.OperationalError("attempt to write a readonly database"), r".*\.podium/\*\.db: .*readonly.*\. Make"),
    (sqlite3.OperationalError("database or disk is full"), r".*\.podium/\*\.db: database or disk is full\. Make room"),
])  # fmt: skip
def test_an_error_of_the_machine_is_one_line(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = termination.explain_error(error)
    assert said is not None and re.match(line, said)
    wrapped = RuntimeError("while writing")
    wrapped.__cause__ = error
    assert termination.explain_error(wrapped) == said
    monkeypatch.setenv(termination.TRACEBACK_VARIABLE, "1")
    assert termination.explain_error(error) is None


def of_sqlalchemy(file: Path) -> None:
    from sqlalchemy import create_engine, text

    with create_engine(f"sqlite:///{file}").connect() as connection:
        connection.execute(text("CREATE TABLE more (x)"))
        connection.commit()


def of_podium(file: Path) -> None:
    with closing(sqlite3.connect(f"file:{file}?mode=rw", uri=True)) as connection:
        connection.execute("CREATE TABLE more (x)")


def put_read_only(file: Path) -> None:
    """A database that refuses writes, also those of root."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("CREATE TABLE one (x)")
    content = bytearray(file.read_bytes())
    content[18] = 3  # the version of the format that a writer must know
    file.write_bytes(content)


@pytest.mark.parametrize("use", [of_sqlalchemy, of_podium])
@pytest.mark.parametrize(("spoil", "said"), [
    (garbage, "file is not a database. Restore it"), (Path.mkdir, "is a folder, and a database belongs there. Move"),
    (put_read_only, "attempt to write a readonly database. Make the file and its folder writable"),
])  # fmt: skip
def test_the_database_of_a_library_is_named(
    workspace: Workspace, spoil: Callable[[Path], None], said: str, use: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """SQLite names no file; there are four databases in a workspace."""
    monkeypatch.setattr(termination, "_OWN_PACKAGES", (__name__,))
    file = workspace.state / "mlflow" / "mlflow.db"
    file.parent.mkdir(parents=True)
    spoil(file)
    with pytest.raises(Exception) as raised:
        use(file)
    line = termination.explain_error(raised.value)
    assert line is not None and line.startswith(f"{file}: {said}"), line


def test_an_error_without_a_name_is_about_the_file_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: Path) -> None:
        assert file.name
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(termination, "_OWN_PACKAGES", (__name__,))
    with pytest.raises(PermissionError) as raised:
        refuse(tmp_path / "scores.parquet")
    said = f"{tmp_path / 'scores.parquet'}: Permission denied. Give this user the permission"
    assert termination.explain_error(raised.value) == said


def test_a_folder_that_a_file_should_replace_is_named(tmp_path: Path) -> None:
    written, folder = tmp_path / ".uploading.1", tmp_path / "page.html"
    written.write_text("new")
    folder.mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        written.replace(folder)
    assert str(termination.explain_error(raised.value)).startswith(f"{folder}: Is a directory. Move the folder away")


def test_what_podium_says_goes_before_what_caused_it() -> None:
    known = DataError("ledger.sqlite", "", "is damaged", "Restore it")
    known.__cause__ = sqlite3.DatabaseError("database disk image is malformed")
    around = RuntimeError("Error executing resource_fn on ResourceDefinition podium")
    around.__cause__ = known
    assert termination.explain_error(around) == "ledger.sqlite: is damaged. Restore it"


@pytest.mark.parametrize("error", [
    ValueError("a defect"), KeyError("a defect"), sqlite3.ProgrammingError("a defect"), sqlite3.IntegrityError("one"),
    OSError("no number"), AssertionError(),
], ids=repr)  # fmt: skip
def test_a_defect_keeps_its_traceback(error: Exception) -> None:
    assert termination.explain_error(error) is None


def program(*arguments: object, cwd: Path = ROOT, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments and with the usual signals; return what it prints."""
    settings: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "preexec_fn": default_signals}
    words = [sys.executable, *map(str, arguments)]
    return subprocess.run(words, cwd=cwd, text=True, check=False, timeout=250, **settings | options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is absent")
@pytest.mark.usefixtures("workspace")
def test_an_error_of_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = program(*PODIUM[1:], "baselines", stdout=full)
    assert "Traceback" not in ended.stderr


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert git_commit(Workspace(ROOT)) == "unknown"


@pytest.mark.parametrize("text", ["no section", "[core]\nno_scm = perhaps\n", "[core", "[core]\na = 1\na = 2\n"])
def test_a_broken_configuration_of_dvc_is_named(workspace: Workspace, text: str) -> None:
    (workspace.root / ".dvc").mkdir()
    (workspace.root / ".dvc" / "config").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"\.dvc/config: is not a configuration of DVC"):
        commit_stages(workspace, "settings")


@pytest.mark.parametrize("word", ["ledger", "plan", "init"])
def test_a_folder_that_was_deleted_is_one_line(tmp_path: Path, word: str) -> None:
    code = "import os, sys; os.rmdir(os.getcwd()); from pipelines.script import main; main()"
    (gone := tmp_path / "gone").mkdir()
    ended = program("-c", code, word, cwd=gone, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(r"error: the current folder was deleted\. [^\n]+\n", ended.stderr)


SIGNALLED = """\
import os, sys
left, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
class Finder:
    began = False
    def find_spec(self, name, path=None, target=None):
        global left
        self.began = self.began or name == "pipelines.commands.main"
        left -= self.began
        if self.began and left == 0:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
from pipelines.script import main
main()
"""
"""Sends the process a signal at the n-th import of the command: `n SIGNAL WORDS…`."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("imports", "number"),
    [
        pytest.param(imports, number, marks=[] if number == often else pytest.mark.soak, id=f"{imports}-{number.name}")
        for imports, often in zip((1, 5, 60, 400, 1200), cycle((signal.SIGTERM, signal.SIGINT)), strict=False)
        for number in (signal.SIGINT, signal.SIGTERM)
    ],
)
def test_a_signal_during_imports_ends_without_a_traceback(imports: int, number: signal.Signals) -> None:
    ended = program("-c", SIGNALLED, imports, int(number), "run")
    assert ended.returncode in (-number, 128 + number), ended.stderr
    assert "Traceback" not in ended.stderr and "Exception ignored" not in ended.stderr, ended.stderr
    assert ended.returncode < 0 or "Stopped" in ended.stderr


IN_A_DESTRUCTOR = """\
import contextlib, os, signal, sys, time
from pipelines.termination import get_signal_exit_code, record_signals
from dagster._core.errors import DagsterExecutionInterruptedError, raise_execution_interrupts
class Destroyed:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(0.01)
signal.signal(signal.SIGINT, signal.SIG_DFL)
record_signals()
try:
    with raise_execution_interrupts() if sys.argv[2] == "step" else contextlib.nullcontext():
        Destroyed()
        time.sleep(30)
except (KeyboardInterrupt, DagsterExecutionInterruptedError):
    sys.exit(get_signal_exit_code())
"""
"""`SIGNAL command|step`: a signal arrives while an object is destroyed, when an exception would be lost."""


@pytest.mark.parametrize("where", ["command", "step"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_in_a_destructor_is_not_lost(number: signal.Signals, where: str) -> None:
    ended = program("-c", IN_A_DESTRUCTOR, int(number), where)
    assert (ended.returncode, ended.stderr) == (128 + number, "")


def test_errors_that_came_of_each_other_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(termination.TRACEBACK_VARIABLE, raising=False)
    first, second = RuntimeError("first"), OSError(28, "No space left on device", "file")
    first.__context__, second.__context__ = second, first
    assert str(termination.explain_error(first)).startswith("file: No space left on device. ")
    first.__context__ = first
    assert termination.explain_error(first) is None


AT_THE_END_OF_A_RUN = """\
import logging, os, signal, sys
import dagster as dg
from pipelines.termination import get_signal_exit_code, record_signals
from pipelines.launching import execute_in_process

class AtTheEnd(logging.Handler):
    def emit(self, record):
        if "RUN_SUCCESS" in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)

@dg.logger
def ending(context):
    logger = logging.Logger("ending")
    logger.addHandler(AtTheEnd())
    return logger

@dg.asset
def first():
    return 1

code = dg.Definitions([first], jobs=[dg.define_asset_job("job")], loggers={"ending": ending})
instance, config = dg.DagsterInstance.ephemeral(), {"loggers": {"ending": {}}}
signal.signal(signal.SIGINT, signal.SIG_DFL)
record_signals()
try:
    execute_in_process(code.resolve_job_def("job"), instance, run_id=sys.argv[1], run_config=config, tags={})
    print("what follows")
except dg.DagsterExecutionInterruptedError:
    sys.exit(get_signal_exit_code())
"""


@pytest.mark.long
@pytest.mark.usefixtures("workspace")
def test_a_signal_while_a_run_is_closed_is_not_lost() -> None:
    """Dagster captures a signal there, and forgets it at the end of the run."""
    ended = program("-c", AT_THE_END_OF_A_RUN, uuid4())
    assert (ended.returncode, ended.stdout) == (143, ""), ended.stderr


@pytest.mark.long
@pytest.mark.slow
def test_a_run_stopped_by_hand_prints_the_command_that_continues(project: Workspace) -> None:
    process = start_run(project.root, "quickstart")
    assert process.stdout is not None
    while "problems" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 130, printed
    assert "The same command goes on from here" in printed
    assert "Traceback" not in printed
