"""Two ranks under DeepSpeed train as one run: one is killed, the run goes on, and its numbers are those of both.

In ZeRO-3 and bfloat16, as the paper's recipe, over gloo on CPUs. One run serves all tests of this file.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import psutil
import pytest
import torch
from safetensors.torch import load_file

from assets import conductor
from ops.conductor.policy import Conductor, PolicyCard
from ops.config import Recursive, RoundLimits
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.spending.ledger import Ledger
from ops.training.grpo.trainer import run_training
from ops.training.run.checkpoints import find_last_checkpoint
from ops.training.run.training_run import CURVE_FILE, EXTENSIONS_FOLDER, LOG_FILE, PLAN_FILE, RunPlan, RunResult
from tests.unit.training.tiny import tiny_plan

pytestmark = [
    pytest.mark.long,  # `make test` merges the ranks' shares without DeepSpeed (tests/unit/training)
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("c++") is None, reason="DeepSpeed compiles an operation for CPU ranks: no c++"),
]
STEPS, ROLLOUTS = 5, 8
TWO: dict[str, Any] = {"dtype": "bfloat16", "deepspeed": "zero3.json", "processes": 2, "micro_batch": 2}


class Ranks(NamedTuple):
    """A finished run of two ranks, the message after a kill, and the additions of the second attempt."""

    plan: RunPlan
    folder: Path
    message: str
    left_alive: list[int]
    checkpoint_when_killed: str
    result: RunResult
    ledger_calls: int
    ledger_usd: float


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    root = tmp_path_factory.mktemp("ranks")
    plan, folder = tiny_plan(root, steps=STEPS, **TWO)
    left = (
        folder / EXTENSIONS_FOLDER / "deepspeed_shm_comm" / "lock"
    )  # of a run that was killed while DeepSpeed compiled
    left.touch()
    ended = threading.Event()
    killer = threading.Thread(target=kill_second_rank, args=(folder, ended))
    killer.start()
    try:
        with pytest.raises(PodiumError) as caught:
            attempt(plan, folder)
    finally:
        ended.set()
        killer.join(960)
    alive = [process.pid for process in trainers(folder)]
    checkpoint = find_last_checkpoint(folder / "checkpoints")
    before = booked(plan)
    attempt(plan, folder)
    after, result = booked(plan), RunResult.read(folder)
    assert checkpoint is not None and result is not None
    spent = (after[0] - before[0], after[1] - before[1])
    return Ranks(plan, folder, str(caught.value), alive, checkpoint.name, result, *spent)


def attempt(plan: RunPlan, folder: Path) -> None:
    """Train as the asset does, by Dagster Pipes."""

    @dg.asset
    def trained(context: dg.AssetExecutionContext, trainer: dg.PipesSubprocessClient) -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata=conductor._run_trainer(context, trainer, plan, folder).model_dump())

    dg.materialize([trained], resources={"trainer": dg.PipesSubprocessClient()})


def trainers(folder: Path) -> Iterator[psutil.Process]:
    """Return the launcher and the ranks of a run."""
    for process in psutil.process_iter(["cmdline"]):
        if {"ops.training.grpo", str(folder)} <= set(process.info["cmdline"] or ()):
            yield process


def kill_second_rank(folder: Path, ended: threading.Event) -> None:
    """`kill -9` a rank as soon as there is a checkpoint to continue from."""
    while find_last_checkpoint(folder / "checkpoints") is None:
        if ended.wait(0.02):
            return
    next(process for process in trainers(folder) if process.environ().get("LOCAL_RANK") == "1").kill()


def booked(plan: RunPlan) -> tuple[int, float]:
    """Return calls and USD in the ledger."""
    with closing(Ledger(Workspace(plan.root).ledger)) as ledger:
        spent = ledger.by_run().values()
    return sum(part.calls for part in spent), sum(part.usd for part in spent)


def curve(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / CURVE_FILE).read_text(encoding="utf-8").splitlines()]


def test_deepspeed_divides_the_optimizer_among_both_ranks(ranks: Ranks) -> None:
    states = {file.name for file in (ranks.folder / "checkpoints").glob("*/global_step*/*optim_states.pt")}
    assert len(states) == 2


def test_a_killed_rank_ends_the_run_in_one_line_and_leaves_no_process(ranks: Ranks) -> None:
    assert "\n" not in ranks.message
    assert "SIGKILL" in ranks.message and "memory" in ranks.message
    assert ranks.left_alive == []


def test_the_same_command_goes_on_from_the_checkpoint(ranks: Ranks) -> None:
    log = (ranks.folder / LOG_FILE).read_text(encoding="utf-8")
    first = int(ranks.checkpoint_when_killed.rpartition("-")[2]) + 1
    assert log.count(f"step {first - 1}/{STEPS} ") == 1
    assert log.count(f"step {STEPS}/{STEPS} ") == 1
    assert [row["step"] for row in curve(ranks.folder)] == list(range(1, STEPS + 1))


def test_every_row_holds_the_rollouts_of_both_ranks(ranks: Ranks) -> None:
    for row in curve(ranks.folder):
        assert row["rollouts"] == ROLLOUTS
        assert sum(value for name, value in row.items() if name.startswith("share/")) == pytest.approx(1)
        # TRL's own mean, over all ranks
        assert row["reward"] == pytest.approx(row["share/right"] + row["share/wrong"] / 2)
        workflows = ROLLOUTS * sum(value for name, value in row.items() if name.startswith("shape/"))
        assert sum(row["top_patterns"].values()) == pytest.approx(workflows)
        assert row["calls"] == sum(steps for workers in row["use"].values() for steps in workers.values())


def test_the_result_counts_the_calls_and_the_money_of_both_ranks(ranks: Ranks) -> None:
    redone = curve(ranks.folder)[int(ranks.checkpoint_when_killed.rpartition("-")[2]) :]
    result = ranks.result
    assert result.live_calls + result.cached_calls == sum(row["calls"] for row in redone)
    assert result.live_calls == ranks.ledger_calls
    assert result.spent_usd == pytest.approx(ranks.ledger_usd)
    assert result.rollouts_usd == pytest.approx(sum(row["cost_usd"] for row in curve(ranks.folder)))


def test_one_process_at_the_same_global_batch_counts_as_many(ranks: Ranks, tmp_path: Path) -> None:
    plan, folder = tiny_plan(tmp_path, dtype="bfloat16", steps=2, micro_batch=4)
    alone = run_training(plan, folder, lambda *_: None)
    assert alone is not None
    assert alone.rollouts / alone.steps == ranks.result.rollouts / ranks.result.steps == ROLLOUTS
    assert [row["rollouts"] for row in curve(folder)] == [row["rollouts"] for row in curve(ranks.folder)[:2]]
    assert set(curve(folder)[0]) - set(curve(ranks.folder)[0]) <= {n for n in curve(folder)[0] if "invalid/" in n}


def trained(root: Path, recursive: Recursive | None = None, **grpo: Any) -> tuple[RunPlan, Path]:
    """Train on two ranks from beginning to end."""
    plan, folder = tiny_plan(root, **TWO | grpo)
    (folder / PLAN_FILE).write_text(
        plan.model_copy(update={"recursive": recursive}).model_dump_json(), encoding="utf-8"
    )
    attempt(plan, folder)
    return plan, folder


@pytest.mark.soak  # test_engines.py holds its memory against the plan
def test_an_optimizer_in_the_hosts_memory_trains_alike(tmp_path: Path) -> None:
    rewards, weights = [], []
    for deepspeed in ("zero3.json", "zero3-offload.json"):
        (root := tmp_path / deepspeed).mkdir()
        plan, folder = trained(root, steps=2, deepspeed=deepspeed, learning_rate=1e-3)
        rewards.append([row["reward"] for row in curve(folder)])
        weights.append(load_file(folder / "policy" / "model.safetensors"))
    (plain, offloaded), base = weights, load_file(plan.base_policy / "model.safetensors")
    assert rewards[0] == rewards[1]
    assert all(torch.equal(plain[name], offloaded[name]) for name in plain)
    assert any(not torch.equal(plain[name], base[name]) for name in plain)


@pytest.mark.soak  # of one process: tests/unit/training
def test_two_ranks_without_a_signal_end_together(tmp_path: Path) -> None:
    _, folder = trained(tmp_path, steps=6, stop_without_signal=2, temperature=1e-3)
    result = RunResult.read(folder)
    assert result is not None and result.steps == len(curve(folder)) == 2
    assert result.stopped.startswith("ended after step 2 of 6")


@pytest.mark.soak  # groups on both ranks: test_same_training.py
def test_both_ranks_ask_the_same_questions_by_signal(tmp_path: Path) -> None:
    """Three groups on two ranks: the middle one is on both."""
    _, folder = trained(tmp_path, steps=3, temperature=1.5, sampling="signal", questions_per_step=3)
    for row in curve(folder):
        assert row["rollouts"] == 4 * 3 == sum(sum(c.values()) for c in row["outcomes"].values())
        assert row["reward"] == pytest.approx(row["share/right"] + row["share/wrong"] / 2)


@pytest.mark.soak  # rounds on both ranks: test_same_training.py
def test_both_ranks_write_both_rounds(tmp_path: Path) -> None:
    """Three groups again: each rank generates a first round of the middle one, and continues from its own."""
    rounds = Recursive(limits=RoundLimits(answer_tokens=16))
    _, folder = trained(tmp_path, rounds, steps=3, sampling="signal", questions_per_step=3)
    rows = curve(folder)
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["rollouts"] == 4 * 3 == sum(sum(c.values()) for c in row["outcomes"].values())
        assert 0 < row["round_2/rollouts"] <= row["rollouts"] / 2
    assert PolicyCard.read(folder / "policy").rounds == rounds.limits


def test_the_policy_is_whole_and_in_its_own_precision(ranks: Ranks) -> None:
    policy = Conductor.load(ranks.folder / "policy")
    assert {str(parameter.dtype) for parameter in policy._model.parameters()} == {"torch.bfloat16"}
    base = Conductor.load(ranks.plan.base_policy)
    shapes = [parameter.shape for parameter in policy._model.parameters()]
    assert shapes == [parameter.shape for parameter in base._model.parameters()]
