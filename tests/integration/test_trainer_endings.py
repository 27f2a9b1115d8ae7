"""A failed training is reported in one line: cause, log, and the command that continues."""

import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from assets import conductor
from ops.config import load_pool, load_recipe
from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.training.run import ending
from ops.training.run.plan import LOG, RunPlan

ROOT = Workspace.find().root
RANK_KILLED = """
import sys
print('''torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 30444)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 30445)  (SIGKILL)
=====''')
sys.exit(1)
"""


@pytest.fixture
def message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return the asset's message for a trainer that is this program, after one that named its own error."""
    recipe = load_recipe(ROOT / "config", "quickstart")
    pool = load_pool(ROOT / "config", recipe.pool)
    plan = RunPlan(
        root=ROOT, recipe=recipe, pool=pool, offered=pool.names,
        base_policy=tmp_path, problems=tmp_path, few_shots=tmp_path,
    )  # fmt: skip
    (tmp_path / LOG).write_text("error: of an earlier attempt\n", encoding="utf-8")

    def run(program: str) -> str:
        @dg.asset
        def trained(context: dg.AssetExecutionContext, trainer: dg.PipesSubprocessClient) -> None:
            conductor._train(context, trainer, plan, tmp_path)

        monkeypatch.setattr(conductor, "command", lambda *_: [sys.executable, "-c", program])
        with pytest.raises(PodiumError) as caught:
            dg.materialize([trained], resources={"trainer": dg.PipesSubprocessClient()})
        return str(caught.value)

    return run


def test_a_killed_trainer_is_one_line(message: Callable[[str], str], tmp_path: Path) -> None:
    line = message("import os, signal; print('step 3/70'); os.kill(os.getpid(), signal.SIGKILL)")
    assert "\n" not in line
    assert "SIGKILL" in line and "memory" in line
    assert "grpo.micro_batch (now 128)" in line and "grpo.rollouts_per_question (now 16)" in line
    assert "same command goes on from the last checkpoint, at most 20 steps back" in line
    assert str(tmp_path / LOG) in line


def test_a_killed_rank_is_the_cause_and_not_the_ranks_that_the_launcher_ended(message: Callable[[str], str]) -> None:
    line = message(RANK_KILLED)
    assert "\n" not in line
    assert "SIGKILL" in line and "memory" in line


@pytest.mark.parametrize(("name", "cause"), [("SIGTERM", "another process sent"), ("SIGSEGV", "native code")])
def test_another_signal_has_another_cause(message: Callable[[str], str], name: str, cause: str) -> None:
    line = message(f"import os, signal; os.kill(os.getpid(), signal.{name})")
    assert "\n" not in line
    assert name in line and cause in line and "memory" not in line


def test_an_error_that_the_trainer_names_is_its_line(message: Callable[[str], str]) -> None:
    line = message("import sys; print('error: the cap of 10.00 USD is reached', file=sys.stderr); sys.exit(1)")
    assert line.startswith("training failed: the cap of 10.00 USD is reached")
    assert "earlier attempt" not in line


def test_a_trainer_that_was_asked_to_stop_did_not_fail(message: Callable[[str], str]) -> None:
    line = message("import sys; print('error: training was stopped by SIGTERM after step 2 of 4'); sys.exit(1)")
    assert line.startswith("training was stopped by SIGTERM after step 2 of 4 (log: ")


def test_a_completely_full_disk_is_named(message: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_FULL_BYTES", 2**80)
    assert "the disk is full" in message("import sys; sys.exit(1)")


def test_an_unknown_end_shows_the_end_of_the_log(message: Callable[[str], str]) -> None:
    text = message("print('about to fail'); raise KeyError('unknown')")
    assert "about to fail" in text and "KeyError: 'unknown'" in text


def test_a_trainer_that_ends_without_a_result_has_failed(message: Callable[[str], str]) -> None:
    assert "without a result" in message("pass")
