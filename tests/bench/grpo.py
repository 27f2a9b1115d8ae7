"""A GRPO step of Podium relative to a step of bare TRL, and the additional time for slow workers.

`python -m tests.bench.grpo [STEPS]` prints steps per hour and reward by `grpo.staleness`, with workers that take longer
than a step: synthetic problems, the same number of rollouts for each.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

from ops.config import ColdStart, Worker, load_pool, load_recipe
from ops.core.messages import Message
from ops.core.response import Response
from ops.core.workspace import Workspace
from tests.bench.row import Row, sized

STEPS = sized(6, 2)
"""Steps of each side; the first is left out because it allocates memory."""
LATENCY = 0.3
"""Latency of every worker call in seconds, in the rows on slow workers."""


class Slow:
    """A client whose workers take `latency` seconds each, cached or not."""

    def __init__(self, client: Any, latency: float) -> None:
        self._client, self._latency = client, latency

    async def complete(self, worker: Worker, messages: Sequence[Message], *, sample: int = 0, **_: object) -> Response:
        began = time.perf_counter()
        response: Response = await self._client.complete(worker, messages, sample=sample)
        await asyncio.sleep(max(0.0, began + self._latency - time.perf_counter()))
        return response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def rows() -> list[Row]:
    """Measure Podium's second run, in which every response is cached; the reward of bare TRL is a constant.

    The learning rate is close to zero, so that all sides sample the same completions.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = _plan(folder)
        _curve(plan, folder / "cold")
        warm = _seconds(_curve(plan, folder / "warm")[1:])
        bare = _bare(plan, folder / "bare")
        with _slow(LATENCY):
            waits = _curve(plan, folder / "waits")[1:]
            overlaps = _curve(plan, folder / "overlaps", staleness=1)[1:]
    words = f"workers of {1000 * LATENCY:.0f} ms"
    shares = [sum(row["seconds/workers"] for row in side) / sum(row["seconds"] for row in side)
              for side in (overlaps, waits)]  # fmt: skip
    return [
        Row("GRPO step, warm workers", warm, "bare TRL", bare, 0.9, "s"),
        Row(f"GRPO step, {words}, staleness 1", _seconds(overlaps), "staleness 0", _seconds(waits), 1.0, "s"),
        Row(f"of a step waiting, {words}, staleness 1", shares[0], "staleness 0", shares[1], 0.5, "share"),
    ]


def staleness(steps: int) -> None:
    """Print steps per hour, the share of time spent waiting, and the reward in the first and last quarter of `steps`.

    A worker answers after twice the seconds of a step without slow workers. The first run, which is left out, fills
    the cache.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = _plan(folder)
        learning = {"steps": steps, "learning_rate": 3.0e-4}
        latency = 2 * _seconds(_curve(plan, folder / "cold", **learning))
        print(f"a worker answers after {latency:.2f} s; {steps} steps of {plan.recipe.grpo.rollouts_per_step} rollouts")
        print("| staleness | steps an hour | of it waiting | reward, first quarter | last quarter |")
        print("| --- | --- | --- | --- | --- |")
        for updates in (0, 1, 2, 4):
            with _slow(latency):
                curve = _curve(plan, folder / f"staleness-{updates}", **learning, staleness=updates)
            seconds = sum(row["seconds"] for row in curve)
            waiting = sum(row["seconds/workers"] for row in curve) / seconds
            quarters = (curve[: steps // 4], curve[-(steps // 4) :])
            first, last = (f"{fmean(row['reward'] for row in part):.3f}" for part in quarters)
            print(f"| {updates} | {3600 * steps / seconds:.0f} | {waiting:.0%} | {first} | {last} |", flush=True)


def _curve(plan: Any, folder: Path, **grpo: Any) -> list[dict[str, Any]]:
    """Run GRPO in `folder` with these settings and return its steps."""
    from ops.training.grpo import trainer
    from ops.training.run.training_run import read_curve

    folder.mkdir()
    changed = plan.recipe.grpo.model_copy(update=grpo)
    own = plan.model_copy(update={"recipe": plan.recipe.model_copy(update={"grpo": changed})})
    trainer.run_training(own, folder, lambda *_: None)
    return read_curve(folder)


def _slow(latency: float) -> Any:
    """Return a context in which workers take `latency` seconds."""
    from ops.precaching.client_setup import open_client
    from ops.training.grpo import trainer

    return patch.object(trainer, "open_client", lambda *given: Slow(open_client(*given), latency))


def _seconds(curve: Sequence[dict[str, Any]]) -> float:
    return median(row["seconds"] for row in curve)


def _bare(plan: Any, folder: Path) -> float:
    """Return the seconds of a step of TRL's own trainer on the same questions."""
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    from ops.benchmarks.problem_files import read_problems
    from ops.conductor.policy import PolicyCard, load_model
    from ops.training.grpo.configuration import build_trl_config
    from ops.training.grpo.dataset import build_dataset, build_row_maker

    class Timer(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.seconds: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds.append(time.perf_counter() - self.began)

    card = PolicyCard.read(plan.base_policy)
    team = card.build_team(plan.pool, plan.few_shots, plan.recipe.execution)
    model, tokenizer = load_model(plan.base_policy, card)
    timer = Timer()
    GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.5] * len(completions),
        args=build_trl_config(plan, folder),
        train_dataset=build_dataset(plan, read_problems(plan.problems), build_row_maker(plan, team, tokenizer)),
        processing_class=tokenizer,
        callbacks=[timer],
    ).train()
    return median(timer.seconds[1:])


def _plan(folder: Path) -> Any:
    """Return a plan in a separate folder: generated problems and a policy after its cold start."""
    from ops.benchmarks.problem_files import write_problems
    from ops.conductor.policy import PolicyCard
    from ops.synthetic.problems import generate_problems
    from ops.training.cold_start.examples import SftExample
    from ops.training.cold_start.sampling import WorkflowSampler, load_subtasks
    from ops.training.cold_start.supervised import build_scratch_model, fine_tune
    from ops.training.run.training_run import RunPlan
    from ops.workflow.prompt import assign_ordinals, build_conductor_messages

    root = Workspace.find().root
    recipe = load_recipe(root / "config", "quickstart")
    pool = load_pool(root / "config", recipe.pool)
    grpo = recipe.grpo.model_copy(
        update={
            "steps": STEPS,
            "learning_rate": 1e-12,
            "checkpoint_every": 1000,
            "micro_batch": sized(128, 8),
            "questions_per_step": sized(8, 2),
            "rollouts_per_question": sized(16, 4),
        }
    )
    recipe = recipe.model_copy(update={"grpo": grpo})
    problems = [
        p for name in ("math500", "mmlu", "rlpr", "livecodebench") for p in generate_problems(name, "train", 40, 1)
    ]
    offered = tuple(worker.name for worker in assign_ordinals(pool, recipe.seed))
    subtasks = load_subtasks(root / "data" / "cold_start" / "subtasks.yaml")
    sampler = WorkflowSampler(offered, [], subtasks, success_share=0.0, max_steps=5, seed=1)
    settings = ColdStart(steps=sized(60, 5), batch=sized(32, 8), learning_rate=2e-3)
    examples: list[SftExample] = [
        {
            "prompt": build_conductor_messages(problem, len(offered), recipe.prompting, ()),
            "completion": [{"role": "assistant", "content": workflow.render()}],
        }
        for problem, workflow in islice(sampler.sample_endlessly(problems), settings.steps * settings.batch)
    ]
    model, tokenizer = build_scratch_model(recipe.policy, examples, 1)  # type: ignore[arg-type]
    fine_tune(model, tokenizer, examples, settings, 1)
    policy = folder / "policy"
    model.save_pretrained(policy)
    tokenizer.save_pretrained(policy)
    PolicyCard(
        recipe=recipe.name, pool=pool, offered=offered, prompting=recipe.prompting,
        max_completion_tokens=grpo.max_completion_tokens,
    ).write(policy)  # fmt: skip
    (folder / "config" / "pools").mkdir(parents=True)
    write_problems(folder / "mix.jsonl", problems)
    return RunPlan(
        root=folder, recipe=recipe, pool=pool, offered=offered, base_policy=policy,
        problems=folder / "mix.jsonl", few_shots=root / "data",
    )  # fmt: skip


PARTS = (rows,)
"""The measurements of `make bench`."""


if __name__ == "__main__":
    staleness(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
