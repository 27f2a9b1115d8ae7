"""Atomic replacement of files: temporary files of a killed writer are ignored by git and DVC, and removed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ops.core import atomic
from ops.core.atomic import create_folder_atomically, remove_leftovers, replace_atomically, write_text
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.versioning.dvc import find_program
from ops.versioning.without_dvc import hash_stage_output

ROOT = Path(__file__).parents[2]
KILLED = """
import os, signal, sys
from pathlib import Path
from ops.core import atomic
with getattr(atomic, sys.argv[1])(Path(sys.argv[2])) as temporary:
    (temporary / "half" if temporary.is_dir() else temporary).write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_write(file: Path, how: str = "replace_atomically") -> Path:
    """Return what a killed writer of `file` leaves."""
    before = set(file.parent.iterdir())
    ended = subprocess.run([sys.executable, "-c", KILLED, how, str(file)], cwd=ROOT, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    [left] = set(file.parent.iterdir()) - before
    return left


def test_the_next_writer_of_a_file_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    file, other = tmp_path / "livecodebench.parquet", tmp_path / "mmlu.parquet"
    left, kept = killed_write(file), killed_write(other)
    with replace_atomically(file) as living:
        living.write_text("being written", encoding="utf-8")
        write_text(file, "whole")
        assert living.exists(), "its writer lives"
        assert not left.exists()
        assert kept.exists(), "it belongs to another file"
        living.write_text("whole again", encoding="utf-8")
    assert file.read_text(encoding="utf-8") == "whole again"
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("name", [".podium/run.json", "data/raw/run.json"])
def test_a_folder_in_the_place_of_a_file_of_the_workspace_is_renamed_and_any_other_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    own, other = tmp_path / name, tmp_path / "export.parquet"
    for folder in (own, other):
        (folder / "inside").mkdir(parents=True)
    write_text(own, "whole")
    assert own.read_text(encoding="utf-8") == "whole"
    [aside] = own.parent.glob("run.json.damaged-*")
    assert (aside / "inside").is_dir() and str(own) in caplog.text and aside.name in caplog.text
    with pytest.raises(IsADirectoryError) as raised:
        write_text(other, "whole")
    assert raised.value.filename == str(other) and (other / "inside").is_dir()


def test_a_temporary_file_of_another_machine_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = killed_write(tmp_path / "a.json")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "another-machine")
        remove_leftovers(tmp_path)
    assert left.exists()
    remove_leftovers(tmp_path)
    assert not left.exists()


@pytest.mark.parametrize("name", [".gitignore.tmp", "data.tmp", ".a.json.host-x-00000000.tmp", ".a.tmp"])
def test_files_of_others_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    remove_leftovers(tmp_path)
    assert (tmp_path / name).exists()


def test_after_an_error_the_file_is_as_before(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_text(file, "old")
    with pytest.raises(ZeroDivisionError), replace_atomically(file) as temporary:
        temporary.write_text("new", encoding="utf-8")
        raise ZeroDivisionError
    with pytest.raises(OSError, match=r"a\.json") as caught, replace_atomically(file) as temporary:
        raise OSError(28, "No space left on device")
    assert caught.value.filename == str(file)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert file.read_text(encoding="utf-8") == "old"
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_folder_is_whole_or_absent_and_another_processs_stays(tmp_path: Path) -> None:
    folder = tmp_path / "below" / "policy"
    with pytest.raises(ZeroDivisionError), create_folder_atomically(folder) as part:
        (part / "half").touch()
        raise ZeroDivisionError
    assert list(folder.parent.iterdir()) == []
    with create_folder_atomically(folder) as part, create_folder_atomically(folder) as other:
        (part / "slower").touch()
        (other / "first").touch()
        assert not folder.exists()
    assert [file.name for file in folder.iterdir()] == ["first"]
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"), create_folder_atomically(tmp_path / "file"):
        pass
    left = killed_write(tmp_path / "version", "create_folder_atomically")
    assert left.is_dir() and left.match(atomic.TEMPORARY)
    with create_folder_atomically(tmp_path / "version"):
        pass
    assert list(tmp_path.glob(atomic.TEMPORARY)) == []


def test_git_ignores_what_a_killed_writer_left(tmp_path: Path) -> None:
    left = killed_write(tmp_path / "livecodebench.parquet").name
    assert Path(left).match(atomic.TEMPORARY)
    for place in (left, f"data/responses/{left}"):
        asked = subprocess.run(["git", "check-ignore", "-q", place], cwd=ROOT, check=False, timeout=60)
        if asked.returncode == 128:
            pytest.skip("this is no git repository")
        assert asked.returncode == 0, place


def test_data_without_dvc_is_named_by_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {one: {cmd: x, outs: [data/raw]}}", encoding="utf-8")
    write_text(tmp_path / "data" / "raw" / "a.json", "1")
    named = hash_stage_output(Workspace(tmp_path), "one")
    killed_write(tmp_path / "data" / "raw" / "a.json")
    assert hash_stage_output(Workspace(tmp_path), "one") == named


def test_dvc_ignores_what_a_killed_writer_left(tmp_path: Path) -> None:
    try:
        dvc = find_program(Workspace(ROOT))
    except PodiumError as error:
        pytest.skip(str(error))
    (tmp_path / "data").mkdir()
    left = killed_write(tmp_path / "data" / "a.parquet")
    (tmp_path / ".dvcignore").write_bytes((ROOT / ".dvcignore").read_bytes())
    for words in (["init", "--no-scm", "-q"], ["check-ignore", f"data/{left.name}"]):
        asked = subprocess.run(
            [dvc, *words], cwd=tmp_path, env=os.environ | {"DVC_NO_ANALYTICS": "1"}, capture_output=True, text=True,
            check=False, timeout=120,
        )  # fmt: skip
        assert asked.returncode == 0, asked.stderr
    assert left.name in asked.stdout
