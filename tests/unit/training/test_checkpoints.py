"""What a crash leaves behind: a half-written checkpoint is passed over, the curve is cut back to the whole one."""

from __future__ import annotations

import json
from pathlib import Path

from ops.training.trainer import Curve, last_checkpoint
from ops.workers.client import Counts


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
