"""The plan of a training run: all inputs of GRPO, written before it starts.

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

from pydantic import ValidationError

from ops.benchmarks.graded import graders_key_of_file
from ops.config import Adaptive, Pool, Recipe, Recursive, Settings, Setup, digest, resolved
from ops.config.loading import check_against_pool, in_words
from ops.core.atomic import sha256_of, write_text
from ops.core.digests import DamagedFile, check_digest, replacing_with_digest, set_aside, stored_key
from ops.core.errors import ConfigError, DataError
from ops.core.once import Key
from ops.core.processes import free_port, name_of
from ops.core.workspace import Workspace
from ops.training.run.checkpoints import CHECKPOINTS, find_intact_checkpoint, find_last_checkpoint, report_full_disk
from ops.training.run.processes import PARENT_VARIABLE, read_training_node
from ops.training.run.trainer_version import record_trainer

PLAN_FILE, RESULT_FILE, CURVE_FILE, DEEPSPEED_FILE = "run.json", "result.json", "curve.jsonl", "deepspeed.json"
LOG_FILE = "trainer.log"
"""The trainer's output."""
EXTENSIONS_FOLDER = "extensions"
"""Path in a run's folder where PyTorch compiles DeepSpeed's operations."""
_RUN_AGAIN = "Give `podium run RECIPE` with the run's recipe, which makes it again"

log = logging.getLogger(__name__)


_SETTINGS_WITHOUT_EFFECT = frozenset({
    "checkpoint_every", "collective_timeout_s", "deepspeed", "gradient_checkpointing", "keep_checkpoints",
    "micro_batch", "outage_s", "processes", "vllm_max_model_length", "vllm_memory", "vllm_mode", "vllm_server_url",
    "vllm_sleep", "vllm_tensor_parallel",
})  # fmt: skip
"""Settings of memory, processes, disk and waiting. They only decide how a result is computed, so that a run continues
with other values."""


class RunPlan(Settings):
    """The inputs of `python -m ops.training.grpo`; stored in the run's folder as `run.json`."""

    root: Path
    """The checkout, for cache and ledger."""
    recipe: Recipe
    """The recipe with the settings of this run's GRPO."""
    pool: Pool
    offered: tuple[str, ...]
    """Workers' names by ordinal."""
    base_policy: Path
    """The policy that training starts from."""
    adaptive: Adaptive | None = None
    """The subset of workers that each question offers; None: all."""
    recursive: Recursive | None = None
    """The recursive rounds; None: first rounds only."""
    from_champion: bool = False
    """Whether the run fine-tunes a champion, whose first step must be valid workflows
    (`guards.max_invalid_first_step`).
    """
    problems: Path
    """The training mix."""
    few_shots: Path
    account: str = ""
    """The name under which the ledger counts the spending; empty: the run's own (`Setup.run`)."""
    mlflow_uri: str | None = None
    """The store that tracks the curve; None: only the run's folder."""

    @property
    def setup(self) -> Setup:
        """Return the checkout, recipe and pool of the run."""
        return Setup(Workspace(self.root), self.recipe, self.pool, account=self.account)

    @classmethod
    def read(cls, folder: Path) -> RunPlan:
        """Read the plan in a folder. Raises `DataError` if there is none."""
        try:
            check_digest(folder / PLAN_FILE, _RUN_AGAIN, missing="accepted")
            return cls.model_validate_json((folder / PLAN_FILE).read_text(encoding="utf-8"))
        except ValidationError as error:
            first = error.errors()[0]
            field, remedy = ".".join(map(str, first["loc"])), "Delete the folder if another version of Podium wrote it"
            raise DataError(folder / PLAN_FILE, field, f"is not usable: {in_words(first)}", remedy) from None
        except (OSError, ValueError) as error:
            raise DataError(folder / PLAN_FILE, "", f"cannot be read ({error})", _RUN_AGAIN) from None


class RunResult(Settings):
    """The result of a finished run, `result.json`. Rewards are means over the rollouts of the first and the last
    steps."""

    steps: int
    reward_before: float
    reward_after: float
    window: int
    """Number of steps in each of the two means."""
    rollouts: int
    live_calls: int
    cached_calls: int
    """Value of the last attempt, if the run was interrupted and continued."""
    replayed_calls: int = 0
    spent_usd: float = 0.0
    """Value of the last attempt, like the two above."""
    cost_usd: float
    """Original cost of the rollouts' worker responses, paid by this run or an earlier one."""
    seconds: float
    """Wall time of all attempts together."""
    stopped: str = ""
    """The reason for ending before the last step; empty if the last step was reached."""

    @classmethod
    def read(cls, folder: Path) -> RunResult | None:
        """Read the result of the run in a folder; None if it has not finished. Raises `DamagedFile`."""
        file = folder / RESULT_FILE
        try:
            check_digest(file, _RUN_AGAIN, missing="accepted")
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, IsADirectoryError):
            raise DamagedFile(file, "", "is not the result of a training", _RUN_AGAIN) from None

    def write(self, folder: Path) -> None:
        """Store the result, by which the run in a folder has finished."""
        with replacing_with_digest(folder / RESULT_FILE) as temporary:
            temporary.write_text(self.model_dump_json(indent=1), encoding="utf-8")


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """Return the complete lines of the curve in a run's folder, which may be growing; empty before the first step.

    The curve of a finished run that is damaged is restored from the run's last checkpoint. Raises `DamagedFile` where
    that has another one.
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
    with replacing_with_digest(curve) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_run_plan(
    setup: Setup,
    base_policy: Path,
    deepspeed: Mapping[str, Any] | None = None,
    adaptive: Adaptive | None = None,
    recursive: Recursive | None = None,
    *,
    from_champion: bool = False,
) -> Path:
    """Write the plan for these inputs and return its folder; the same inputs give the same folder.

    `deepspeed`: the content of the recipe's DeepSpeed file. `adaptive`: the stage that continues another run's policy
    on worker subsets; `recursive`: the stage in rounds. `from_champion`: as in the plan. Raises `ConfigError` for
    subsets that the pool does not have, and `DiskFull`.

    An interrupted run continues there; settings that do not change its result (caps, limits, prices, micro batches)
    take their present values. A finished run is kept and not executed again. Where a new folder is begun although the
    recipe has one already, a line says which of its inputs changed. Raises `ConfigError` for a checkpoint that
    DeepSpeed cannot load with the present number of processes.
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
        from_champion=from_champion,
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
        write_text(folder / "recipe.yaml", resolved(recipe))
        (folder / DEEPSPEED_FILE).unlink(missing_ok=True)
        if deepspeed:
            write_text(folder / DEEPSPEED_FILE, json.dumps(deepspeed, indent=1))
        with replacing_with_digest(folder / PLAN_FILE, key) as temporary:
            temporary.write_text(json.dumps(plan.model_dump(mode="json"), indent=1), encoding="utf-8")
    return folder


def _is_readable(folder: Path) -> bool:
    """Return whether the folder has a plan that is what was written; a line names one that is not."""
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
    """Return the name of the folder that `write_run_plan` gives these inputs, without writing anything. The mix must
    exist."""
    return _folder_name(
        _stage_recipe(setup.recipe, adaptive, recursive), run_inputs(setup, base_policy, adaptive, recursive)
    )


def run_inputs(
    setup: Setup, base_policy: Path, adaptive: Adaptive | None = None, recursive: Recursive | None = None
) -> Key:
    """Return the key of a training run: everything that decides its policy, except for the code of the trainer.

    A run is paid for by calls and hours of GPUs, so that a changed line of the trainer must not train again; the run
    records the version that trained it (`trainer_version`). The mix must exist.
    """
    from ops.conductor.policy import policy_key

    recipe = _stage_recipe(setup.recipe, adaptive, recursive)
    # The loss bnpo averages within each micro batch; the others do not depend on its size.
    only_how = set(
        _SETTINGS_WITHOUT_EFFECT - {"micro_batch"} if recipe.grpo.loss == "bnpo" else _SETTINGS_WITHOUT_EFFECT
    )
    # A setting that is None is not in use, so that a new setting leaves the keys of earlier runs as they are.
    settings = recipe.model_dump(
        include={"prompting", "grpo", "generation", "replay"}, exclude={"grpo": only_how}, exclude_none=True
    )
    stages = [stage and stage.model_dump(exclude={"micro_batch"}, exclude_none=True) for stage in (adaptive, recursive)]
    mix = setup.workspace.data / "training_mix.jsonl"
    return {
        "stage": "adaptive" if adaptive else "recursive" if recursive else "conductor",
        "data": sha256_of(mix)[:16],
        "grader": digest(graders_key_of_file(mix)),
        "policy": policy_key(base_policy),
        "workers": setup.pool.answers_key,
        "seed": str(recipe.seed),
        "recipe": digest([settings, recipe.execution.what_answers_depend_on, stages]),
    }


def _folder_name(recipe: Recipe, key: Key) -> str:
    return f"{recipe.policy_name}-{digest(key)}"


def _log_changed_inputs(folder: Path, recipe: Recipe, key: Key) -> None:
    """Say in one line which inputs changed since the most similar run of the recipe with this seed, if there is one."""
    others: list[tuple[tuple[str, ...], Path]] = []
    for plan in folder.parent.glob(f"{recipe.policy_name}-*/{PLAN_FILE}"):
        with suppress(OSError, ValueError):
            stored = stored_key(plan)
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
    """Raise `ConfigError` if the run has a checkpoint whose optimizer state is divided in another way than now."""
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
    try:
        values: dict[str, Any] = json.loads((folder / DEEPSPEED_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values


def _zero_stage(deepspeed: Mapping[str, Any] | None) -> str:
    if not deepspeed:
        return "no DeepSpeed"
    return f"ZeRO stage {deepspeed.get('zero_optimization', {}).get('stage', 0)}"


def build_training_command(plan: RunPlan, folder: Path) -> list[str]:
    """Return the command: this Python, or accelerate's launcher for DeepSpeed. Raises `ConfigError`."""
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
        # Sets the file's `"bf16": {"enabled": "auto"}` on GPUs and CPUs.
        "--mixed_precision", "bf16" if getattr(plan.recipe.policy, "dtype", "float32") == "bfloat16" else "no",
        *module,
    ]  # fmt: skip


def prepare_environment(plan: RunPlan, folder: Path) -> dict[str, str]:
    """Return environment variables for the trainer's process, which starts now; they make it end with this process.

    The version of the trainer is recorded in the run's folder; a line warns if the run was begun with another.
    Damaged checkpoints are moved away for the ranks of one machine; several machines take the newest complete one.

    DeepSpeed compiles operations into a folder that PyTorch locks by a file. A process that is killed meanwhile leaves
    the lock behind, and every later process waits for it silently and without end. Therefore a run compiles into its
    own folder, and a lock that exists before the run starts is stale.

    vLLM beside the trainer listens on a port. Without one in the environment TRL takes 29500 if it is free, and of two
    trainings that start together on one machine the second then fails. accelerate's launcher chooses its own.
    """
    record_trainer(folder)
    variables = {PARENT_VARIABLE: name_of(os.getpid())}
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
