"""The base policy: a pretrained model as it is, or a small one taught the grammar by supervision.

What belongs here: making the policy that GRPO starts from. `make_base_policy` keys its
folder by everything that went in, so what is made already is not made again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.benchmarks.store import read_problems
from ops.config import ColdStart, Pool, PretrainedPolicy, Recipe, ScratchPolicy, digest
from ops.policy import PolicyCard
from ops.problem import Problem
from ops.training.sampling import Precached, WorkflowSampler, load_subtasks
from ops.workers.precache import load_responses
from ops.workflow.prompt import conductor_messages, load_few_shots, offer
from ops.workspace import Workspace

if TYPE_CHECKING:
    from ops.training.supervised import Example

Progress = Callable[[int, int, str], None]
TOKENIZER_EXAMPLES = 4000


def base_policy_folder(workspace: Workspace, recipe: Recipe, pool: Pool) -> Path:
    """Where the base policy of these inputs lies or will lie."""
    mix = workspace.data / "training_mix.jsonl"
    key = digest([
        recipe.model_dump(include={"seed", "policy", "cold_start", "prompting"}),
        pool.fingerprint,
        [worker.name for worker in offer(pool, _offer_seed(recipe))],
        hashlib.sha256(mix.read_bytes()).hexdigest() if recipe.cold_start else None,
    ])  # fmt: skip
    return workspace.policies / f"{recipe.name}-{key}"


def _offer_seed(recipe: Recipe) -> int | None:
    return recipe.seed if recipe.prompting.shuffle_ordinals else None


def make_base_policy(
    workspace: Workspace, recipe: Recipe, pool: Pool, on_progress: Progress | None = None
) -> Path:
    """The folder of the base policy, made now unless it exists. `on_progress(step, steps, note)`.

    Raises `DataError` where the mix or the responses are missing.
    """
    folder = base_policy_folder(workspace, recipe, pool)
    if (folder / "podium.json").is_file():
        return folder
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    card = PolicyCard(
        recipe=recipe.name,
        pool=pool,
        offered=tuple(worker.name for worker in offer(pool, _offer_seed(recipe))),
        prompting=recipe.prompting,
        max_completion_tokens=recipe.grpo.max_completion_tokens,
        pretrained=recipe.policy if isinstance(recipe.policy, PretrainedPolicy) else None,
    )
    if recipe.cold_start is not None:
        card = _teach(workspace, recipe, card, recipe.cold_start, partial, on_progress)
    card.write(partial)
    partial.rename(folder)
    return folder


def _teach(
    workspace: Workspace,
    recipe: Recipe,
    card: PolicyCard,
    settings: ColdStart,
    folder: Path,
    on_progress: Progress | None,
) -> PolicyCard:
    from ops.policy import load_model
    from ops.training.supervised import fit, scratch_model

    problems = read_problems(workspace.data / "training_mix.jsonl")
    examples = sample_examples(workspace, recipe, card, problems, settings.steps * settings.batch)
    if isinstance(recipe.policy, ScratchPolicy):
        model, tokenizer = scratch_model(recipe.policy, examples[:TOKENIZER_EXAMPLES], recipe.seed)
    else:
        model, tokenizer = load_model(folder, card)
    losses = fit(model, tokenizer, examples, settings, recipe.seed, folder / "trainer", on_progress)
    shutil.rmtree(folder / "trainer", ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "cold_start.json").write_text(json.dumps({"loss": losses}), encoding="utf-8")
    return card.model_copy(update={"pretrained": None})


def sample_examples(
    workspace: Workspace, recipe: Recipe, card: PolicyCard, problems: Sequence[Problem], count: int
) -> list[Example]:
    """`count` (prompt, workflow) pairs for the problems of the mix, deterministic in the recipe's seed."""
    assert recipe.cold_start is not None
    wanted = {problem.id for problem in problems}
    responses = [
        Precached(row.worker, row.problem_id, row.text, row.score >= 1.0)
        for row in load_responses(workspace.data / "responses")
        if row.problem_id in wanted and row.sample == 0
    ]
    sampler = WorkflowSampler(
        card.offered,
        responses,
        load_subtasks(workspace.root / "data" / "cold_start" / "subtasks.yaml"),
        success_share=recipe.cold_start.success_share,
        max_steps=recipe.prompting.max_steps,
        seed=recipe.seed,
    )
    shots = load_few_shots(workspace.root / "data", recipe.prompting.few_shots)
    prompts: dict[str, Any] = {}
    examples: list[Example] = []
    for problem, workflow in itertools.islice(sampler.stream(problems), count):
        if problem.id not in prompts:
            prompts[problem.id] = conductor_messages(problem, len(card.offered), recipe.prompting, shots)
        answer = {"role": "assistant", "content": workflow.render()}
        examples.append({"prompt": prompts[problem.id], "completion": [answer]})
    return examples
