"""Digests of files and folders: any damage is found and named, and no writer leaves a file that counts as damaged."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.core.atomic import create_folder_atomically
from ops.core.digests import SUMS_FILE, DamagedFile, check_digest, replace_with_digest, set_aside, write_digest
from ops.core.errors import DataError

REMEDY = "Make it again"
TEXT = b"weights " * 1000


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def overwrite(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 100] = os.urandom(100)
    file.write_bytes(content)


def change_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def make_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = [cut, overwrite, change_a_byte, empty, Path.unlink, make_folder]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with replace_with_digest(tmp_path / "scores.parquet") as temporary:
        temporary.write_bytes(TEXT)
    return tmp_path / "scores.parquet"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with create_folder_atomically(tmp_path / "policy") as made:
        (made / "deep").mkdir()
        for name in ("model.safetensors", "podium.json", "deep/optimizer.pt"):
            (made / name).write_bytes(name.encode() + TEXT)
        write_digest(made, skip=["optimizer.pt"])
    return tmp_path / "policy"


@pytest.mark.parametrize("damage", DAMAGES)
def test_any_damage_of_a_file_or_of_its_digest_is_found_and_named(file: Path, damage: Callable[[Path], None]) -> None:
    check_digest(file, REMEDY)
    beside = file.with_name("scores.parquet.sha256")
    kept = shutil.copy(beside, beside.with_name("kept"))
    damage(beside)
    with pytest.raises(DamagedFile, match=r"scores\.parquet: cannot be trusted, because .*\.sha256 is .*\. Make it"):
        check_digest(file, REMEDY)
    shutil.rmtree(beside) if beside.is_dir() else beside.unlink(missing_ok=True)
    shutil.move(kept, beside)
    check_digest(file, REMEDY)
    damage(file)
    gone = FileNotFoundError if damage is Path.unlink else DamagedFile
    with pytest.raises(gone, match="No such file" if damage is Path.unlink else "is damaged: it .*Make it again"):
        check_digest(file, REMEDY)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["model.safetensors", "podium.json", SUMS_FILE])
def test_any_damage_of_a_file_in_a_folder_is_found_and_named(
    folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    check_digest(folder, REMEDY)
    damage(folder / name)
    with pytest.raises(DamagedFile, match=rf"policy: .*{name}.*\. Make it again"):
        check_digest(folder, REMEDY)


def test_every_line_of_a_folders_digests_counts(folder: Path) -> None:
    lines = (folder / SUMS_FILE).read_text(encoding="utf-8").splitlines()
    for left_out in range(len(lines)):
        kept = [line for number, line in enumerate(lines) if number != left_out]
        (folder / SUMS_FILE).write_text("\n".join(kept) + "\n", encoding="utf-8")
        with pytest.raises(DamagedFile, match=f"{SUMS_FILE} is damaged"):
            check_digest(folder, REMEDY)


def test_files_that_are_skipped_may_change_and_files_may_be_added(folder: Path) -> None:
    change_a_byte(folder / "deep" / "optimizer.pt")
    (folder / "log.txt").write_text("later", encoding="utf-8")
    check_digest(folder, REMEDY)
    change_a_byte(folder / "model.safetensors")
    check_digest(folder, REMEDY, skip=["*.safetensors"])


def test_the_caller_says_what_a_missing_digest_means(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "weights").write_bytes(TEXT)
    for path in (tmp_path / "old", tmp_path / "old" / "weights"):
        check_digest(path, REMEDY, missing="accepted")
        with pytest.raises(DamagedFile, match=f"{path}: cannot be trusted, because .* is missing. Make it again"):
            check_digest(path, REMEDY)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="sha256sum is not installed")
def test_the_program_sha256sum_reads_both_kinds_of_digests(file: Path, folder: Path) -> None:
    for place, name in ((file.parent, "scores.parquet.sha256"), (folder, SUMS_FILE)):
        subprocess.run(["sha256sum", "--check", "--strict", name], cwd=place, check=True, timeout=60)


@pytest.mark.parametrize("renames", range(4))
def test_a_writer_that_is_stopped_at_any_moment_leaves_a_file_that_is_right(
    file: Path, renames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, replace = 0, Path.replace

    def stop_at(self: Path, target: Path) -> Path:
        nonlocal done
        if done == renames:
            raise KeyboardInterrupt
        done += 1
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", stop_at)
    try:
        with replace_with_digest(file) as temporary:
            temporary.write_bytes(b"new")
    except KeyboardInterrupt:
        assert renames < 3
    check_digest(file, REMEDY)
    assert file.read_bytes() == (TEXT if renames < 2 else b"new")


def test_a_reader_beside_a_writer_never_finds_damage(file: Path) -> None:
    ended = threading.Event()

    def write() -> None:
        for number in range(100):
            with replace_with_digest(file) as temporary:
                temporary.write_bytes(b"%d" % number * 1000)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not ended.is_set():
        check_digest(file, REMEDY)
    writer.join(240)


def test_what_is_set_aside_is_named_in_one_line_and_its_place_is_free(
    file: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path, damaged in ((file, file), (folder, folder / "model.safetensors")):
        caplog.clear()
        change_a_byte(damaged)
        with pytest.raises(DamagedFile) as found:
            check_digest(path, REMEDY)
        with caplog.at_level(logging.WARNING):
            aside = set_aside(path, found.value, "It is made again from the stored answers.")
        assert not path.exists()
        assert aside.exists()
        [line] = caplog.messages
        assert line.startswith(f"{path} is damaged: it")
        assert line.endswith(f"It was renamed to {aside.name}. It is made again from the stored answers.")
    assert not list(file.parent.glob("*.parquet.sha256")), "its digest goes with it"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_this_user_may_not_read_is_not_called_damaged(file: Path) -> None:
    file.chmod(0)
    with pytest.raises(DataError, match="cannot be read \\(Permission denied\\)") as found:
        check_digest(file, REMEDY)
    assert not isinstance(found.value, DamagedFile)
