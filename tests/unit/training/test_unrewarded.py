"""A step in which no rollout has a reward is a line without one; a
run of such steps reports that nothing was learnt.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.training.grpo.trainer import run
from ops.training.rewards import outage
from ops.training.rewards.outage import Outage
from ops.training.run.plan import RunResult, read_curve
from tests.unit.training.tiny import tiny_plan

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("unrewarded", [1, 2])
def test_a_step_without_a_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrewarded: int) -> None:
    plan, folder = tiny_plan(tmp_path, max_unscorable=1.0)
    notes: list[str] = []
    roll_out = outage.roll_out

    async def unscorable(*given: Any, **more: Any) -> Any:
        rollouts = await roll_out(*given, **more)
        return [replace(each, outcome="unscorable") for each in rollouts] if len(notes) < unrewarded else rollouts

    monkeypatch.setattr(outage, "roll_out", unscorable)
    if unrewarded == 2:
        with pytest.raises(Outage, match="no rollout of the run had a reward"):
            run(plan, folder, lambda *said: notes.append(said[2]))
        assert RunResult.read(folder) is None
    else:
        result = run(plan, folder, lambda *said: notes.append(said[2]))
        assert result is not None and result.steps == 2
        assert result.reward_before == result.reward_after == read_curve(folder)[1]["reward"]
    assert [row["reward"] is None for row in read_curve(folder)] == [step < unrewarded for step in range(2)]
    assert notes[0].startswith("reward none")
