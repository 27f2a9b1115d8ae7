"""Damaged results of earlier training: each is named, and restored or made again, and none is ever read as it is."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.conductor.policy import check_policy
from ops.conductor.writer import load_conductor, load_in_process
from ops.core.digests import SUMS_FILE, DamagedFile, replace_with_digest, write_digest
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.stages.restoring import restore_run
from ops.training.cold_start.base_policy import is_intact_policy
from ops.training.run import checkpoints
from ops.training.run.checkpoints import CHECKPOINTS, CheckpointDigests, find_intact_checkpoint, find_last_checkpoint
from ops.training.run.training_run import CURVE_FILE, RESULT_FILE, RunResult, read_curve
from tests.builders import scratch_policy

RESULTS = RunResult(
    steps=4, reward_before=0.1, reward_after=0.2, window=2, rollouts=8, live_calls=1, cached_calls=2, rollouts_usd=0.5,
    seconds=3.0,
)  # fmt: skip


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwrite(file: Path) -> None:
    """Change 100 bytes in the middle into others that are valid text."""
    content = bytearray(file.read_bytes())
    middle = max(0, len(content) // 2 - 50)
    content[middle : middle + 100] = bytes(byte ^ 1 for byte in content[middle : middle + 100])
    file.write_bytes(content)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def put_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = pytest.mark.parametrize("damage", [cut, overwrite, empty, Path.unlink, put_folder],
                                  ids=["cut", "overwritten", "empty", "deleted", "a folder"])  # fmt: skip
Damage = Callable[[Path], None]


def text_of(steps: int) -> str:
    return "".join(json.dumps({"step": step, "reward": step / 10}) + "\n" for step in range(1, steps + 1))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four steps, with a checkpoint after every second one."""
    run = tmp_path_factory.mktemp("made") / "mini-0123456789ab"
    scratch_policy(run / "policy")
    write_digest(run / "policy")
    for step in (2, 4):
        checkpoint = run / CHECKPOINTS / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes(os.urandom(4000))
        (checkpoint / CURVE_FILE).write_text(text_of(step), encoding="utf-8")
        (checkpoint / "trainer_state.json").write_text("{}", encoding="utf-8")
        digests = CheckpointDigests()
        digests.start_writing(checkpoint)
        digests.wait()
    with replace_with_digest(run / CURVE_FILE) as temporary:
        temporary.write_text(text_of(4), encoding="utf-8")
    RESULTS.write(run)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of that run in a workspace without a registry."""
    return Path(shutil.copytree(made, tmp_path / ".podium" / "runs" / made.name))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def files(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_sound_run_is_left_as_it_is(run: Path, workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    before = files(run)
    restore_run(workspace, run)
    assert read_curve(run)[-1]["step"] == 4 and RunResult.read(run) == RESULTS
    assert find_intact_checkpoint(run) == run / CHECKPOINTS / "checkpoint-4"
    assert files(run) == before and not caplog.messages


@DAMAGES
def test_a_damaged_result_makes_the_run_unfinished(
    run: Path, workspace: Workspace, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    """Its training then ends again from the last checkpoint."""
    damage(run / RESULT_FILE)
    if damage is not Path.unlink:
        with pytest.raises(DamagedFile, match=r"result\.json.*podium run RECIPE"):
            RunResult.read(run)
    restore_run(workspace, run)
    assert RunResult.read(run) is None
    assert damage is Path.unlink or any(str(run / RESULT_FILE) in line for line in caplog.messages)
    RESULTS.write(run)
    assert RunResult.read(run) == RESULTS


@DAMAGES
@pytest.mark.parametrize("name", ["model.safetensors", "podium.json", "tokenizer.json", "config.json"])
def test_a_damaged_policy_is_never_loaded_and_its_run_is_unfinished(
    run: Path, workspace: Workspace, name: str, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    damage(run / "policy" / name)
    for load in (load_in_process, lambda policy: load_conductor(policy, workspace), check_policy):
        with pytest.raises(DamagedFile, match=rf"{run}/policy: is damaged.*{name}.*podium run RECIPE"):
            load(run / "policy")
    restore_run(workspace, run)
    assert not (run / "policy").exists() and RunResult.read(run) is None
    assert [path.name.partition(".damaged-")[0] for path in run.glob("policy.damaged-*")] == ["policy"]
    [line] = [line for line in caplog.messages if f"{run / 'policy'} is damaged" in line]
    assert name in line


def test_a_policy_without_digests_is_accepted(run: Path, workspace: Workspace) -> None:
    """A run that was trained before there were any may have cost much."""
    (run / "policy" / SUMS_FILE).unlink()
    restore_run(workspace, run)
    check_policy(run / "policy")
    assert RunResult.read(run) == RESULTS


@DAMAGES
def test_a_damaged_curve_is_restored_from_the_last_checkpoint(
    run: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    damage(run / CURVE_FILE)
    assert [row["step"] for row in read_curve(run)] == [1, 2, 3, 4]
    assert any(str(run / CURVE_FILE) in line and "restored from" in line for line in caplog.messages)
    caplog.clear()
    assert [row["step"] for row in read_curve(run)] == [1, 2, 3, 4] and not caplog.messages


def test_a_damaged_curve_that_no_checkpoint_has_is_one_line(run: Path) -> None:
    overwrite(run / CURVE_FILE)
    shutil.rmtree(run / CHECKPOINTS / "checkpoint-4")
    with pytest.raises(DataError, match=r"curve\.jsonl: .*no checkpoint has the whole curve.*move the folder"):
        read_curve(run)
    run.rename(run.with_name("moved-away"))
    assert read_curve(run) == []


@DAMAGES
@pytest.mark.parametrize("name", ["model.safetensors", CURVE_FILE])
def test_training_goes_on_from_a_sound_checkpoint(
    run: Path, name: str, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    newest = run / CHECKPOINTS / "checkpoint-4"
    damage(newest / name)
    assert find_intact_checkpoint(run) == find_last_checkpoint(run / CHECKPOINTS) == run / CHECKPOINTS / "checkpoint-2"
    [line] = caplog.messages
    assert str(newest) in line and name in line
    assert not newest.exists() and len(list(run.glob("checkpoint-4.damaged-*"))) == 1


def test_a_checkpoint_whose_digests_were_not_finished_is_used(run: Path) -> None:
    newest = run / CHECKPOINTS / "checkpoint-4"
    (newest / SUMS_FILE).unlink()
    assert find_intact_checkpoint(run) == newest


def test_digests_that_cannot_be_written_do_not_end_a_training(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(folder: Path) -> None:
        raise OSError(28, "No space left on device", str(folder / SUMS_FILE))

    monkeypatch.setattr(checkpoints, "write_digest", refuse)
    digests = CheckpointDigests()
    with caplog.at_level(logging.WARNING):
        digests.start_writing(run / CHECKPOINTS / "checkpoint-4")
        digests.wait()
    assert "checkpoint-4: its digests could not be written" in caplog.text


@DAMAGES
@pytest.mark.parametrize("name", ["model.safetensors", "podium.json", SUMS_FILE])
def test_a_damaged_base_policy_is_renamed_so_that_it_is_made_again(
    run: Path, name: str, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    policy = run / "policy"
    assert is_intact_policy(policy)
    damage(policy / name)
    if (name, damage) == (SUMS_FILE, Path.unlink):
        assert is_intact_policy(policy)
        return
    assert not is_intact_policy(policy) and not policy.exists()
    [line] = caplog.messages
    assert str(policy) in line and name in line and "made again" in line
    assert not is_intact_policy(policy), "and what does not exist is no damage"


def test_a_record_of_a_cold_start_that_is_damaged_makes_its_policy_again(run: Path) -> None:
    policy = run / "policy"
    with replace_with_digest(policy / "cold_start.json") as temporary:
        temporary.write_text('{"loss": [1.0, 0.5]}', encoding="utf-8")
    assert is_intact_policy(policy)
    (policy / "cold_start.json").write_text('{"loss": [1.0, 0.6]}', encoding="utf-8")
    assert not is_intact_policy(policy)
