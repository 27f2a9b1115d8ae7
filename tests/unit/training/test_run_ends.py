"""How runs end early: a crash, a full disk, no signal, no reward, an invalid first step."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.conductor.policy import PolicyCard
from ops.config import Prompting, Recursive, Worker
from ops.spending.ledger import Ledger
from ops.training.grpo.curve import TrainingCurve
from ops.training.grpo.lost_signal import count_silent_steps, diagnose_lost_signal
from ops.training.grpo.trainer import run_training
from ops.training.rewards import outage
from ops.training.rewards.outage import FirstStepCheck, InvalidFirstStep, Outage
from ops.training.run.checkpoints import (
    CHECKPOINTS,
    DiskFull,
    find_last_checkpoint,
    remove_half_written,
    report_full_disk,
)
from ops.training.run.training_run import CURVE_FILE, RunPlan, RunResult, read_curve
from ops.workers.client import CallCounts
from ops.workflow.grammar import Workflow
from ops.workflow.team import NO_CLIENT, Team
from tests.unit.training.tiny import tiny_plan, train


def checkpoint(folder: Path, step: int, state: str | None) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    if state is not None:
        (path / "trainer_state.json").write_text(state, encoding="utf-8")
    return path


def test_the_newest_whole_checkpoint_is_taken_and_half_written_ones_are_removed_for_room(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5, None)
    assert find_last_checkpoint(tmp_path) is None
    remove_half_written(tmp_path)
    assert not any(tmp_path.iterdir())
    whole = [checkpoint(tmp_path, 10, '{"global_step": 10}'), checkpoint(tmp_path, 100, "{}")]
    checkpoint(tmp_path, 110, '{"global_st')
    checkpoint(tmp_path, 120, None)
    assert find_last_checkpoint(tmp_path) == whole[-1]
    remove_half_written(tmp_path)
    assert sorted(tmp_path.iterdir()) == whole


@pytest.mark.slow
@pytest.mark.parametrize("file", [CURVE_FILE, "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_full_disk_is_reported_and_the_run_continues_when_there_is_room(tmp_path: Path, file: str) -> None:
    plan, folder = tiny_plan(tmp_path)

    def report(step: int, *_: object) -> None:
        """Crash before the second step's line and checkpoint."""
        if step == 1 and file == CURVE_FILE:
            (folder / CURVE_FILE).rename(folder / "kept")
            (folder / CURVE_FILE).symlink_to("/dev/full")
        elif step == 2:
            (folder / CHECKPOINTS / "checkpoint-2").mkdir()
            (folder / CHECKPOINTS / "checkpoint-2" / file).symlink_to("/dev/full")

    # (The time of a link does not show that it was written last: test_full_disk.py has real files.)
    named = file if file == CURVE_FILE else ""
    why = f"{folder}/.*{named}: could not be written: .*is full .*GB are free.*same command goes on from checkpoint-1$"
    with pytest.raises(DiskFull, match=why), report_full_disk(folder):
        run_training(plan, folder, report)
    assert [path.name for path in (folder / CHECKPOINTS).glob("checkpoint-*")] == ["checkpoint-1"]
    if file == CURVE_FILE:
        (folder / "kept").replace(folder / CURVE_FILE)
    result = train(plan, folder)
    assert result is not None and result.steps == 2
    assert [row["step"] for row in read_curve(folder)] == [1, 2]


def test_another_error_than_a_full_disk_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), report_full_disk(tmp_path):
        raise PermissionError(13, "Permission denied")


def test_steps_after_the_checkpoint_leave_the_curve(tmp_path: Path) -> None:
    rows = [
        {"step": step, "reward": step / 10, "seconds": 2.0, "cost_usd": 0.5, "rollouts": 16} for step in range(1, 8)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / CURVE_FILE).write_text(text + '{"step": 8, "rew', encoding="utf-8")
    checkpoint = tmp_path / "checkpoints" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    (checkpoint / CURVE_FILE).write_text("".join(text.splitlines(keepends=True)[:5]), encoding="utf-8")
    curve = TrainingCurve(tmp_path / CURVE_FILE, lambda *_: None)
    curve.start(checkpoint)
    assert [json.loads(line) for line in (tmp_path / CURVE_FILE).read_text(encoding="utf-8").splitlines()] == rows[:5]
    result = curve.build_result([CallCounts(live=3, cached=4), CallCounts(live=1, usd=0.25)])
    assert (result.steps, result.rollouts, result.seconds, result.rollouts_usd) == (5, 80, 10.0, 2.5)
    assert (result.live_calls, result.cached_calls, result.spent_usd) == (4, 4, 0.25)
    assert result.reward_before == result.reward_after == 0.3


def row(step: int, dead: float | None, **outcomes: dict[str, int]) -> dict[str, Any]:
    return {"step": step, "zero_variance_groups": dead, "outcomes": outcomes}


def test_silent_steps_are_counted_from_the_end() -> None:
    assert count_silent_steps([]) == 0
    assert count_silent_steps([row(1, 1.0), row(2, 0.5), row(3, 1.0), row(4, 0.97)]) == 2
    assert count_silent_steps([row(1, 1.0), row(2, None)]) == 0


def test_the_diagnosis_names_each_domain_and_what_to_do() -> None:
    rows = [
        row(7, 1.0, math={"right": 64}, code={"wrong": 62, "right": 2}, mmlu={"invalid": 40, "wrong": 24}),
        row(8, 1.0, math={"right": 63, "wrong": 1}, rlpr={"right": 32, "wrong": 32}),
    ]
    said = diagnose_lost_signal(rows, 140)
    assert "\n" not in said and said.startswith("ended after step 8 of 140")
    for words in ("math 99% right, 1% wrong", "code 97% wrong, 3% right", "mmlu 62% invalid, 38% wrong"):
        assert words in said
    remedies = ("curation.shortlist_factor", "other workers", "cold_start.steps", "grpo.rollouts_per_question")
    assert [remedy for remedy in remedies if remedy not in said] == []
    learnt = diagnose_lost_signal([row(3, 1.0, math={"right": 8})], 9)
    assert [remedy in learnt for remedy in remedies] == [True, False, False, False]


@pytest.mark.slow
def test_a_policy_without_variation_ends_its_run(tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, steps=6, stop_without_signal=2, temperature=1e-3)
    result = train(plan, folder)
    assert result is not None and result == RunResult.read(folder)
    assert result.steps == len(read_curve(folder)) == 2
    assert result.stopped.startswith("ended after step 2 of 6, for want of a signal")
    assert "math" in result.stopped
    assert PolicyCard.read(folder / "policy").trained_steps == 2


@pytest.mark.slow
@pytest.mark.parametrize("unrewarded", [1, 2])
def test_a_step_without_a_reward_is_a_line_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrewarded: int
) -> None:
    plan, folder = tiny_plan(tmp_path, max_unscorable=1.0)
    notes: list[str] = []
    roll_out = outage.execute_rollouts

    async def unscorable(*given: Any, **more: Any) -> Any:
        rollouts = await roll_out(*given, **more)
        return [replace(each, outcome="unscorable") for each in rollouts] if len(notes) < unrewarded else rollouts

    monkeypatch.setattr(outage, "execute_rollouts", unscorable)
    if unrewarded == 2:
        with pytest.raises(Outage, match="no rollout of the run had a reward"):
            run_training(plan, folder, lambda *said: notes.append(said[2]))
        assert RunResult.read(folder) is None
    else:
        result = run_training(plan, folder, lambda *said: notes.append(said[2]))
        assert result is not None and result.steps == 2
        assert result.reward_before == result.reward_after == read_curve(folder)[1]["reward"]
    assert [line["reward"] is None for line in read_curve(folder)] == [step < unrewarded for step in range(2)]
    assert notes[0].startswith("reward none")


def always_invalid(folder: Path, **more: Any) -> tuple[RunPlan, Path]:
    """Make a training of the tiny policy, which always names `guesser`, a worker that is not on offer."""
    plan, run_folder = tiny_plan(folder, steps=1)
    pool = plan.pool.model_copy(update={"workers": tuple(w for w in plan.pool.workers if w.name != "guesser")})
    return plan.model_copy(update={"pool": pool, **more}), run_folder


@pytest.mark.slow
@pytest.mark.parametrize("stage", [{}, {"recursive": Recursive(steps=1)}], ids=["plain", "recursive"])
def test_training_from_a_champion_without_valid_workflows_stops_before_any_call(
    tmp_path: Path, stage: dict[str, Any]
) -> None:
    plan, folder = always_invalid(tmp_path, from_champion=True, **stage)
    with pytest.raises(InvalidFirstStep) as error:
        train(plan, folder)
    paid = sum(spent.calls for spent in Ledger(plan.setup.workspace.ledger).by_run().values())
    assert paid == 0 and not read_curve(folder)
    said = str(error.value)
    assert "\n" not in said and "unknown_worker" in said
    assert "guards.max_invalid_first_step" in said and f"`podium run tiny --seed {plan.recipe.seed}`" in said


@pytest.mark.slow
def test_another_training_may_begin_with_invalid_completions(tmp_path: Path) -> None:
    plan, folder = always_invalid(tmp_path)
    assert train(plan, folder) is not None
    [line] = read_curve(folder)
    assert line["share/invalid"] > 0.5


VALID, INVALID = Workflow.single(0).render(), "no workflow"


@pytest.mark.parametrize(
    ("texts", "cut_off", "allowed", "stopped"),
    [
        ([VALID, VALID, INVALID, INVALID], (), 0.5, False),
        ([VALID, INVALID, INVALID, INVALID], (), 0.5, True),
        ([VALID, VALID, INVALID, INVALID], (0,), 0.5, True),
        ([INVALID] * 4, (), 1.0, False),
    ],
    ids=["half", "most", "cut off", "guard is off"],
)
def test_more_invalid_completions_than_allowed_stop_the_first_step_alone(
    texts: list[str], cut_off: tuple[int, ...], allowed: float, stopped: bool
) -> None:
    worker = Worker(name="a", model="local/a")
    team = Team((worker,), NO_CLIENT, Prompting(style="compact", few_shots="none"))
    first = FirstStepCheck(allowed, "quickstart", 1)
    with pytest.raises(InvalidFirstStep) if stopped else nullcontext():
        first.check(texts, [team] * len(texts), cut_off)
    first.check([INVALID] * 4, [team] * 4)
