"""A GRPO step of ours over a step of bare TRL: same model, same rollouts, workers that take no time."""

from __future__ import annotations

import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from ops.config import ColdStart, load_pool, load_recipe
from ops.core.workspace import Workspace
from tests.bench.row import Row

STEPS = 6
"""The first step of each side is left out: it allocates."""


def rows() -> list[Row]:
    """Ours the second time, so that every response is cached; the reference's reward is a constant.

    The learning rate is next to nothing, so that both sides sample the same completions.
    """
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    from ops.benchmarks.store import read_problems
    from ops.conductor.policy import PolicyCard, load_model
    from ops.training.trainer import configuration, dataset, run

    class Timer(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.seconds: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds.append(time.perf_counter() - self.began)

        @property
        def median(self) -> float:
            return sorted(self.seconds[1:])[len(self.seconds[1:]) // 2]

    with tempfile.TemporaryDirectory() as name:
        plan = _plan(Path(name))
        timers = [Timer(), Timer()]
        for attempt, timer in enumerate(timers):
            run(plan, Path(name) / f"run{attempt}", lambda *_: None, [timer])
        card = PolicyCard.read(plan.base_policy)
        team = card.team(plan.pool, plan.few_shots, plan.recipe.execution)
        model, tokenizer = load_model(plan.base_policy, card)
        bare = Timer()
        GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [0.5] * len(completions),
            args=configuration(plan, Path(name) / "bare"),
            train_dataset=dataset(plan, read_problems(plan.problems), team, tokenizer),
            processing_class=tokenizer,
            callbacks=[bare],
        ).train()
    return [Row("GRPO step, warm workers", timers[1].median, "bare TRL", bare.median, 0.9, "s")]


def _plan(folder: Path) -> Any:
    """A plan in a folder of its own: generated problems and a policy that has just learnt the grammar."""
    from ops.benchmarks.store import write_problems
    from ops.conductor.policy import PolicyCard
    from ops.miniature.problems import generate
    from ops.training.examples import Example
    from ops.training.plan import RunPlan
    from ops.training.sampling import WorkflowSampler, load_subtasks
    from ops.training.supervised import fit, scratch_model
    from ops.workflow.prompt import conductor_messages, offer

    root = Workspace.find().root
    recipe = load_recipe(root / "config", "quickstart")
    pool = load_pool(root / "config", recipe.pool)
    grpo = recipe.grpo.model_copy(update={"steps": STEPS, "learning_rate": 1e-12, "checkpoint_every": 1000})
    recipe = recipe.model_copy(update={"grpo": grpo})
    problems = [p for name in ("math500", "mmlu", "rlpr", "livecodebench") for p in generate(name, "train", 40, 1)]
    offered = tuple(worker.name for worker in offer(pool, recipe.seed))
    subtasks = load_subtasks(root / "data" / "cold_start" / "subtasks.yaml")
    sampler = WorkflowSampler(offered, [], subtasks, success_share=0.0, max_steps=5, seed=1)
    settings = ColdStart(steps=60, batch=32, learning_rate=2e-3)
    examples: list[Example] = [
        {
            "prompt": conductor_messages(problem, len(offered), recipe.prompting, ()),
            "completion": [{"role": "assistant", "content": workflow.render()}],
        }
        for problem, workflow in islice(sampler.stream(problems), settings.steps * settings.batch)
    ]
    model, tokenizer = scratch_model(recipe.policy, examples, 1)  # type: ignore[arg-type]
    fit(model, tokenizer, examples, settings, 1)
    policy = folder / "policy"
    model.save_pretrained(policy)
    tokenizer.save_pretrained(policy)
    PolicyCard(
        recipe=recipe.name, pool=pool, offered=offered, prompting=recipe.prompting,
        max_completion_tokens=grpo.max_completion_tokens,
    ).write(policy)  # fmt: skip
    (folder / "config" / "pools").mkdir(parents=True)
    write_problems(folder / "mix.jsonl", problems)
    for attempt in range(2):
        (folder / f"run{attempt}").mkdir()
    return RunPlan(
        root=folder, recipe=recipe, pool=pool, offered=offered, base_policy=policy,
        problems=folder / "mix.jsonl", few_shots=root / "data",
    )  # fmt: skip
