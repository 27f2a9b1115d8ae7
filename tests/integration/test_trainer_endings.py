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
from ops.training.run import failure_reasons
from ops.training.run.training_run import LOG_FILE, RunPlan

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
    (tmp_path / LOG_FILE).write_text("error: of an earlier attempt\n", encoding="utf-8")

    def run(program: str) -> str:
        @dg.asset
        def trained(context: dg.AssetExecutionContext, trainer: dg.PipesSubprocessClient) -> None:
            conductor._run_trainer(context, trainer, plan, tmp_path)

        monkeypatch.setattr(conductor, "build_training_command", lambda *_: [sys.executable, "-c", program])
        with pytest.raises(PodiumError) as caught:
            dg.materialize([trained], resources={"trainer": dg.PipesSubprocessClient()})
        return str(caught.value)

    return run


KILLED = ("SIGKILL", "memory")
SETTINGS = ("grpo.micro_batch (now 128)", "grpo.rollouts_per_question (now 16)")
GOES_ON = "same command goes on from the last checkpoint, at most 20 steps back"
CAP, STOPPED = "the cap of 10.00 USD is reached", "training was stopped by SIGTERM after step 2 of 4"
NAMED = "import sys; print('error: {}', file=sys.{}); sys.exit(1)"


def kill(name: str) -> str:
    return f"import os, signal; print('step 3/70'); os.kill(os.getpid(), signal.{name})"


@pytest.mark.parametrize(("program", "begins", "says", "not_said"), [
    pytest.param(kill("SIGKILL"), "", (*KILLED, *SETTINGS, GOES_ON, LOG_FILE), "\n", id="killed"),
    pytest.param(RANK_KILLED, "", KILLED, "\n", id="a killed rank, not those that the launcher ended"),
    pytest.param(kill("SIGTERM"), "", ("SIGTERM", "another process sent"), "memory", id="another signal"),
    pytest.param(kill("SIGSEGV"), "", ("SIGSEGV", "native code"), "memory", id="native code"),
    pytest.param(NAMED.format(CAP, "stderr"), f"training failed: {CAP}", (), "earlier attempt", id="its own error"),
    pytest.param(NAMED.format(STOPPED, "stdout"), f"{STOPPED} (log: ", (), "training failed", id="asked to stop"),
    pytest.param("pass", "", ("without a result",), "earlier attempt", id="no result"),
])  # fmt: skip
def test_the_end_of_a_trainer_is_one_line(
    message: Callable[[str], str], tmp_path: Path, program: str, begins: str, says: tuple[str, ...], not_said: str
) -> None:
    line = message(program)
    assert "\n" not in line and not_said not in line
    assert line.startswith(begins) and str(tmp_path / LOG_FILE) in line
    assert [part for part in says if part not in line] == []


def test_a_completely_full_disk_is_named(message: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_reasons, "_FULL_BYTES", 2**80)
    assert "the disk is full" in message("import sys; sys.exit(1)")


def test_an_unknown_end_shows_the_end_of_the_log(message: Callable[[str], str]) -> None:
    text = message("print('about to fail'); raise KeyError('unknown')")
    assert "about to fail" in text and "KeyError: 'unknown'" in text
