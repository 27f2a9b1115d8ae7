"""One Conductor on one set of problems: write workflows, execute them, grade, keep every row."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ops.config import Evaluation
from ops.core.problem import Problem
from ops.core.response import Message
from ops.evaluation.rows import NO_WORKFLOW, ScoreRow, Usage
from ops.evaluation.statistics import MeanEstimate, clustered
from ops.workflow.prompt import PromptTooLongError
from ops.workflow.scheduler import Scheduler
from ops.workflow.strategy import pattern, shape
from ops.workflow.team import Team
from ops.workflow.trace import Trace

if TYPE_CHECKING:
    from ops.conductor.rollout import Rollout

AHEAD = 4
"""Batches that workers may be busy with while the next is written: a fast writer waits for them."""


class Writer(Protocol):
    """Anything that writes completions: `ops.conductor.policy.Conductor`, or a fixed text in a test."""

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        temperature: float = ...,
        seed: int = ...,
    ) -> list[str]:
        """One completion per prompt, in order."""
        ...


@dataclass(frozen=True)
class Summary:
    """What one system did on one benchmark.

    Tokens, USD, seconds and steps are means per scored question; shares are in [0, 1].
    """

    benchmark: str
    accuracy: MeanEstimate
    rows: int
    unscorable: int
    tokens: float
    cost_usd: float
    latency_s: float
    steps: float
    format_compliance: float
    multi_worker_share: float
    """Share of well-formed workflows in which more than one distinct worker was run."""
    shapes: dict[str, int] = field(default_factory=dict)
    """Strategy → well-formed workflows that followed it."""
    patterns: dict[str, int] = field(default_factory=dict)
    """Pattern (who sees whom, without the wording) → well-formed workflows of it."""


async def evaluate(
    conductor: Writer,
    problems: Sequence[Problem],
    team: Team,
    settings: Evaluation,
    *,
    seed: int = 0,
    on_rollouts: Callable[[Sequence[Rollout], Sequence[Problem]], None] | None = None,
) -> list[ScoreRow]:
    """Let the conductor answer every problem `settings.repeats` times; rows by problem, then by repeat.

    The next batch is written (in a thread) while the workers execute the last ones.
    `on_rollouts` receives the result of each batch. Raises `OverBudget`
    and `ConfigError` as the client does, `PromptTooLongError` naming the problem; rows of unreachable workers are
    unscorable.
    """
    from ops.conductor.rollout import roll_out

    rows: list[ScoreRow] = []
    running: list[asyncio.Task[None]] = []
    scheduler = Scheduler()

    async def execute(texts: list[str], chosen: Sequence[Problem], repeat: int) -> None:
        rollouts = await roll_out(texts, chosen, team, sample=repeat, scheduler=scheduler)
        if on_rollouts is not None:
            on_rollouts(rollouts, chosen)
        rows.extend(row_of(rollout, problem, repeat) for rollout, problem in zip(rollouts, chosen, strict=True))

    try:
        for repeat, chosen in _batches(problems, settings):
            await _fewer_than(AHEAD, running)
            prompts = [team.messages(problem) for problem in chosen]
            write = partial(conductor.write, prompts, temperature=settings.temperature, seed=seed + repeat)
            try:
                texts = await asyncio.to_thread(write)
            except PromptTooLongError as error:
                raise PromptTooLongError.of(chosen[error.index], error.tokens, error.limit) from None
            _raise_first(running)
            running.append(asyncio.create_task(execute(texts, chosen, repeat)))
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    place = {problem.key: i for i, problem in enumerate(problems)}
    return sorted(rows, key=lambda row: (place[row.problem_key], row.repeat))


def _batches(problems: Sequence[Problem], settings: Evaluation) -> Iterator[tuple[int, Sequence[Problem]]]:
    for repeat in range(settings.repeats):
        for start in range(0, len(problems), settings.batch):
            yield repeat, problems[start : start + settings.batch]


async def _fewer_than(most: int, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait until fewer of them are still at work."""
    busy = {task for task in tasks if not task.done()}
    while len(busy) >= most:
        _, busy = await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)


def _raise_first(tasks: Iterable[asyncio.Task[None]]) -> None:
    # A spent budget should stop the writing at once, not after the last batch.
    for task in tasks:
        if task.done():
            task.result()


def row_of(rollout: Rollout, problem: Problem, repeat: int) -> ScoreRow:
    """The row of one executed completion."""
    trace, workflow = rollout.trace, rollout.parsed.workflow
    return ScoreRow(
        benchmark=problem.benchmark,
        problem_id=problem.id,
        repeat=repeat,
        domain=problem.domain,
        correct=int(rollout.outcome == "right"),
        format_ok=workflow is not None,
        failure=str(rollout.parsed.failure or ""),
        status=trace.status if trace else NO_WORKFLOW,
        steps=len(workflow.steps) if workflow else 0,
        workers=tuple(step.worker for step in trace.steps if step.is_paid) if trace else (),
        tokens=trace.tokens if trace else 0,
        cost_usd=trace.cost_usd if trace else 0.0,
        latency_s=trace.latency_s if trace else 0.0,
        completion=rollout.text,
        answer=(trace.answer or "") if trace else "",
        unscorable=rollout.outcome == "unscorable",
        shape=shape(workflow) if workflow else "",
        pattern=pattern(workflow) if workflow else "",
        usage=usage_of(trace) if trace else (),
        trace=trace.id if trace else "",
    )


def usage_of(trace: Trace) -> tuple[Usage, ...]:
    """What each response took, in the order of the steps."""
    answered = ((step.worker, step.response) for step in trace.steps if step.is_paid)
    return tuple(Usage(worker, said.prompt_tokens, said.completion_tokens) for worker, said in answered)


def summarize(rows: Iterable[ScoreRow]) -> dict[str, Summary]:
    """One `Summary` per benchmark, in order of first appearance; unscorable rows count but enter no mean."""
    by_benchmark: dict[str, list[ScoreRow]] = defaultdict(list)
    for row in rows:
        by_benchmark[row.benchmark].append(row)
    return {benchmark: _summary(benchmark, group) for benchmark, group in by_benchmark.items()}


def _summary(benchmark: str, rows: list[ScoreRow]) -> Summary:
    scored = [row for row in rows if not row.unscorable]
    written = [row for row in rows if row.format_ok]
    questions: dict[str, list[float]] = defaultdict(list)
    for row in scored:
        questions[row.problem_id].append(row.correct)
    return Summary(
        benchmark=benchmark,
        accuracy=clustered(list(questions.values())),
        rows=len(rows),
        unscorable=len(rows) - len(scored),
        tokens=_mean([row.tokens for row in scored]),
        cost_usd=_mean([row.cost_usd for row in scored]),
        latency_s=_mean([row.latency_s for row in scored]),
        steps=_mean([row.steps for row in written]),
        format_compliance=_mean([row.format_ok for row in rows]),
        multi_worker_share=_mean([len(set(row.workers)) > 1 for row in written]),
        shapes=dict(Counter(row.shape for row in written if row.shape)),
        patterns=dict(Counter(row.pattern for row in written if row.pattern)),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
