"""The plan and the result of a training run: all inputs of GRPO are written to the run's folder before it starts.

This module does not import torch.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from ops.benchmarks.graded import graders_key_of_file
from ops.benchmarks.problem_files import hash_problems
from ops.config import Adaptive, Pool, Recipe, Recursive, Settings, Setup, digest, dump_settings
from ops.config.loading import check_against_pool, clean_validation_message
from ops.core.atomic import write_text
from ops.core.digests import DamagedFile, check_digest, read_stored_key, replace_with_digest, set_aside
from ops.core.errors import ConfigError, DataError
from ops.core.once import Key
from ops.core.processes import free_port, unique_process_name
from ops.core.workspace import Workspace
from ops.training.run.checkpoints import CHECKPOINTS, find_intact_checkpoint, find_last_checkpoint, report_full_disk
from ops.training.run.processes import PARENT_VARIABLE, read_training_node
from ops.training.run.trainer_version import record_trainer

PLAN_FILE, RESULT_FILE, CURVE_FILE, DEEPSPEED_FILE = "run.json", "result.json", "curve.jsonl", "deepspeed.json"
"""The files in a run's folder with its plan, its result, its curve and the settings of DeepSpeed."""
LOG_FILE = "trainer.log"
"""The file in a run's folder to which the trainer's output is written."""
EXTENSIONS_FOLDER = "extensions"
"""The folder inside a run's folder in which PyTorch compiles DeepSpeed's operations."""
_RUN_AGAIN = "Give `podium run RECIPE` with the run's recipe, which makes it again"

log = logging.getLogger(__name__)


_SETTINGS_WITHOUT_EFFECT = frozenset({
    "checkpoint_every", "collective_timeout_s", "deepspeed", "gradient_checkpointing", "keep_checkpoints",
    "micro_batch", "outage_s", "processes", "vllm_max_model_length", "vllm_memory", "vllm_mode", "vllm_server_url",
    "vllm_sleep", "vllm_tensor_parallel",
})  # fmt: skip
"""Fields of `Grpo` that decide how a result is computed (memory, processes, disk and waiting) and not what it is. They
are left out of a run's key, so that an interrupted run continues when they are changed."""


class RunPlan(Settings):
    """The inputs of `python -m ops.training.grpo`, which are stored in the run's folder as `run.json`."""

    root: Path
    """The checkout, whose response cache and ledger the run uses."""
    recipe: Recipe
    """The recipe, with the GRPO settings of this run's stage."""
    pool: Pool
    """The pool of workers that the run calls, with their prices and limits."""
    offered: tuple[str, ...]
    """The names of the offered workers. A worker's ordinal in the prompt is its place in this tuple."""
    base_policy: Path
    """The folder of the policy that training starts from."""
    adaptive: Adaptive | None = None
    """The settings of the adaptive stage, in which each question offers a subset of the workers. None means that every
    question offers all workers."""
    recursive: Recursive | None = None
    """The settings of the recursive stage. None means that the run has first rounds only."""
    from_champion: bool = False
    """True if the run fine-tunes a champion. The completions of its first step must then be valid workflows, up to the
    share that `guards.max_invalid_first_step` permits to be invalid."""
    champion: str = ""
    """The number of the version that the run fine-tunes; empty if it fine-tunes no champion."""
    problems: Path
    """The file of the training mix."""
    few_shots: Path
    """The folder with the example texts that the prompt can contain."""
    account: str = ""
    """The name under which the ledger counts the spending. An empty name stands for the run's own name
    (`Setup.run`)."""
    mlflow_uri: str | None = None
    """The URI of the MLflow store that tracks the run's curve. None means that the curve is written to the run's folder
    only."""

    @property
    def stage(self) -> str:
        """Return the name of the asset whose training this is."""
        return "adaptive_conductor" if self.adaptive else "recursive_conductor" if self.recursive else "conductor"

    @property
    def setup(self) -> Setup:
        """Return the checkout, recipe, pool and account of the run as a `Setup`."""
        return Setup(Workspace(self.root), self.recipe, self.pool, account=self.account)

    @classmethod
    def read(cls, folder: Path) -> RunPlan:
        """Read the plan that is stored in a run's folder.

        Raises `DataError` if there is no plan, if it is damaged, or if it has fields that this version does not know.
        """
        try:
            check_digest(folder / PLAN_FILE, _RUN_AGAIN, missing="accepted")
            return cls.model_validate_json((folder / PLAN_FILE).read_text(encoding="utf-8"))
        except ValidationError as error:
            first = error.errors()[0]
            field, remedy = ".".join(map(str, first["loc"])), "Delete the folder if another version of Podium wrote it"
            raise DataError(
                folder / PLAN_FILE, field, f"is not usable: {clean_validation_message(first)}", remedy
            ) from None
        except (OSError, ValueError) as error:
            raise DataError(folder / PLAN_FILE, "", f"cannot be read ({error})", _RUN_AGAIN) from None


class RunResult(Settings):
    """The result of a finished run, which is stored in the run's folder as `result.json`.

    Rewards are means over the rollouts of the first steps and of the last steps. Costs are in USD and times in seconds.
    """

    steps: int
    """The number of optimizer steps that were trained."""
    reward_before: float
    """The mean reward of the first `window` steps."""
    reward_after: float
    """The mean reward of the last `window` steps."""
    window: int
    """The number of steps over which each of the two mean rewards is taken."""
    rollouts: int
    """The number of rollouts of all steps."""
    live_calls: int
    """The number of worker calls that were sent to a provider during the last attempt. An interrupted run that was
    continued has several attempts."""
    cached_calls: int
    """The number of worker calls that the response cache answered during the last attempt."""
    replayed_calls: int = 0
    """The number of worker calls that a rehearsal answered from stored responses during the last attempt."""
    spent_usd: float = 0.0
    """USD that was paid during the last attempt."""
    rollouts_usd: float
    """USD that the workers' responses to the rollouts would have cost without the cache. Each response counts at its
    full price, whether this run paid for it or found it stored."""
    seconds: float
    """Wall time of all attempts together, in seconds."""
    stopped: str = ""
    """The reason why the run ended before its last step. It is empty if the last step was reached."""

    @model_validator(mode="before")
    @classmethod
    def _accept_earlier_name(cls, values: Any) -> Any:
        """Accept `cost_usd`, the name of `rollouts_usd` in results that an earlier version of Podium wrote."""
        if isinstance(values, dict) and "cost_usd" in values and "rollouts_usd" not in values:
            values = {("rollouts_usd" if name == "cost_usd" else name): value for name, value in values.items()}
        return values

    @classmethod
    def read(cls, folder: Path) -> RunResult | None:
        """Read the result of the run in a folder, or return None if the run has not finished.

        Raises `DamagedFile` if the file is not the result that was written.
        """
        file = folder / RESULT_FILE
        try:
            check_digest(file, _RUN_AGAIN, missing="accepted")
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, IsADirectoryError):
            raise DamagedFile(file, "", "is not the result of a training", _RUN_AGAIN) from None

    def write(self, folder: Path) -> None:
        """Write the result to a run's folder, which marks the run as finished."""
        with replace_with_digest(folder / RESULT_FILE) as temporary:
            temporary.write_text(self.model_dump_json(indent=1), encoding="utf-8")


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """Return the complete lines of the curve in a run's folder, one mapping per step.

    The list is empty before the first step. The last line is left out while it is being written. If the run has
    finished and its curve is damaged or missing, the curve is restored from the run's last checkpoint. Raises
    `DamagedFile` if that checkpoint does not hold the whole curve.
    """
    curve = folder / CURVE_FILE
    try:
        check_digest(curve, "", missing="accepted")
        if not curve.exists():
            raise FileNotFoundError
    except (DamagedFile, FileNotFoundError) as error:
        if not (folder / RESULT_FILE).is_file():
            if isinstance(error, DamagedFile):
                raise
            return []
        _restore_curve(folder, error)
    text = curve.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _restore_curve(folder: Path, why: Exception) -> None:
    """Write the curve of a finished run again from its newest intact checkpoint, and log why (`why`).

    Raises `DamagedFile` if the checkpoint's copy has another number of steps than the run's result.
    """
    curve, result, checkpoint = folder / CURVE_FILE, RunResult.read(folder), find_intact_checkpoint(folder)
    copy = None if checkpoint is None else checkpoint / CURVE_FILE
    text = copy.read_text(encoding="utf-8") if copy is not None and copy.is_file() else ""
    problem = why.problem if isinstance(why, DataError) else "is missing"
    if result is None or len(text.splitlines()) != result.steps:
        remedy = f"Restore it, or move the folder {folder} away and give `podium run RECIPE`, which trains again"
        raise DamagedFile(curve, "", f"{problem}, and no checkpoint has the whole curve", remedy)
    if curve.exists():
        set_aside(curve, problem, f"It was restored from {copy}.")
    else:
        log.warning("%s %s. It was restored from %s", curve, problem, copy)
    with replace_with_digest(curve) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_run_plan(
    setup: Setup,
    base_policy: Path,
    deepspeed: Mapping[str, Any] | None = None,
    adaptive: Adaptive | None = None,
    recursive: Recursive | None = None,
    *,
    champion: str = "",
) -> Path:
    """Write the plan for these inputs and return the run's folder. The same inputs always give the same folder.

    `deepspeed` is the content of the recipe's DeepSpeed file. `adaptive` is given for the stage that continues another
    run's policy on subsets of the workers, `recursive` for the stage in rounds. `champion` is the number of the version
    that the run fine-tunes, if it fine-tunes one.

    An interrupted run continues in its folder. Settings that do not change its result (caps, limits, prices, micro
    batches) take their present values. A finished run is kept and not executed again. If a new folder is begun although
    the recipe already has one, a log line says which of the inputs changed.

    Raises `ConfigError` for subsets that the pool cannot provide and for a checkpoint that DeepSpeed cannot load with
    the present number of processes, and `DiskFull`.
    """
    from ops.conductor.policy import PolicyCard

    if adaptive is not None:
        check_against_pool(setup.recipe.model_copy(update={"adaptive": adaptive}), setup.pool)
    workspace, recipe = setup.workspace, _stage_recipe(setup.recipe, adaptive, recursive)
    mix = workspace.data / "training_mix.jsonl"
    key = run_inputs(setup, base_policy, adaptive, recursive)
    folder = workspace.runs / _folder_name(recipe, key)
    if (folder / RESULT_FILE).is_file() and _is_readable(folder):
        return folder
    plan = RunPlan(
        root=workspace.root,
        recipe=recipe,
        pool=setup.pool,
        account=setup.account,
        offered=PolicyCard.read(base_policy).offered,
        base_policy=base_policy,
        adaptive=adaptive,
        recursive=recursive,
        from_champion=bool(champion),
        champion=champion,
        problems=mix,
        few_shots=workspace.texts,
        mlflow_uri=workspace.mlflow_uri,
    )
    if _is_readable(folder) and (RunPlan.read(folder), _read_deepspeed(folder)) == (plan, deepspeed or None):
        return folder
    if folder.exists():
        _check_layout(folder, recipe, deepspeed)
    else:
        _log_changed_inputs(folder, recipe, key)
    with report_full_disk(folder):
        write_text(folder / "recipe.yaml", dump_settings(recipe))
        (folder / DEEPSPEED_FILE).unlink(missing_ok=True)
        if deepspeed:
            write_text(folder / DEEPSPEED_FILE, json.dumps(deepspeed, indent=1))
        with replace_with_digest(folder / PLAN_FILE, key) as temporary:
            temporary.write_text(json.dumps(plan.model_dump(mode="json"), indent=1), encoding="utf-8")
    return folder


def _is_readable(folder: Path) -> bool:
    """Return True if the folder has an undamaged plan of this version; a warning is logged for a plan that is not
    usable."""
    try:
        RunPlan.read(folder)
    except DataError as error:
        if (folder / PLAN_FILE).exists():
            log.warning("%s %s. It is written again", folder / PLAN_FILE, error.problem)
        return False
    return True


def _stage_recipe(recipe: Recipe, adaptive: Adaptive | None, recursive: Recursive | None) -> Recipe:
    """Return the recipe with the GRPO settings of a stage of training."""
    stage = adaptive or recursive
    return recipe if stage is None else recipe.model_copy(update={"grpo": stage.grpo(recipe.grpo)})


def run_key(
    setup: Setup, base_policy: Path, adaptive: Adaptive | None = None, recursive: Recursive | None = None
) -> str:
    """Return the name of the folder that `write_run_plan` uses for these inputs, without writing anything.

    The training mix must exist.
    """
    return _folder_name(
        _stage_recipe(setup.recipe, adaptive, recursive), run_inputs(setup, base_policy, adaptive, recursive)
    )


def run_inputs(
    setup: Setup, base_policy: Path, adaptive: Adaptive | None = None, recursive: Recursive | None = None
) -> Key:
    """Return the key of a training run, which holds everything that decides its policy except for the trainer's code.

    A run costs worker calls and GPU hours, so a changed line of the trainer must not train again. The run records the
    version that trained it instead (`trainer_version`). The training mix must exist.
    """
    from ops.conductor.policy import policy_key

    recipe = _stage_recipe(setup.recipe, adaptive, recursive)
    # The loss "bnpo" averages within each micro batch. The other losses do not depend on the size of a micro batch.
    only_how = set(
        _SETTINGS_WITHOUT_EFFECT - {"micro_batch"} if recipe.grpo.loss == "bnpo" else _SETTINGS_WITHOUT_EFFECT
    )
    # Settings that are None are left out, so that adding a new setting does not change the keys of earlier runs.
    settings = recipe.model_dump(
        include={"prompting", "grpo", "generation", "replay"}, exclude={"grpo": only_how}, exclude_none=True
    )
    stages = [stage and stage.model_dump(exclude={"micro_batch"}, exclude_none=True) for stage in (adaptive, recursive)]
    mix = setup.workspace.data / "training_mix.jsonl"
    return {
        "stage": "adaptive" if adaptive else "recursive" if recursive else "conductor",
        "data": hash_problems(mix)[:16],
        "grader": digest(graders_key_of_file(mix)),
        "policy": policy_key(base_policy),
        "workers": setup.pool.answers_key,
        "seed": str(recipe.seed),
        "recipe": digest([settings, recipe.execution.answer_settings, stages]),
    }


def _folder_name(recipe: Recipe, key: Key) -> str:
    return f"{recipe.policy_name}-{digest(key)}"


def _log_changed_inputs(folder: Path, recipe: Recipe, key: Key) -> None:
    """Log one line that says which inputs changed since the most similar run of this recipe with the same seed.

    Nothing is logged if there is no such run.
    """
    others: list[tuple[tuple[str, ...], Path]] = []
    for plan in folder.parent.glob(f"{recipe.policy_name}-*/{PLAN_FILE}"):
        with suppress(OSError, ValueError):
            stored = read_stored_key(plan)
            if not stored:
                log.warning(
                    "%s begins anew: %s is of an earlier version of Podium, which did not note its inputs. If they are "
                    "the same, stop now and rename that folder to %s", folder.name, plan.parent, folder.name,
                )  # fmt: skip
            elif (stored.get("stage"), stored.get("seed")) == (key["stage"], key["seed"]):
                others.append((tuple(name for name in key if stored.get(name) != key[name]), plan.parent))
    if others:
        names, other = min(others, key=lambda pair: len(pair[0]))
        log.warning("%s begins anew, because of its inputs changed since %s: %s", folder.name, other, ", ".join(names))


def _check_layout(folder: Path, recipe: Recipe, deepspeed: Mapping[str, Any] | None) -> None:
    """Raise `ConfigError` if the run has a checkpoint whose optimizer state DeepSpeed divided in another way than now.

    The division depends on the number of processes and on the ZeRO stage.
    """
    if find_last_checkpoint(folder / CHECKPOINTS) is None or not _is_readable(folder):
        return
    before = RunPlan.read(folder).recipe.grpo.processes, _zero_stage(_read_deepspeed(folder))
    if before == (recipe.grpo.processes, _zero_stage(deepspeed)):
        return
    raise ConfigError(
        f"recipe {recipe.name!r}",
        "grpo.processes, grpo.deepspeed",
        f"differ from those of the checkpoint in {folder}: {before[0]} processes with {before[1]}",
        "Give these values to continue the run, or move the folder away to train from the start",
    )


def _read_deepspeed(folder: Path) -> dict[str, Any] | None:
    """Return the DeepSpeed settings in a run's folder, or None if there are none or they cannot be read."""
    try:
        values: dict[str, Any] = json.loads((folder / DEEPSPEED_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values


def _zero_stage(deepspeed: Mapping[str, Any] | None) -> str:
    """Return the ZeRO stage of DeepSpeed settings in words for an error message."""
    if not deepspeed:
        return "no DeepSpeed"
    return f"ZeRO stage {deepspeed.get('zero_optimization', {}).get('stage', 0)}"


def build_training_command(plan: RunPlan, folder: Path) -> list[str]:
    """Return the command line that trains the run in `folder`.

    It starts this Python directly, or accelerate's launcher if the recipe uses DeepSpeed. Raises `ConfigError` if the
    environment variables of several machines are wrong.
    """
    module = ["-m", "ops.training.grpo", "--run", str(folder)]
    grpo = plan.recipe.grpo
    if grpo.deepspeed is None:
        return [sys.executable, *module]
    return [
        sys.executable, "-m", "ops.training.run.processes",
        "--use_deepspeed",
        "--deepspeed_config_file", str(folder / DEEPSPEED_FILE),
        "--num_processes", str(grpo.processes),
        *read_training_node().launcher_arguments(grpo.processes),
        # accelerate replaces the file's `"bf16": {"enabled": "auto"}` by this value, on GPUs and CPUs.
        "--mixed_precision", "bf16" if getattr(plan.recipe.policy, "dtype", "float32") == "bfloat16" else "no",
        *module,
    ]  # fmt: skip


def prepare_environment(plan: RunPlan, folder: Path) -> dict[str, str]:
    """Prepare a run's folder for a start of the trainer, and return the environment variables of the trainer's process.

    With these variables the trainer ends when the calling process ends. The version of the trainer is recorded in the
    run's folder, and a warning is logged if the run was begun with another version. Damaged checkpoints are moved away
    before the ranks of one machine start, because all ranks must continue from the same checkpoint. If several machines
    train together, they take the newest complete checkpoint.

    DeepSpeed compiles operations into a folder that PyTorch locks by a file. A process that is killed meanwhile leaves
    the lock behind, and every later process waits for it silently and without end. Therefore each run compiles into its
    own folder, and a lock that exists before the run starts is stale and is removed.

    If vLLM runs inside the trainer's process, it listens on a port. Without a port in the environment, TRL takes 29500
    if it is free. If two trainings start together on one machine, the second then fails, so a free port is set here.
    accelerate's launcher chooses its own port.
    """
    record_trainer(folder)
    variables = {PARENT_VARIABLE: unique_process_name(os.getpid())}
    if plan.recipe.grpo.vllm and plan.recipe.grpo.deepspeed is None:
        variables["MASTER_PORT"] = str(free_port())
    if plan.recipe.grpo.deepspeed is not None:
        if read_training_node().nodes == 1:  # before the ranks start, which must go on from the same checkpoint
            find_intact_checkpoint(folder)
        extensions = folder / EXTENSIONS_FOLDER
        if (node := read_training_node()).nodes > 1:  # each rank compiles for itself
            extensions /= f"node-{node.rank}"
        for lock in extensions.glob("*/lock"):
            lock.unlink(missing_ok=True)
        variables["TORCH_EXTENSIONS_DIR"] = str(extensions)
    return variables
