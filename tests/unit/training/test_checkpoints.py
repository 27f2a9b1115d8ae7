"""The remains of a crash: a half-written checkpoint is ignored, and the curve is cut back to the last complete one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops.training.grpo.curve import Curve
from ops.training.grpo.trainer import run
from ops.training.run.checkpoints import CHECKPOINTS, DiskFull, full_disk_reported, last_checkpoint, remove_half_written
from ops.training.run.plan import CURVE, read_curve
from ops.workers.client import Counts
from tests.unit.training.tiny import tiny_plan


def checkpoint(folder: Path, step: int, state: str | None) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    if state is not None:
        (path / "trainer_state.json").write_text(state, encoding="utf-8")
    return path


def test_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    checkpoint(tmp_path, 5, "{}")
    whole = checkpoint(tmp_path, 10, '{"global_step": 10}')
    checkpoint(tmp_path, 15, '{"global_st')
    checkpoint(tmp_path, 20, None)
    assert last_checkpoint(tmp_path) == whole


def test_partial_files_are_removed_for_room(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5, None)
    remove_half_written(tmp_path)
    assert not any(tmp_path.iterdir())
    whole = [checkpoint(tmp_path, 10, "{}"), checkpoint(tmp_path, 100, "{}")]
    checkpoint(tmp_path, 110, '{"global_st')
    checkpoint(tmp_path, 120, None)
    remove_half_written(tmp_path)
    assert sorted(tmp_path.iterdir()) == whole


@pytest.mark.slow
@pytest.mark.parametrize("file", [CURVE, "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_full_disk_is_reported_and_the_run_continues_when_there_is_room(tmp_path: Path, file: str) -> None:
    plan, folder = tiny_plan(tmp_path)

    def report(step: int, *_: object) -> None:
        """Crash before the second step's line and checkpoint."""
        if step == 1 and file == CURVE:
            (folder / CURVE).rename(folder / "kept")
            (folder / CURVE).symlink_to("/dev/full")
        elif step == 2:
            (folder / CHECKPOINTS / "checkpoint-2").mkdir()
            (folder / CHECKPOINTS / "checkpoint-2" / file).symlink_to("/dev/full")

    # (The time of a link does not show that it was written last: test_full_disk.py has real files.)
    named = file if file == CURVE else ""
    why = f"{folder}/.*{named}: could not be written: .*is full .*GB are free.*same command goes on from checkpoint-1$"
    with pytest.raises(DiskFull, match=why), full_disk_reported(folder):
        run(plan, folder, report)
    assert [path.name for path in (folder / CHECKPOINTS).glob("checkpoint-*")] == ["checkpoint-1"]
    if file == CURVE:
        (folder / "kept").replace(folder / CURVE)
    result = run(plan, folder, lambda *_: None)
    assert result is not None and result.steps == 2
    assert [row["step"] for row in read_curve(folder)] == [1, 2]


def test_another_error_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), full_disk_reported(tmp_path):
        raise PermissionError(13, "Permission denied")


def test_steps_after_the_checkpoint_leave_the_curve(tmp_path: Path) -> None:
    file = tmp_path / "curve.jsonl"
    each = {"seconds": 2.0, "cost_usd": 0.5, "rollouts": 16}
    rows = [{"step": step, "reward": step / 10, **each} for step in range(1, 8)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 8, "rew', encoding="utf-8")
    curve = Curve(file, lambda *_: None)
    curve.start(5)
    assert [json.loads(line)["step"] for line in file.read_text(encoding="utf-8").splitlines()] == [1, 2, 3, 4, 5]
    result = curve.result([Counts(live=3, cached=4), Counts(live=1, usd=0.25)])
    assert (result.steps, result.rollouts, result.seconds, result.cost_usd) == (5, 80, 10.0, 2.5)
    assert (result.live_calls, result.cached_calls, result.spent_usd) == (4, 4, 0.25)
    assert result.reward_before == result.reward_after == 0.3
