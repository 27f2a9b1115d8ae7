"""Make the base policy: a pretrained model as it is, a model that supervision taught the grammar, or an untrained
policy.

The name of its folder depends on all inputs, so `make_base_policy` reuses an existing policy.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ops.benchmarks.graded import graders_key_of_file
from ops.benchmarks.problem_files import hash_problems, read_problems
from ops.conductor.policy import CARD_FILE, PolicyCard, check_policy
from ops.config import ColdStart, PretrainedPolicy, Recipe, ScratchPolicy, Setup, StaticPolicy, UntrainedPolicy, digest
from ops.core.async_run import run_async
from ops.core.atomic import create_folder_atomically
from ops.core.digests import DamagedFile, set_aside, write_digest
from ops.core.errors import DataError
from ops.core.once import Key
from ops.training.cold_start.validation import RECORD_FILE as RECORD
from ops.training.cold_start.validation import (
    ColdStartRecord,
    held_out_problems,
    measure_validity,
    sampling_settings,
    validation_problems,
)
from ops.training.run.checkpoints import report_full_disk
from ops.workers.scheduling import Client
from ops.workflow.cards import WorkerCard, load_cards
from ops.workflow.prompt import assign_ordinals

Progress = Callable[[int, int, str], None]
"""A callback that receives the number of a step, the number of steps, and a note."""
TOKENIZER_EXAMPLES = 4000
"""The number of SFT examples with which an untrained policy's tokenizer is trained."""
_RECORD_FILES = (RECORD, f"{RECORD}*")
"""The files of a base policy that are written again when it is validated again. The record has a digest of its own."""
_SETTINGS_WITHOUT_EFFECT: dict[str, Any] = {"micro_batch": True, "least_valid": True, "validation": {"least_valid"}}
"""Settings that do not change the policy: those of memory, and the required share of valid workflows."""


def base_policy_folder(setup: Setup) -> Path:
    """Return the folder of the base policy that belongs to these inputs. The folder need not exist.

    Raises `DataError` if the training mix is needed and missing.
    """
    return setup.workspace.policies / f"{setup.recipe.policy_name}-{digest(base_policy_inputs(setup))}"


def base_policy_inputs(setup: Setup) -> Key:
    """Return the key of the base policy, which holds everything that decides it except for the code of the cold start.

    The code is left out for the same reason as in a training run's key (`run.training_run.run_inputs`). Raises
    `DataError` if the training mix is needed and missing.
    """
    recipe = setup.recipe
    mix = setup.workspace.data / "training_mix.jsonl"
    settings = recipe.model_dump(include={"policy", "prompting", "generation", "replay"})
    # A changed price does not make a new policy, because the policy keeps the worker cards of its training.
    cards = [card.model_dump(exclude={"cost_usd"}) for card in _load_cards(setup)]
    key = {
        "seed": str(recipe.seed),
        "recipe": digest([settings, _cold_start_settings(recipe)]),
        "workers": digest([setup.pool.answers_key, _offered_names(setup), cards]),
    }
    if recipe.cold_start is None:
        return key
    execution = digest(recipe.execution.answer_settings)
    return {**key, "data": hash_problems(mix)[:16], "grader": digest(graders_key_of_file(mix)), "execution": execution}


def _offered_names(setup: Setup) -> list[str]:
    """Return the names of the workers in the order of their ordinals. A static workflow names its workers itself."""
    names = [worker.name for worker in assign_ordinals(setup.pool, _offer_seed(setup.recipe))]
    return sorted(names) if isinstance(setup.recipe.policy, StaticPolicy) else names


def _cold_start_settings(recipe: Recipe) -> dict[str, Any] | None:
    """Return the settings that change a cold start, with those settings of later stages on which its SFT examples
    depend."""
    settings = recipe.cold_start
    if settings is None:
        return None
    made = settings.model_dump(exclude=_SETTINGS_WITHOUT_EFFECT)
    if settings.teacher is None:
        del made["teacher"]
    if settings.recursive_share and recipe.recursive is not None:
        made["answer_tokens"] = recipe.recursive.limits.answer_tokens
    if settings.parts_share and recipe.adaptive is not None:
        made["parts"] = recipe.adaptive.model_dump(include={"smallest", "largest", "reshuffle"})
    return made


def _offer_seed(recipe: Recipe) -> int | None:
    return recipe.seed if recipe.prompting.shuffle_ordinals else None


def _load_cards(setup: Setup) -> tuple[WorkerCard, ...]:
    offered = [worker.name for worker in assign_ordinals(setup.pool, _offer_seed(setup.recipe))]
    return load_cards(setup.workspace.data, offered) if setup.recipe.prompting.cards else ()


def make_base_policy(
    setup: Setup,
    client: Client,
    on_progress: Progress | None = None,
) -> Path:
    """Return the folder of the base policy, which is made now unless it exists.

    `client` calls the workers if the cold start tries workflows. `on_progress(step, steps, note)` is called while it is
    made. A damaged policy is renamed and made again. Raises `DataError` if the mix or the responses are missing,
    `DiskFull`, and the client's `OverBudget` and `ConfigError`.
    """
    folder = base_policy_folder(setup)
    if is_intact_policy(folder):
        with report_full_disk(folder):
            _validate_again(setup, folder, client, on_progress)
        return folder
    with create_folder_atomically(folder) as part, report_full_disk(part):
        _build_policy(setup, part, client, on_progress)
        write_digest(part, skip=_RECORD_FILES, key=base_policy_inputs(setup))
    return folder


def is_intact_policy(folder: Path) -> bool:
    """Return True if the folder has an undamaged base policy. A damaged one is renamed, so that it does not exist
    afterwards."""
    try:
        check_policy(folder)
        if not (folder / CARD_FILE).is_file():
            raise DamagedFile(folder, "", f"has no {CARD_FILE}", "")
        ColdStartRecord.read(folder)
    except DataError as error:
        if not folder.exists():
            return False
        if not isinstance(error, DamagedFile) and Path(error.file) != folder / RECORD:
            raise  # the policy may be undamaged but cannot be read at present
        set_aside(folder, error, "The policy is made again.")
        return False
    return True


def _build_policy(setup: Setup, folder: Path, client: Client, on_progress: Progress | None) -> None:
    recipe = setup.recipe
    card = PolicyCard(
        recipe=recipe.name,
        pool=setup.pool,
        offered=tuple(worker.name for worker in assign_ordinals(setup.pool, _offer_seed(recipe))),
        prompting=recipe.prompting,
        cards=_load_cards(setup),
        execution=recipe.execution,
        max_completion_tokens=recipe.grpo.max_completion_tokens,
        generation=recipe.generation,
        dtype=recipe.policy.dtype if isinstance(recipe.policy, PretrainedPolicy) else "float32",
        pretrained=recipe.policy if isinstance(recipe.policy, PretrainedPolicy) else None,
        untrained=recipe.policy if isinstance(recipe.policy, UntrainedPolicy) else None,
    )
    if recipe.cold_start is not None:
        card = _train_cold_start(setup, card, recipe.cold_start, folder, client, on_progress)
    card.write(folder)


def _train_cold_start(
    setup: Setup,
    card: PolicyCard,
    settings: ColdStart,
    folder: Path,
    client: Client,
    on_progress: Progress | None,
) -> PolicyCard:
    recipe = setup.recipe
    import torch

    from ops.conductor.policy import Conductor, load_model
    from ops.training.cold_start.examples import sample_examples
    from ops.training.cold_start.supervised import build_scratch_model, fine_tune
    from ops.training.cold_start.teacher import NO_TEACHER_WORKFLOWS, collect_teacher_workflows

    team = card.build_team(setup.pool, setup.workspace.texts, recipe.execution, client)
    count = settings.steps * settings.batch
    unseen = held_out_problems(setup.workspace.data / "training_mix.jsonl", recipe)
    keys = {problem.key for problem in unseen}
    shown = NO_TEACHER_WORKFLOWS
    if settings.teacher is not None:
        mix = read_problems(setup.workspace.data / "training_mix.jsonl")
        asked = [problem for problem in mix if problem.key not in keys]
        shown = run_async(collect_teacher_workflows(setup, card, settings.teacher, asked, client, on_progress))
    examples = run_async(sample_examples(setup, team, settings, count, on_progress, keys, shown.workflows))
    if isinstance(recipe.policy, ScratchPolicy):
        model, tokenizer = build_scratch_model(recipe.policy, examples[:TOKENIZER_EXAMPLES], recipe.seed)
    else:
        model, tokenizer = load_model(folder, card)
    if settings.recursive_share:
        fits = Conductor(model, tokenizer, card).has_room
        examples = [example for example in examples if fits(example["prompt"])]
    precision = model.dtype
    if settings.lora is None:
        model.float()  # small updates are lost in bfloat16 weights; low-rank updates are in float32 in any case
    began = time.perf_counter()
    fitted = fine_tune(
        model, tokenizer, examples, settings, recipe.seed, on_progress,
        autocast=precision == torch.bfloat16, checkpointing=recipe.grpo.gradient_checkpointing,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    model.to(precision).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    record = ColdStartRecord(
        loss=tuple(fitted.losses),
        examples=len(examples),
        left_out=count - len(examples),
        tokens=fitted.tokens,
        seconds=seconds,
        peak_gib=_peak_memory_gib(),
        teacher_workflows=shown.tried,
        teacher_right=shown.right,
        teacher_usd=shown.usd,
    )
    if problems := validation_problems(setup.workspace.data, recipe):
        validity = measure_validity(Conductor(model, tokenizer, card), problems, team, recipe, on_progress)
        record = record.model_copy(update={"validation": validity})
    record.write(folder)
    return card.model_copy(update={"pretrained": None})


def _validate_again(setup: Setup, folder: Path, client: Client, on_progress: Progress | None) -> None:
    """Validate a policy that was not validated before, or with other sampling settings than those of GRPO."""
    recipe, record = setup.recipe, ColdStartRecord.read(folder)
    if record is None or (record.validation is not None and record.validation.drawn == sampling_settings(recipe)):
        return
    problems = validation_problems(setup.workspace.data, recipe)
    if not problems:
        return
    from ops.conductor.writer import load_in_process

    card = PolicyCard.read(folder).model_copy(update={"generation": recipe.generation})
    team = card.build_team(setup.pool, setup.workspace.texts, recipe.execution, client)
    validity = measure_validity(load_in_process(folder, card), problems, team, recipe, on_progress)
    record.model_copy(update={"validation": validity}).write(folder)


def _peak_memory_gib() -> float:
    """Return the peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
