"""Teaching a trained Conductor what a recursive round is: keep what works, write again where it did not."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from ops.benchmarks.prompts import worker_prompt
from ops.benchmarks.store import read_problems
from ops.conductor.policy import Conductor, chat_tokens, context_tokens, load_model
from ops.conductor.rollout import Rollout, roll_out
from ops.config import ColdStart, Execution, Prompting, Setup, Worker, digest
from ops.core.problem import Problem
from ops.evaluation.runner import Writer
from ops.grading import grade_many
from ops.training.examples import Example
from ops.workers.types import Client
from ops.workflow.cards import WorkerCard
from ops.workflow.carry import carried
from ops.workflow.execution import execute
from ops.workflow.grammar import Workflow
from ops.workflow.prompt import conductor_messages, recursive_messages
from ops.workflow.scheduler import Scheduler
from ops.workflow.trace import Previous

Progress = Callable[[int, int, str], None]
BATCH = 256
SAMPLES = 8
"""Workflows that the policy writes for each problem: some fail and some work on most of those worth learning from."""
SHARES = (0.25, 0.35, 0.4)
"""Of the lessons: first rounds, answers to keep, answers to improve."""
FIT = ColdStart(steps=250, batch=32, learning_rate=5e-4)


@dataclass
class Lessons:
    """What can be taught, by kind; each is drawn with equal chance."""

    first: list[Example] = field(default_factory=list)
    keep: list[Example] = field(default_factory=list)
    again: list[Example] = field(default_factory=list)

    def draw(self, count: int, seed: int) -> list[Example]:
        """`count` lessons in the proportions of `SHARES`; a kind that there is none of is left out."""
        random, kinds = Random(seed), (self.first, self.keep, self.again)
        weights = [share if kind else 0.0 for share, kind in zip(SHARES, kinds, strict=True)]
        return [random.choice(kind) for kind in random.choices(kinds, weights, k=count)]


async def lessons(
    problems: Sequence[Problem],
    conductor: Writer,
    offered: Sequence[Worker],
    client: Client,
    prompting: Prompting,
    execution: Execution,
    on_progress: Progress | None = None,
    *,
    cards: Sequence[WorkerCard] = (),
    samples: int = SAMPLES,
    seed: int = 0,
) -> Lessons:
    """Let the policy write `samples` workflows for each problem and sort what came of them.

    A right answer is to be kept. For a wrong one the lesson is a workflow that was right on the same problem, if it is
    right as well when its steps see the wrong answer. Raises `OverBudget` and `ConfigError`.
    """
    asked = [problem for problem in problems for _ in range(samples)]
    rollouts: list[Rollout] = []
    for start in range(0, len(asked), BATCH):
        chosen = asked[start : start + BATCH]
        prompts = [conductor_messages(problem, len(offered), prompting, (), cards=cards) for problem in chosen]
        texts = await asyncio.to_thread(conductor.write, prompts, temperature=1.0, seed=seed + start)
        rollouts += await roll_out(texts, chosen, offered, client, prompting, settings=execution)
        if on_progress is not None:
            on_progress(len(rollouts), len(asked), "workflows tried")
    by_problem = {problem.key: rollouts[i * samples : (i + 1) * samples] for i, problem in enumerate(problems)}
    found = Lessons()
    for problem in problems:
        _sort(found, problem, by_problem[problem.key], len(offered), prompting, execution, cards)
    pairs = [
        (problem, wrong, right)
        for problem in problems
        for wrong in _distinct(by_problem[problem.key], "wrong")
        for right in _distinct(by_problem[problem.key], "right")
    ]
    found.again = await _improvements(pairs, offered, client, prompting, execution, cards)
    return found


def _distinct(rollouts: Sequence[Rollout], outcome: str) -> list[Rollout]:
    """The answered rollouts of that outcome, one for each workflow."""
    chosen = {
        rollout.trace.workflow: rollout
        for rollout in rollouts
        if rollout.outcome == outcome and rollout.trace is not None and rollout.trace.answer is not None
    }
    return list(chosen.values())


def _sort(
    found: Lessons,
    problem: Problem,
    rollouts: Sequence[Rollout],
    offered: int,
    prompting: Prompting,
    execution: Execution,
    cards: Sequence[WorkerCard],
) -> None:
    for right in _distinct(rollouts, "right"):
        first = conductor_messages(problem, offered, prompting, (), cards=cards)
        found.first.append({"prompt": first, "completion": _said(right.parsed.workflow or Workflow(()))})
        found.keep.append(_lesson(problem, right, Workflow(()), offered, prompting, execution, cards))


async def _improvements(
    pairs: Sequence[tuple[Problem, Rollout, Rollout]],
    offered: Sequence[Worker],
    client: Client,
    prompting: Prompting,
    execution: Execution,
    cards: Sequence[WorkerCard],
) -> list[Example]:
    """A lesson for each pair whose right workflow is right in a recursive round after the wrong one, too."""
    scheduler = Scheduler()

    async def retry(problem: Problem, wrong: Rollout, right: Rollout) -> str | None:
        assert wrong.trace is not None and right.trace is not None
        ending = Previous(wrong.trace.workflow.steps[-1].subtask, wrong.trace.answer or "")
        trace = await execute(
            right.trace.workflow,
            worker_prompt(problem),
            offered,
            client,
            settings=execution,
            scheduler=scheduler,
            previous=ending,
        )
        return trace.answer

    answers = await asyncio.gather(*(retry(*pair) for pair in pairs))
    graded = [(pair, answer) for pair, answer in zip(pairs, answers, strict=True) if answer is not None]
    grades = await asyncio.to_thread(grade_many, [(pair[0], answer) for pair, answer in graded])
    return [
        _lesson(problem, wrong, right.trace.workflow, len(offered), prompting, execution, cards)
        for ((problem, wrong, right), _), grade in zip(graded, grades, strict=True)
        if grade.correct and right.trace is not None
    ]


def _lesson(
    problem: Problem,
    before: Rollout,
    workflow: Workflow,
    offered: int,
    prompting: Prompting,
    execution: Execution,
    cards: Sequence[WorkerCard],
) -> Example:
    assert before.trace is not None
    answer = carried(before.trace.answer or "", execution.recursion.answer_tokens).text
    prompt = recursive_messages(problem, offered, prompting, (), before.text, answer, cards=cards)
    return {"prompt": prompt, "completion": _said(workflow)}


def _said(workflow: Workflow) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": workflow.render()}]


def recursive_policy(
    setup: Setup,
    policy: Path,
    client: Client,
    execution: Execution,
    on_progress: Progress | None = None,
) -> Path:
    """The folder of `policy` after a short fit on recursive rounds, made now unless it exists.

    `execution` is what rounds will be run with. Raises `OverBudget` and `ConfigError`; `DataError` without
    a policy or a mix.
    """
    recipe = setup.recipe
    from ops.training.supervised import fit

    key = digest([policy.parent.name, FIT.model_dump(), SHARES, SAMPLES, execution.model_dump(), recipe.seed])
    folder = setup.workspace.policies / f"{recipe.name}-recursive-{key}"
    if (folder / "podium.json").is_file():
        return folder
    conductor = Conductor.load(policy)
    card = conductor.card
    offered = [card.pool.worker(name) for name in card.offered]
    mix = list(read_problems(setup.workspace.data / "training_mix.jsonl"))
    found = asyncio.run(
        lessons(
            mix,
            conductor,
            offered,
            client,
            card.prompting,
            execution,
            on_progress,
            cards=card.cards,
            seed=recipe.seed,
        )
    )
    model, tokenizer = load_model(policy, card)
    limit = (context_tokens(model) or 10**9) - card.max_completion_tokens
    for kind in (found.first, found.keep, found.again):
        kind[:] = [lesson for lesson in kind if chat_tokens(tokenizer, lesson["prompt"]) <= limit]
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    drawn = found.draw(FIT.steps * FIT.batch, recipe.seed)
    losses = fit(model, tokenizer, drawn, FIT, recipe.seed, partial / "trainer", on_progress)
    shutil.rmtree(partial / "trainer", ignore_errors=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    counts = {"first": len(found.first), "keep": len(found.keep), "again": len(found.again)}
    (partial / "recursive.json").write_text(json.dumps({"lessons": counts, "loss": losses}), encoding="utf-8")
    card.model_copy(update={"execution": execution}).write(partial)
    partial.rename(folder)
    return folder
