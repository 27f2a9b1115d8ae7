"""Folders that a killed run left in the system's temporary folder are removed by the next run."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.core.problem import CodeTest
from ops.grading import folders, grade
from tests.builders import fenced, make_code_problem

ROOT = Path(__file__).resolve().parents[3]
GRADES_FOR_EVER = """
from pathlib import Path
from ops.config import Grading
from ops.core.problem import CodeTest
from ops.grading import configure, grade
from tests.builders import fenced, make_code_problem
configure(Path("."), "resource_limits")
program = "import os\\nos.mkdir('kept')\\nos.chmod('kept', 0)\\nimport time\\ntime.sleep(600)"
grade(make_code_problem(CodeTest("call", "f()", "42")), fenced(program))
"""


def left_in(place: Path) -> list[Path]:
    return [folder for folder in place.iterdir() if folder.name.startswith("podium-sandbox-")]


def bare_machine(place: Path) -> dict[str, str]:
    """The environment of a machine without bubblewrap, whose programs run in a folder of `place`."""
    return {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT), "PATH": "/nowhere"}


def grading_process(place: Path) -> subprocess.Popen[bytes]:
    """A process that is grading a program that never ends."""
    process = subprocess.Popen([sys.executable, "-c", GRADES_FOR_EVER], env=bare_machine(place), cwd=ROOT)
    while not any((folder / "kept").exists() for folder in left_in(place) if f"-{process.pid}-" in folder.name):
        assert process.poll() is None
        time.sleep(0.05)
    return process


def test_the_folders_of_a_killed_run_are_swept_by_the_next(tmp_path: Path) -> None:
    killed, living = grading_process(tmp_path), grading_process(tmp_path)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait(240)
        assert len(left_in(tmp_path)) == 2
        once = GRADES_FOR_EVER.replace("time.sleep(600)", "0")
        subprocess.run([sys.executable, "-c", once], env=bare_machine(tmp_path), cwd=ROOT, check=True, timeout=240)
        [kept] = left_in(tmp_path)
        assert f"-{living.pid}-" in kept.name, "what a living process uses stays"
    finally:
        living.kill()
        living.wait(240)


@pytest.fixture(autouse=True)
def emptied(tmp_path: Path) -> Iterator[None]:
    """Remove the folder, because pytest's own removal recurses and would fail in every later session."""
    yield
    for left in left_in(tmp_path):
        subprocess.run(["rm", "-rf", str(left)], check=True, timeout=120)


def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def left_by(pid: int, place: Path, name: str = "abc") -> Path:
    """Make a program's folder of a process with this number."""
    folder = place / f"podium-sandbox-{folders._find_pid_namespace()}-{pid}-1.00-{name}"
    folder.mkdir()
    return folder


def nested(folder: Path) -> None:
    """Nest folders far beyond the maximum length of a path, with a file in the last."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


def many_files(folder: Path) -> None:
    for number in range(3_000):
        (folder / str(number)).touch()


def odd_entries(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    for name in (b"\xff\xfe", "\udcff".encode("utf-8", "surrogatepass"), b"\n", b"-rf", b"x" * 255):
        os.mkdir(name, dir_fd=descriptor)
        os.close(os.open(name + b"/\xff", os.O_CREAT, dir_fd=descriptor))
    os.mkfifo("fifo", dir_fd=descriptor)
    os.mknod("socket", stat.S_IFSOCK, dir_fd=descriptor)
    os.close(descriptor)
    (folder / "loop").symlink_to("loop")
    (folder / "gone").symlink_to("/nowhere")


def closed(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    for place in ("a/b/file", "a/b", "a", "."):
        (folder / place).chmod(0)


FILLED = pytest.mark.parametrize("fill", [nested, many_files, odd_entries, closed], ids=lambda fill: fill.__name__)


@FILLED
def test_files_left_by_a_program_are_swept(fill: Callable[[Path], None], tmp_path: Path) -> None:
    left = left_by(ended_process(), tmp_path)
    fill(left)
    assert folders.remove_abandoned_folders(tmp_path) == [left]
    assert list(tmp_path.iterdir()) == []


@FILLED
def test_files_of_a_program_are_removed_after_it(
    fill: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with folders.sandbox_folder() as folder:
        fill(Path(folder))
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_removed_and_what_it_names_is_not(tmp_path: Path) -> None:
    (tmp_path / "precious" / "inner").mkdir(parents=True)
    (tmp_path / "precious" / "file").write_text("kept", encoding="utf-8")
    (tmp_path / "precious").chmod(0o750)
    left = left_by(ended_process(), tmp_path)
    (left / "link").symlink_to(tmp_path / "precious")
    (left / "inner").mkdir()
    (left / "inner" / "link").symlink_to("../../precious")
    os.link(tmp_path / "precious" / "file", left / "second name")
    assert folders.remove_abandoned_folders(tmp_path) == [left]
    assert (tmp_path / "precious" / "file").read_text(encoding="utf-8") == "kept"
    assert (tmp_path / "precious" / "inner").is_dir()
    assert stat.S_IMODE((tmp_path / "precious").stat().st_mode) == 0o750


def test_a_program_that_nests_folders_is_graded_and_so_is_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits_alone: None
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    nests = "import os\nfor _ in range(1200):\n    os.mkdir('d')\n    os.chdir('d')\n"
    for program in (f"{nests}def f():\n    return 42", "def f():\n    return 42"):
        assert grade(make_code_problem(CodeTest("call", "f()", "42")), fenced(program)).score == 1.0
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_removed_is_logged_and_keeps_no_other_from_being_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pid = ended_process()
    stuck, other = left_by(pid, tmp_path, "a"), left_by(pid, tmp_path, "b")
    (stuck / "immutable").touch()
    unlink = os.unlink

    def refused(name: str, *, dir_fd: int | None = None) -> None:
        if name == "immutable":
            raise PermissionError(errno.EPERM, "Operation not permitted", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(folders.os, "unlink", refused)
    assert folders.remove_abandoned_folders(tmp_path) == [other]
    assert stuck.is_dir()
    [record] = caplog.records
    assert str(stuck) in record.getMessage() and "Operation not permitted" in record.getMessage()


def test_a_place_that_cannot_be_read_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert folders.remove_abandoned_folders(tmp_path / "missing") == []
    assert "missing" in caplog.text


def test_a_folder_that_another_process_sweeps_meanwhile_leaves_the_place_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's temporary folder belongs to every user: it keeps its mode."""
    left = left_by(ended_process(), tmp_path)
    remove = folders.remove_folder

    def late(folder: Path) -> bool:
        remove(folder)
        return remove(folder)

    tmp_path.chmod(0o1777)
    monkeypatch.setattr(folders, "remove_folder", late)
    assert folders.remove_abandoned_folders(tmp_path) == [left]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    here = folders._find_pid_namespace()
    names = (
        "podium-sandbox-1-x-y-z", "podium-sandbox", "podium-mine", "podium-sandbox-999999-999999-1.00-abc",
        f"podium-sandbox-{here}-{'9' * 5000}-1.00"[:250], f"podium-sandbox-{here}-1-nan-abc",
        f"podium-sandbox-{here}--5-1.00-abc",
    )  # fmt: skip
    for name in names:
        (tmp_path / name).mkdir()
    assert folders.remove_abandoned_folders(tmp_path) == []
    assert {folder.name for folder in tmp_path.iterdir()} == set(names)
