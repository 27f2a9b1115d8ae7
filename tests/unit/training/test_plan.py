"""Plans of runs: the trainer's command and environment, the settings that reach TRL's configuration, keys and errors.

vLLM is not installed here: the tests read the settings that it would be started with.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from ops.config import Budget, Grpo, Recipe, load_recipe
from ops.core.digests import write_digest
from ops.core.errors import ConfigError, DataError
from ops.core.processes import unique_process_name
from ops.training.grpo.__main__ import train_run
from ops.training.grpo.configuration import build_outage_policy, build_trl_config, max_sequence_tokens
from ops.training.run import processes, trainer_version
from ops.training.run.trainer_version import read_trainers, record_trainer
from ops.training.run.training_run import (
    EXTENSIONS_FOLDER,
    PLAN_FILE,
    RESULT_FILE,
    RunPlan,
    build_training_command,
    prepare_environment,
    run_key,
    write_run_plan,
)
from tests.unit.training.plans import CONFIG, QUICK, plan_of, quick_plan, trainable

RANKS: dict[str, Any] = {"processes": 2, "micro_batch": 64, "deepspeed": "zero3.json"}


def test_the_plan_prints_without_importing_torch() -> None:
    code = (
        "import sys\nfrom pipelines.commands.main import podium\n"
        "try: podium(['plan', 'paper'], standalone_mode=False)\n"
        "except SystemExit as end: assert end.code == 1\n"  # not ready
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "Qwen/Qwen2.5-7B" in done.stdout


def test_the_command_is_this_python_or_the_deepspeed_launcher(tmp_path: Path) -> None:
    assert build_training_command(quick_plan(), tmp_path)[:3] == [sys.executable, "-m", "ops.training.grpo"]
    launched = build_training_command(quick_plan(**RANKS), tmp_path)
    assert "--use_deepspeed" in launched and launched[launched.index("--num_processes") + 1] == "2"
    assert launched[-2:] == ["--run", str(tmp_path)]


def test_a_run_keeps_the_deepspeed_file_that_it_was_launched_with(tmp_path: Path) -> None:
    setup, base = trainable(tmp_path, QUICK.model_copy(update={"grpo": QUICK.grpo.model_copy(update=RANKS)}))
    zero3, zero2 = ({"zero_optimization": {"stage": stage}} for stage in (3, 2))
    folder = write_run_plan(setup, base, zero3)
    launched = build_training_command(RunPlan.read(folder), folder)
    file = Path(launched[launched.index("--deepspeed_config_file") + 1])
    assert json.loads(file.read_text(encoding="utf-8")) == zero3
    assert write_run_plan(setup, base, zero3) == folder
    assert write_run_plan(setup, base, zero2) == folder, "how it is computed begins no other run"
    assert json.loads(file.read_text(encoding="utf-8")) == zero2
    checkpoint = folder / "checkpoints" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}", encoding="utf-8")
    assert write_run_plan(setup, base, zero2 | {"train_batch_size": "auto"}) == folder
    with pytest.raises(ConfigError, match=r"grpo.deepspeed: differ .*: 2 processes with ZeRO stage 2"):
        write_run_plan(setup, base, zero3)


def test_a_plan_round_trips_and_a_missing_one_is_named(tmp_path: Path) -> None:
    plan = quick_plan()
    values = plan.model_dump(mode="json")
    (tmp_path / PLAN_FILE).write_text(json.dumps(values), encoding="utf-8")
    assert RunPlan.read(tmp_path) == plan
    values["recipe"]["evaluation"]["older"] = 1
    (tmp_path / PLAN_FILE).write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(DataError, match=r"recipe\.evaluation\.older: is not usable: Extra inputs .* Delete") as said:
        RunPlan.read(tmp_path)
    assert "\n" not in str(said.value)
    with pytest.raises(DataError, match=r"run\.json"):
        RunPlan.read(tmp_path / "nowhere")


def test_a_plan_for_deepspeed_is_not_trained_by_a_bare_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELERATE_USE_DEEPSPEED", raising=False)
    plan = plan_of(load_recipe(CONFIG, "paper"), root=tmp_path)
    (tmp_path / PLAN_FILE).write_text(plan.model_dump_json(), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"ops\.training\.run\.processes --use_deepspeed") as caught:
        train_run(tmp_path)
    assert caught.value.field == "recipe.grpo.deepspeed"
    assert "--mixed_precision bf16" in str(caught.value)


def test_settings_of_memory_and_patience_keep_a_run_and_others_begin_another(tmp_path: Path) -> None:
    setup, base = trainable(tmp_path)

    def key(**changes: object) -> str:
        changed = QUICK.model_copy(update={"grpo": QUICK.grpo.model_copy(update=changes)})
        return run_key(replace(setup, recipe=changed), base)

    assert key(vllm_sleep=True, keep_checkpoints=1, collective_timeout_s=60.0) == key()
    how = {"micro_batch": 8, "checkpoint_every": 3, "gradient_checkpointing": True, "vllm_memory": 0.5, "outage_s": 9.0}
    assert key(**how) == key()
    assert key(loss="bnpo", micro_batch=8) != key(loss="bnpo"), "this loss averages within a micro batch"
    assert len({key(), key(worker_samples=3), key(vllm_correction="none"), key(reward_terms={"cost": 0.1})}) == 4


def test_a_new_run_says_which_inputs_changed_since_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setup, base = trainable(tmp_path)
    first = write_run_plan(setup, base)
    assert write_run_plan(setup, base) == first and not caplog.messages
    (setup.workspace.data / "training_mix.jsonl").write_text("another\n", encoding="utf-8")
    second = write_run_plan(setup, base)
    assert caplog.messages == [f"{second.name} begins anew, because of its inputs changed since {first}: data"]
    for run in (first, second):
        write_digest(run / PLAN_FILE)  # as an earlier version did, without a key
    caplog.clear()
    third = write_run_plan(replace(setup, recipe=QUICK.model_copy(update={"seed": 99})), base)
    assert any(f"stop now and rename that folder to {third.name}" in message for message in caplog.messages)


def test_a_run_records_its_trainers_and_warns_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        record_trainer(tmp_path)
    [known] = read_trainers(tmp_path)
    assert known["trl"] == metadata.version("trl") and not caplog.messages
    monkeypatch.setattr(trainer_version, "code_version", lambda *_, **__: "another")
    record_trainer(tmp_path)
    [line] = caplog.messages
    assert line.endswith(f"is continued with another version of the trainer: code {known['code']} → another")
    assert read_trainers(tmp_path) == [known, known | {"code": "another"}]


def test_an_interrupted_run_continues_with_a_larger_budget_and_a_finished_one_is_kept(tmp_path: Path) -> None:
    setup, base = trainable(tmp_path)

    def written(usd: float) -> tuple[Path, float | None]:
        changed = QUICK.model_copy(update={"budget": Budget(run_usd=usd)})
        folder = write_run_plan(replace(setup, recipe=changed), base)
        return folder, RunPlan.read(folder).recipe.budget.run_usd

    folder, usd = written(5.0)
    assert (usd, written(50.0)) == (5.0, (folder, 50.0))
    (folder / RESULT_FILE).write_text("{}", encoding="utf-8")
    assert written(500.0) == (folder, 50.0)


def test_a_trainer_ends_with_its_starter_and_does_not_wait_for_locks_of_ended_processes(tmp_path: Path) -> None:
    mine = unique_process_name(os.getpid())
    assert prepare_environment(quick_plan(), tmp_path) == {processes.PARENT_VARIABLE: mine}
    lock = tmp_path / EXTENSIONS_FOLDER / "deepspeed_shm_comm" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    variables = prepare_environment(quick_plan(deepspeed="zero3.json"), tmp_path)
    assert variables == {processes.PARENT_VARIABLE: mine, "TORCH_EXTENSIONS_DIR": str(tmp_path / EXTENSIONS_FOLDER)}
    assert not lock.exists()


def test_two_trainings_with_vllm_on_one_machine_have_ports_of_their_own(tmp_path: Path) -> None:
    ports = [prepare_environment(quick_plan(vllm=True), tmp_path)["MASTER_PORT"] for _ in range(2)]
    assert len(set(ports)) == 2
    assert "MASTER_PORT" not in prepare_environment(quick_plan(vllm=True, deepspeed="zero3.json"), tmp_path)


def configured(folder: Path, **grpo: Any) -> Any:
    return build_trl_config(quick_plan(**grpo), folder)


def test_a_colocated_vllm_is_given_its_length_its_sleep_and_its_gpus(tmp_path: Path) -> None:
    engine = {"vllm": True, "vllm_memory": 0.45, "vllm_max_model_length": 10_240, "vllm_sleep": True}
    made = configured(tmp_path, **engine)
    assert (made.use_vllm, made.vllm_mode, made.vllm_server_base_url) == (True, "colocate", None)
    assert (made.vllm_gpu_memory_utilization, made.vllm_max_model_length) == (0.45, 10_240)
    assert (made.vllm_enable_sleep_mode, made.vllm_tensor_parallel_size) == (True, 1)
    alone = quick_plan(**engine)
    # Settings of one of two ranks, without the launcher.
    spread = alone.recipe.grpo.model_copy(update={"vllm_tensor_parallel": 2, "processes": 2})
    of_two = alone.model_copy(update={"recipe": alone.recipe.model_copy(update={"grpo": spread})})
    assert build_trl_config(of_two, tmp_path).vllm_tensor_parallel_size == 2


def test_a_server_is_asked_at_its_address(tmp_path: Path) -> None:
    made = configured(tmp_path, vllm=True, vllm_mode="server", vllm_server_url="http://10.0.0.2:8000")
    assert (made.vllm_mode, made.vllm_server_base_url) == ("server", "http://10.0.0.2:8000")


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
def test_the_correction_of_vllms_probabilities_is_the_recipes(tmp_path: Path, mode: str) -> None:
    made = configured(tmp_path, vllm=True, vllm_correction=mode, vllm_correction_max=2.0)
    assert made.vllm_importance_sampling_correction is True
    assert (made.vllm_importance_sampling_mode, made.vllm_importance_sampling_clip_max) == (mode, 2.0)


def test_without_a_correction_there_is_none_and_unsaid_it_is_trls_own(tmp_path: Path) -> None:
    uncorrected = configured(tmp_path, vllm=True, vllm_correction="none")
    assert uncorrected.vllm_importance_sampling_correction is False
    unsaid = configured(tmp_path, vllm=True)
    names = [f"vllm_importance_sampling_{field}" for field in ("correction", "mode", "clip_max", "clip_min")]
    assert {name: getattr(unsaid, name) for name in names} == {
        name: type(unsaid).__dataclass_fields__[name].default for name in names
    }


def test_patience_and_the_number_of_checkpoints_are_the_recipes(tmp_path: Path) -> None:
    made = configured(tmp_path, keep_checkpoints=1, collective_timeout_s=7200)
    assert (made.save_total_limit, made.ddp_timeout_delta) == (1, timedelta(hours=2))
    unsaid = configured(tmp_path)
    assert (unsaid.save_total_limit, unsaid.ddp_timeout_delta) == (2, timedelta(hours=4))


@pytest.mark.parametrize(
    ("settings", "window", "longest"),
    [
        ({"vllm": True, "vllm_max_model_length": 10_240}, 131_072, 10_240),
        ({"vllm": True, "vllm_max_model_length": 10_240}, None, 10_240),
        ({"vllm": False, "vllm_max_model_length": 10_240}, 131_072, 131_072),
        ({"vllm": True, "vllm_max_model_length": 200_000}, 131_072, 131_072),
        ({"vllm": True}, None, None),
    ],
)
def test_a_prompt_has_the_room_that_vllm_keeps(
    settings: dict[str, Any], window: int | None, longest: int | None
) -> None:
    fields = {} if window is None else {"max_position_embeddings": window}
    model: Any = SimpleNamespace(config=SimpleNamespace(**fields))
    assert max_sequence_tokens(Grpo(**settings), model) == longest


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vllm_mode": "server"}, "vllm_server_url goes with"),
        ({"vllm_server_url": "http://here:8000"}, "vllm_server_url goes with"),
        ({"vllm_mode": "server", "vllm_server_url": "http://here", "vllm_sleep": True}, "a colocated vLLM's"),
        ({"vllm_mode": "server", "vllm_server_url": "http://me:secret@here"}, "a user or a password"),
        ({"vllm_tensor_parallel": 2}, "does not divide processes = 1"),
        ({"vllm_max_model_length": 1024}, "no room for a prompt"),
        ({"vllm_correction": "sometimes"}, "sequence_mask"),
        ({"staleness": 5}, "less than or equal to 4"),
        ({"staleness": 1, "sampling": "signal"}, "by what the step before showed"),
        ({"staleness": 1, "vllm": True, "vllm_correction": "none"}, "needs a vllm_correction"),
        ({"sampling": "forecast"}, "'epochs' or 'signal'"),
        ({"stop_without_signal": 0}, "greater than or equal to 1"),
    ],
)
def test_invalid_grpo_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Grpo(**settings)


def test_a_run_waits_for_unreachable_workers_and_ranks_wait_longer() -> None:
    asking = quick_plan(max_unscorable=0.3, outage_s=600.0)
    assert (build_outage_policy(asking).max_unscorable, build_outage_policy(asking).total_s) == (0.3, 600.0)
    rehearsal = Recipe.model_validate(asking.recipe.model_dump() | {"replay": {"on_miss": "unscorable"}})
    assert build_outage_policy(asking.model_copy(update={"recipe": rehearsal})).max_unscorable == 1.0
    with pytest.raises(ValidationError, match="outage_s = 900 is not less than collective_timeout_s = 900"):
        quick_plan(**RANKS, outage_s=900.0, collective_timeout_s=900.0)
    assert quick_plan(**RANKS, outage_s=600.0, collective_timeout_s=900.0).recipe.grpo.outage_s == 600.0
