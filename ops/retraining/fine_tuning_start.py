"""Prepare the policy from which fine-tuning starts: the champion's weights with a card for the current pool."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ops.conductor.policy import CARD_FILE, PolicyCard, policy_key
from ops.config import Adaptive, Pool, PoolChange, Recipe, Recursive, Setup, digest
from ops.core.atomic import create_folder_atomically
from ops.core.digests import SUMS_FILE, write_digest
from ops.core.errors import DataError
from ops.core.workspace import Workspace
from ops.stages.restoring import restore_run
from ops.training.cold_start.base_policy import is_intact_policy
from ops.training.run.training_run import run_key, write_run_plan
from ops.workflow.cards import load_cards


def get_champion_folder(workspace: Workspace, change: PoolChange) -> Path:
    """Return the folder of the champion's policy: that of its training run, or a copy from the registry.

    Raises the errors of `ops.retraining.champion.fetch_policy`.
    """
    folder = workspace.runs / change.policy / "policy"
    if folder.exists():
        restore_run(workspace, folder.parent)
    if (folder / CARD_FILE).is_file():
        return folder
    from ops.retraining.champion import fetch_policy

    return fetch_policy(workspace, change)


def update_card(card: PolicyCard, pool: Pool, data: Path) -> PolicyCard:
    """Return the champion's card for training on `pool`. Known workers keep their ordinals, and the usable workers are
    offered.

    A champion that was trained with descriptions of workers is offered newcomers at the next ordinals. A champion
    without descriptions writes invalid workflows when it sees an unknown ordinal, so newcomers are left out, as in
    evaluation (`PolicyCard.add_new_workers`). Workers that the pool lacks keep their ordinals and are never offered.
    Descriptions of newcomers, and of workers whose answers have changed, come from `data/profiles.json`; the others
    come from the policy's training. Raises `DataError` if a description is missing.
    """
    new = tuple(name for name in pool.names if name not in card.offered) if card.cards else ()
    others = [name for name in card.offered if name in pool.names and _has_changed(card.pool, pool, name)]
    measured = dict(zip((*others, *new), load_cards(data, (*others, *new)), strict=True)) if card.cards else {}
    absent = set(card.offered) - set(pool.names)
    gone = tuple(worker for worker in card.pool.workers if worker.name in absent)
    return card.model_copy(
        update={
            "pool": pool.model_copy(update={"workers": (*pool.workers, *gone)}),
            "offered": (*card.offered, *new),
            "cards": tuple(measured.get(name, old) for name, old in zip(card.offered, card.cards, strict=True))
            + tuple(measured[name] for name in new)
            if card.cards
            else (),
        }
    )


def _has_changed(old: Pool, new: Pool, name: str) -> bool:
    return old.worker(name).identity != new.worker(name).identity


def prepare_start_folder(setup: Setup, change: PoolChange) -> Path:
    """Return the folder of the champion's policy for training on the current pool. It is made unless it exists.

    Equal champions, pools and cards lead to the same folder. Weights are hard links if the file system supports them. A
    damaged folder is renamed and made again. Raises `DataError`.
    """
    champion = get_champion_folder(setup.workspace, change)
    card = update_card(PolicyCard.read(champion), setup.pool, setup.workspace.data)
    folder = _start_folder(setup, champion, card)
    if is_intact_policy(folder):
        return folder
    with create_folder_atomically(folder) as part:
        ignore = shutil.ignore_patterns(CARD_FILE, SUMS_FILE, "checkpoint-*")
        shutil.copytree(champion, part, copy_function=_link, ignore=ignore, dirs_exist_ok=True)
        card.write(part)
        write_digest(part)
    return folder


def _start_folder(setup: Setup, champion: Path, card: PolicyCard) -> Path:
    """The folder of the policy from which fine-tuning starts; it need not exist. `card`: `update_card`."""
    shown = [each.model_dump(exclude={"cost_usd"}) for each in card.cards]
    key = digest(["from a champion", policy_key(champion), setup.pool.answers_key, card.offered, shown])
    return setup.workspace.policies / f"{setup.recipe.policy_name}-{key}"


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def prepare_fine_tuning(setup: Setup, change: PoolChange, deepspeed: Mapping[str, Any] | None = None) -> Path:
    """Return the folder of the run that fine-tunes the champion on the current pool, and write the run's plan unless it
    exists.

    The run repeats the last training stage of the recipe (in rounds, on subsets of workers, or plain) with the settings
    of `fine_tune`. Its key includes the policy from which it starts. Raises the exceptions of `write_run_plan`.
    """
    return write_run_plan(
        *_last_stage_arguments(setup, prepare_start_folder(setup, change), deepspeed), champion=change.version
    )


def find_fine_tuning(setup: Setup, change: PoolChange) -> Path | None:
    """Return the folder of the fine-tuning run if it was started in this checkout, otherwise None. Nothing is
    downloaded or written."""
    champion = setup.workspace.runs / change.policy / "policy"
    if not (champion / CARD_FILE).is_file():
        return None
    try:
        card = update_card(PolicyCard.read(champion), setup.pool, setup.workspace.data)
        tuned, start, _, adaptive, recursive = _last_stage_arguments(setup, _start_folder(setup, champion, card), None)
        folder = setup.workspace.runs / run_key(tuned, start, adaptive, recursive)
    except (DataError, OSError):  # newcomers have no profile yet, or there is no mix
        return None
    return folder if folder.is_dir() else None


def _last_stage_arguments(
    setup: Setup, start: Path, deepspeed: Mapping[str, Any] | None
) -> tuple[Setup, Path, Mapping[str, Any] | None, Adaptive | None, Recursive | None]:
    """Arguments of `write_run_plan` for the recipe's last training stage, starting from the policy in `start`."""
    tuned = apply_fine_tune_settings(setup.recipe)
    adaptive = tuned.adaptive if tuned.recursive is None else None
    return replace(setup, recipe=tuned), start, deepspeed, adaptive, tuned.recursive


def apply_fine_tune_settings(recipe: Recipe) -> Recipe:
    """Return the recipe with the settings of `fine_tune` applied to its last training stage."""
    own = recipe.fine_tune.model_dump(exclude_none=True)
    for name, stage in (("recursive", recipe.recursive), ("adaptive", recipe.adaptive)):
        if stage is not None:
            return recipe.model_copy(update={name: stage.model_copy(update=own)})
    return recipe.model_copy(update={"grpo": recipe.fine_tune.grpo(recipe.grpo)})
