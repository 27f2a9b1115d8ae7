"""A run without a signal ends regularly, and reports which rollouts are always right, wrong or invalid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ops.conductor.policy import PolicyCard
from ops.training.grpo.lost_signal import diagnosis, silent_steps
from ops.training.grpo.trainer import run
from ops.training.run.plan import RunResult, read_curve
from tests.unit.training.tiny import tiny_plan


def row(step: int, dead: float | None, **outcomes: dict[str, int]) -> dict[str, Any]:
    return {"step": step, "zero_variance_groups": dead, "outcomes": outcomes}


def test_silent_steps_are_counted_from_the_end() -> None:
    assert silent_steps([]) == 0
    assert silent_steps([row(1, 1.0), row(2, 0.5), row(3, 1.0), row(4, 0.97)]) == 2
    assert silent_steps([row(1, 1.0), row(2, None)]) == 0


def test_the_diagnosis_names_each_domain_and_what_to_do() -> None:
    rows = [
        row(7, 1.0, math={"right": 64}, code={"wrong": 62, "right": 2}, mmlu={"invalid": 40, "wrong": 24}),
        row(8, 1.0, math={"right": 63, "wrong": 1}, rlpr={"right": 32, "wrong": 32}),
    ]
    said = diagnosis(rows, 140)
    assert "\n" not in said and said.startswith("ended after step 8 of 140")
    for words in ("math 99% right, 1% wrong", "code 97% wrong, 3% right", "mmlu 62% invalid, 38% wrong"):
        assert words in said
    remedies = ("curation.shortlist_factor", "other workers", "cold_start.steps", "grpo.rollouts_per_question")
    assert all(remedy in said for remedy in remedies)
    learnt = diagnosis([row(3, 1.0, math={"right": 8})], 9)
    assert [remedy in learnt for remedy in remedies] == [True, False, False, False]


@pytest.mark.slow
def test_a_policy_without_variation_ends_its_run(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, steps=6, stop_without_signal=2, temperature=1e-3)
    result = run(plan, folder, lambda *_: None)
    assert result is not None and result == RunResult.read(folder)
    assert result.steps == len(read_curve(folder)) == 2
    assert result.stopped.startswith("ended after step 2 of 6, for want of a signal")
    assert "math" in result.stopped
    assert PolicyCard.read(folder / "policy").trained_steps == 2
