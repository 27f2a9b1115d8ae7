"""The questions of a whole training, in the order in which they are asked.

The questions of a step depend only on the step's number. The sampler of TRL and the count of epochs in transformers
start again if a run is resumed in its second epoch, so that they would choose other questions than in a run without an
interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from datasets import Dataset

from ops.conductor.policy import count_chat_tokens
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.training.run.training_run import RunPlan
from ops.training.step.questions import Row
from ops.workflow.control_tokens import escape_messages
from ops.workflow.prompt import check_prompt_length, mask_words
from ops.workflow.team import Team


def build_dataset(plan: RunPlan, problems: Sequence[Problem], build_row: Callable[[Problem, int], Row]) -> Dataset:
    """Return the data set of a run, which has one row per question.

    A row has the prompt in chat form, the problem's key for the reward, the epoch and, in the adaptive stage, the
    ordinals of the offered workers. Each epoch has a random order of its own. Raises `DataError` if there are fewer
    problems than a step needs, and the errors of `build_row`.
    """
    grpo, seed = plan.recipe.grpo, plan.recipe.seed
    size = grpo.questions_per_step
    if len(problems) < size:
        stage = "recursive" if plan.recursive else "adaptive" if plan.adaptive else "grpo"
        held = f"holds {len(problems)} problems for the stage, and a step asks {size}"
        raise DataError(plan.problems, "", held, f"Ask fewer at a step ({stage}.questions_per_step)")
    asked: list[Row] = []
    generator = torch.Generator().manual_seed(seed)
    for epoch, steps in split_into_epochs(len(problems), size, grpo.steps):
        rows = [build_row(problem, epoch) for problem in problems]
        rows = [rows[place] for place in torch.randperm(len(rows), generator=generator).tolist()]
        asked += rows[: steps * size]
    return Dataset.from_list(asked)


def split_into_epochs(problems: int, questions_per_step: int, steps: int) -> Iterator[tuple[int, int]]:
    """Yield each epoch with its number of steps, for `steps` steps in total.

    An epoch's last problems are left out if they do not fill a step.
    """
    whole = problems // questions_per_step
    for epoch, done in enumerate(range(0, steps, whole)):
        yield epoch, min(whole, steps - done)


def build_row_maker(
    plan: RunPlan, team: Team, tokenizer: Any, context: int | None = None
) -> Callable[[Problem, int], Row]:
    """Return a function that builds the data set's row of a problem in an epoch.

    The function raises `PromptTooLongError` for a prompt that leaves no room for a completion in `context` tokens. With
    `context` None, no length is checked.
    """
    grpo, adaptive = plan.recipe.grpo, plan.adaptive

    def row(problem: Problem, epoch: int) -> Row:
        shown, more = team, {}
        if adaptive is not None:
            there = tuple(team.ordinals)
            ordinals = [there[i] for i in adaptive.offer_workers(len(there), plan.recipe.seed, problem.key, epoch)]
            shown = team.restrict_to(ordinals, renumbered=adaptive.reshuffle)
            more = {"offered": ordinals}
        asked = mask_words(problem, team.prompting.unknown_words, f"{plan.recipe.seed} {epoch}")
        messages = shown.build_messages(asked)
        if context is not None:
            check_prompt_length(
                messages, problem, partial(count_chat_tokens, tokenizer), context - grpo.max_completion_tokens
            )
        return {"prompt": escape_messages(tokenizer, messages), "problem": problem.key, "epoch": epoch, **more}

    return row
