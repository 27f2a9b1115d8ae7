"""A Conductor that may read its own answer: accuracy and cost by how many further rounds it is allowed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ops.config import Execution, Prompting, Recursion, Worker
from ops.core.problem import Problem
from ops.core.response import Message
from ops.evaluation.runner import Writer
from ops.evaluation.statistics import MeanEstimate, clustered, mean_of
from ops.grading import grade_many
from ops.workers.types import Client
from ops.workflow.cards import WorkerCard
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.recursion import RecursiveTrace, recurse_many

BATCH = 128


@dataclass(frozen=True)
class Depth:
    """What limits on the rounds give on a set of questions: USD, tokens and calls are means per question."""

    accuracy: MeanEstimate
    calls: float
    tokens: float
    cost_usd: float
    stops: Counter[str]
    unscorable: int


async def in_rounds(
    conductor: Writer,
    problems: Sequence[Problem],
    offered: Sequence[Worker],
    client: Client,
    prompting: Prompting,
    execution: Execution,
    on_progress: Callable[[int, int], None] | None = None,
    *,
    cards: Sequence[WorkerCard] = (),
    temperature: float = 0.0,
    seed: int = 0,
) -> list[RecursiveTrace]:
    """Every problem in as many rounds as `execution.recursion` allows; raises `OverBudget` and `ConfigError`.

    A recursive prompt that is too long for the policy counts as a round without a workflow: the answer stands.
    """
    found: list[RecursiveTrace] = []
    written = 0

    async def write(prompts: list[list[Message]]) -> list[str]:
        nonlocal written
        written += 1
        return await asyncio.to_thread(_write, conductor, prompts, temperature, seed + written)

    for start in range(0, len(problems), BATCH):
        batch = problems[start : start + BATCH]
        found += await recurse_many(batch, write, offered, client, prompting, settings=execution, cards=cards)
        if on_progress is not None:
            on_progress(len(found), len(problems))
    return found


def _write(conductor: Writer, prompts: list[list[Message]], temperature: float, seed: int) -> list[str]:
    texts, fitting = [""] * len(prompts), list(range(len(prompts)))
    while fitting:
        try:
            found = conductor.write([prompts[i] for i in fitting], temperature=temperature, seed=seed)
        except PromptTooLongError as error:
            fitting.pop(error.index)
            continue
        for i, text in zip(fitting, found, strict=True):
            texts[i] = text
        break
    return texts


def under(traces: Sequence[RecursiveTrace], problems: Sequence[Problem], limits: Recursion) -> Depth:
    """The same conversations, had their rounds been limited like this.

    The accuracy is the mean over benchmarks, as everywhere; unscorable ones are left out of it.
    """
    capped = [trace.under(limits) for trace in traces]
    answered = [i for i, trace in enumerate(capped) if trace.answer is not None and not trace.unscorable]
    grades = dict(zip(answered, grade_many([(problems[i], capped[i].answer or "") for i in answered]), strict=True))
    by_benchmark: dict[str, list[list[float]]] = {}
    for i, (trace, problem) in enumerate(zip(capped, problems, strict=True)):
        if not trace.unscorable:
            right = i in grades and grades[i].correct
            by_benchmark.setdefault(problem.benchmark, []).append([float(right)])
    count = max(1, len(capped))
    return Depth(
        accuracy=mean_of([clustered(questions) for questions in by_benchmark.values()]),
        calls=sum(trace.calls for trace in capped) / count,
        tokens=sum(trace.tokens for trace in capped) / count,
        cost_usd=sum(trace.cost_usd for trace in capped) / count,
        stops=Counter(trace.stop for trace in capped),
        unscorable=sum(trace.unscorable for trace in capped),
    )
