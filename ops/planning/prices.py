"""What one call, and one workflow's step, of a pool's workers costs and takes, as ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.registry import BENCHMARKS
from ops.config import Setup, Worker
from ops.core.rows import ResponseRow
from ops.planning.lengths import Lengths
from ops.precaching.estimate import SUBTASK_TOKENS, MeanTokens, measured_usage, usual_answer
from ops.workers.providers import worst_price

FORMAT_TOKENS = 20
"""Of the sentence that asks for a form of answer, beside the question."""
SPEED = (100.0, 50.0, 25.0)
"""Tokens a second of a language model that was never measured: fast, as expected, slow."""
FIRST_TOKEN_S = 1.0


class Span(NamedTuple):
    """A figure between its low and its high end."""

    low: float
    expected: float
    high: float

    def plus(self, other: Span) -> Span:
        """Both together."""
        return Span(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, other: Span | float) -> Span:
        """End by end."""
        factors = other if isinstance(other, Span) else (other, other, other)
        return Span(*(mine * theirs for mine, theirs in zip(self, factors, strict=True)))

    @classmethod
    def of(cls, value: float) -> Span:
        """A figure that is known."""
        return cls(value, value, value)


NOTHING = Span.of(0.0)


class Call(NamedTuple):
    """One call of one worker."""

    prompt: Span
    """Tokens."""
    answer: Span
    latency_s: Span
    input_usd: float
    """Of a token."""
    output_usd: float

    @property
    def usd(self) -> Span:
        return self.prompt.times(self.input_usd).plus(self.answer.times(self.output_usd))

    @property
    def tokens(self) -> Span:
        return self.prompt.plus(self.answer)


class Prices:
    """What a call of a pool's workers costs and takes: as measured of a worker on the benchmark, else as usual."""

    def __init__(self, setup: Setup, known: Lengths, rows: Iterable[ResponseRow] = ()) -> None:
        """`rows`: what these workers were measured by; of another pool's nothing is known."""
        self._setup, self._known, rows = setup, known, list(rows)
        self.workers = setup.pool.workers
        self._usage: Mapping[tuple[str, str], MeanTokens] = measured_usage(rows)
        seconds: dict[str, list[float]] = {}
        for row in rows:
            if row.status == "ok":
                seconds.setdefault(row.worker, []).append(row.response.latency_s)
        self._seconds = {worker: fmean(values) for worker, values in seconds.items()}
        self._price = {worker.name: worst_price(worker, setup.pool_file) for worker in self.workers}

    def call(self, worker: Worker, benchmark: str) -> Call:
        """One answer of a worker that sees the question alone."""
        usage = self._usage.get((worker.name, benchmark)) or self._usage.get((worker.name, ""))
        if usage is not None:
            prompt, answer = Span.of(usage.prompt_tokens), Span.of(usage.completion_tokens)
        else:
            usual = usual_answer(worker, BENCHMARKS[benchmark].grader)
            prompt = Span.of(self._known.question + FORMAT_TOKENS)
            answer = Span(*(min(part * usual, worker.max_tokens) for part in (0.5, 1.0, 2.0)))
        return Call(prompt, answer, self._latency(worker, answer), *self._price[worker.name])

    def workflow(self, benchmark: str, *, again: bool = False) -> tuple[Span, dict[str, Call]]:
        """(steps, worker's name → the mean call of a step): any worker alike.

        Low: one step. High: (1 + max_steps) / 2 steps, each of which sees all before it. Expected: as many, and half
        of what they could see. `again`: of a later round, where a step could also see the answer of the one before.
        """
        most = (1 + self._setup.recipe.prompting.max_steps) / 2
        alone = {worker.name: self.call(worker, benchmark) for worker in self.workers}
        said = reduce(Span.plus, (call.answer for call in alone.values())).times(1 / len(alone))
        seen = (most - 1) / 2  # of a step, in the mean: most choose 2 of most
        seen += again
        context = said.plus(Span.of(SUBTASK_TOKENS)).times(Span(0.0, seen / 2, seen))
        wider = context.plus(Span.of(SUBTASK_TOKENS))
        return Span(1.0, most, most), {
            name: call._replace(prompt=call.prompt.plus(wider)) for name, call in alone.items()
        }

    def _latency(self, worker: Worker, answer: Span) -> Span:
        if worker.latency_s is not None:
            return NOTHING  # a tool, which answers at once
        if worker.name in self._seconds:
            return Span.of(self._seconds[worker.name])
        return Span(*(FIRST_TOKEN_S + tokens / speed for tokens, speed in zip(answer, SPEED, strict=True)))
