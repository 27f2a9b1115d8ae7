"""The one estimator of worker calls: how many tokens a call takes, what it costs, and how long the calls take.

A call's expected tokens are those measured of its worker on the benchmark; else of that worker at all; else its answer
is as long as the answers of the pool's other workers of its kind; else as long as such workers' usual answers
(`usual_answer`). Where the prompts are at hand (`Ask`), the high end of a range is what the client reserves: every
answer as long as `max_tokens`. Where only their number is known (`Prices.call`), answers are up to twice as long as
expected of a worker that was never measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.registry import BENCHMARKS
from ops.cache import ResponseCache, cache_key
from ops.config import Worker
from ops.core.errors import OverBudget
from ops.core.problem import Problem
from ops.core.response import Message, Sample
from ops.core.rows import ResponseRow
from ops.precaching.precache import solo_messages
from ops.spending.ledger import Ledger
from ops.workers.providers import most_tokens, worst_price

CHARACTERS_PER_TOKEN = 4.0
"""Of English text, roughly, for the workers whose tokens were never counted."""
TOOL_TOKENS = 19.0
"""Of a tool's answer: a value, a formula or a few lines of a program; the mean of the quickstart's 10,800 answers."""
ANSWER_TOKENS = {"choice": 300.0}
"""Of a language model's answer to one question, by grader; `OTHER_TOKENS` where none is named.

From arXiv:2512.04388, constrained workers: a router that asks one worker once takes 840 tokens a question in the mean
of the four training tasks, prompt included, so about 700 for the answer; on MMLU a workflow takes 735 tokens where it
takes 1,820 in the mean, so an answer there 0.4 of 700, and elsewhere (4 × 700 - 300) / 3.
"""
OTHER_TOKENS = 830.0
THINKING_TOKENS = 2000.0
"""Before the answer, of a worker that thinks without a stated limit: our assumption, until responses are measured."""
SUBTASK_TOKENS = 25
"""Of a subtask: a sentence or two, which its own worker reads and every later step that sees it."""
FORMAT_TOKENS = 20
"""Of the sentence that asks for a form of answer, beside the question."""
SPEED = (100.0, 50.0, 25.0)
"""Tokens a second of a language model that was never measured: fast, as expected, slow."""
FIRST_TOKEN_S = 1.0
_PURPOSES = ("serving", "training", "evaluation", "baseline", "precache")
"""Purposes of the ledger's calls; a later one tells more about a worker that is asked alone."""


class Range(NamedTuple):
    """A figure (calls, tokens, USD, seconds) between its low and its high end."""

    low: float
    expected: float
    high: float

    def plus(self, other: Range) -> Range:
        """The sum, end by end."""
        return Range(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def times(self, other: Range | float) -> Range:
        """The product, end by end."""
        low, expected, high = other if isinstance(other, Range) else (other, other, other)
        return Range(self.low * low, self.expected * expected, self.high * high)

    @classmethod
    def of(cls, value: float) -> Range:
        """A figure that is known."""
        return cls(value, value, value)

    @classmethod
    def longest(cls, *ranges: Range) -> Range:
        """The largest, end by end: of what happens side by side."""
        return cls(*map(max, zip(*ranges, strict=True)))


NOTHING = Range.of(0.0)


# ── what was measured ────────────────────────────────────────────────────────────


class MeanTokens(NamedTuple):
    """Mean tokens per call."""

    prompt_tokens: float
    completion_tokens: float


@dataclass(frozen=True)
class Measured:
    """What the workers' calls were measured to take."""

    tokens: Mapping[tuple[str, str], MeanTokens] = field(default_factory=dict)
    """By worker and benchmark; benchmark "": over all of them."""
    latency_s: Mapping[str, float] = field(default_factory=dict)
    """By worker, the mean."""

    @classmethod
    def of(cls, rows: Iterable[ResponseRow], ledger: Ledger | None = None) -> Measured:
        """From precached `rows`, and a ledger, which also has calls whose table was never finished and calls of other
        purposes."""
        tokens: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        seconds: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row.status == "ok":
                seconds[row.worker].append(row.response.latency_s)
                for benchmark in (row.benchmark, ""):
                    tokens[row.worker, benchmark].append((row.response.prompt_tokens, row.response.completion_tokens))
        means = {key: MeanTokens(*map(fmean, zip(*counts, strict=True))) for key, counts in tokens.items()}
        for purpose in _PURPOSES if ledger is not None else ():
            assert ledger is not None
            means |= {(worker, ""): MeanTokens(*each) for worker, each in ledger.mean_tokens(purpose).items()}
        return cls(means, {worker: fmean(values) for worker, values in seconds.items()})


def usual_answer(worker: Worker, grader: str = "") -> float:
    """Tokens that a worker of this kind answers a question with, its thinking included, where none was measured."""
    if "tool" in worker.tags:
        return TOOL_TOKENS
    answer = ANSWER_TOKENS.get(grader, OTHER_TOKENS)
    if worker.thinking_budget is not None:
        return answer + min(worker.thinking_budget, THINKING_TOKENS)
    if worker.reasoning_effort is not None:
        return answer + (0 if worker.reasoning_effort in ("none", "minimal") else THINKING_TOKENS)
    return answer + (THINKING_TOKENS if "reasoning" in worker.tags else 0)


# ── one call ─────────────────────────────────────────────────────────────────────


class Ask(NamedTuple):
    """One call to come, whose prompt is at hand."""

    worker: Worker
    benchmark: str
    messages: Sequence[Message]
    sample: int | Sample = 0
    grader: str = ""
    """Who grades the answer ("choice", "math" …), which says how long it is; "" where it is not graded."""


def precache_asks(problems: Iterable[Problem], workers: Sequence[Worker], samples: int) -> Iterator[Ask]:
    """What precaching asks: every worker every problem, `samples` times."""
    for problem in problems:
        messages = solo_messages(problem)
        for worker in workers:
            for sample in range(samples):
                yield Ask(worker, problem.benchmark, messages, sample, problem.grader)


class Call(NamedTuple):
    """One call of one worker."""

    prompt: Range
    """Tokens."""
    answer: Range
    latency_s: Range
    input_usd: float
    """Of a token."""
    output_usd: float
    basis: str = ""
    """What the answer's length follows from: "measured", "alike" (other workers' answers) or "" (usual answers)."""

    @property
    def usd(self) -> Range:
        return self.prompt.times(self.input_usd).plus(self.answer.times(self.output_usd))

    @property
    def tokens(self) -> Range:
        return self.prompt.plus(self.answer)


class Prices:
    """What a call of a pool's workers costs and takes."""

    def __init__(
        self,
        workers: Sequence[Worker],
        measured: Measured | None = None,
        *,
        pool_file: Path | str,
        question: float = 0.0,
    ) -> None:
        """`measured`: of these workers; of another pool's nothing is known. `question`: tokens of a question, in the
        mean, where the prompt is not at hand."""
        self.workers, self._measured, self._question = workers, measured or Measured(), question
        self._file, self._of_worker = pool_file, {worker.name: worker for worker in workers}
        self._price: dict[str, tuple[float, float]] = {}
        alike: dict[tuple[str, str], list[float]] = defaultdict(list)
        for (name, benchmark), mean in self._measured.tokens.items():
            if name in self._of_worker:
                alike[_kind(self._of_worker[name]), benchmark].append(mean.completion_tokens)
        self._alike = {key: fmean(means) for key, means in alike.items()}

    def call(self, worker: Worker, benchmark: str) -> Call:
        """One answer of a worker that sees a question of the benchmark alone. Raises `ConfigError`: no price."""
        usage, answer, basis = self._expected(worker, benchmark, BENCHMARKS[benchmark].grader)
        if usage is not None:
            return self._made(worker, Range.of(usage.prompt_tokens), Range.of(answer), basis)
        answers = Range(*(min(part * answer, worker.max_tokens) for part in (0.5, 1.0, 2.0)))
        return self._made(worker, Range.of(self._question + FORMAT_TOKENS), answers, basis)

    def asked(self, ask: Ask) -> Call:
        """That call; its high end is what the client reserves. Raises `ConfigError`: no price."""
        usage, answer, basis = self._expected(ask.worker, ask.benchmark, ask.grader)
        if usage is not None:
            prompt = usage.prompt_tokens
        else:
            prompt = sum(len(message["content"]) for message in ask.messages) / CHARACTERS_PER_TOKEN
            answer = min(answer, ask.worker.max_tokens)
        most = Range(prompt, prompt, most_tokens(ask.messages)), Range(answer, answer, ask.worker.max_tokens)
        return self._made(ask.worker, *most, basis)

    def _expected(self, worker: Worker, benchmark: str, grader: str) -> tuple[MeanTokens | None, float, str]:
        """(tokens of the worker's own calls, expected tokens of the answer, basis)."""
        tokens = self._measured.tokens
        usage = tokens.get((worker.name, benchmark)) or tokens.get((worker.name, ""))
        if usage is not None:
            return usage, usage.completion_tokens, "measured"
        alike = self._alike.get((_kind(worker), benchmark)) or self._alike.get((_kind(worker), ""))
        return (None, usual_answer(worker, grader), "") if alike is None else (None, alike, "alike")

    def _made(self, worker: Worker, prompt: Range, answer: Range, basis: str) -> Call:
        if worker.name not in self._price:
            self._price[worker.name] = worst_price(worker, self._file)
        return Call(prompt, answer, self._latency(worker, answer), *self._price[worker.name], basis)

    def _latency(self, worker: Worker, answer: Range) -> Range:
        if worker.latency_s is not None:
            return NOTHING  # a tool, which answers at once
        if worker.name in self._measured.latency_s:
            return Range.of(self._measured.latency_s[worker.name])
        return Range(*(FIRST_TOKEN_S + tokens / speed for tokens, speed in zip(answer, SPEED, strict=True)))


def _kind(worker: Worker) -> str:
    """Workers of one kind answer at like length."""
    return next((tag for tag in ("tool", "reasoning") if tag in worker.tags), "")


# ── many calls ───────────────────────────────────────────────────────────────────


@dataclass
class WorkerCost:
    """What one worker is asked, and what that costs."""

    worker: Worker
    calls: Range = NOTHING
    """To be made and paid for."""
    tokens: Range = NOTHING
    usd: Range = NOTHING
    busy_s: Range = NOTHING
    """Of one call at a time."""
    cached: int = 0
    """Calls whose answers are stored, beside `calls`."""
    measured: float = 0
    """Of the expected calls, those whose tokens are those of earlier calls to this worker."""
    alike: float = 0
    """Of them, those whose answers are taken to be as long as those of other workers of its kind."""

    def take(self, call: Call, calls: Range) -> None:
        """Add calls of this kind."""
        self.calls = self.calls.plus(calls)
        self.tokens = self.tokens.plus(call.tokens.times(calls))
        self.usd = self.usd.plus(call.usd.times(calls))
        self.busy_s = self.busy_s.plus(call.latency_s.times(calls))
        self.measured += calls.expected * (call.basis == "measured")
        self.alike += calls.expected * (call.basis == "alike")

    @property
    def waiting_s(self) -> Range:
        """Within the worker's limits: calls in flight, requests and tokens a minute."""
        worker, limits = self.worker, [self.busy_s.times(1 / self.worker.concurrency)]
        if worker.requests_per_minute:
            limits.append(self.calls.times(60 / worker.requests_per_minute))
        if worker.tokens_per_minute:
            limits.append(self.tokens.times(60 / worker.tokens_per_minute))
        return Range.longest(*limits)


class WorkerCosts:
    """What the workers of one or several pools are asked."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, str], WorkerCost] = {}

    def of(self, prices: Prices, worker: Worker) -> WorkerCost:
        """The worker's part, as the pool of these prices has it."""
        return self._of.setdefault((id(prices), worker.name), WorkerCost(worker))

    def sum(self, figure: Callable[[WorkerCost], Range]) -> Range:
        """Of all workers together."""
        return reduce(Range.plus, map(figure, self._of.values()), NOTHING)

    def waiting_s(self) -> dict[str, Range]:
        """Seconds by worker's name: two pools are asked one after the other."""
        waiting: dict[str, Range] = defaultdict(lambda: NOTHING)
        for each in self._of.values():
            waiting[each.worker.name] = waiting[each.worker.name].plus(each.waiting_s)
        return dict(waiting)

    def cost(self, name: str, what: str, *, chain_s: Range = NOTHING) -> Cost:
        """All of it. `chain_s`: seconds that pass however fast the workers are asked."""
        waiting = self.waiting_s()
        slowest = max(waiting, key=lambda worker: waiting[worker].expected, default="")
        longest = Range.longest(chain_s, *waiting.values())
        limited = "a workflow's length" if chain_s.expected >= waiting.get(slowest, NOTHING).expected else slowest
        usd = self.sum(lambda each: each.usd)
        return Cost(
            name,
            what,
            calls=self.sum(lambda each: each.calls),
            tokens=self.sum(lambda each: each.tokens),
            usd=usd,
            worth=usd,
            worker_s=longest,
            limited_by=limited if longest.expected else "",
            workers={each.worker.name: each for each in self._of.values()},
        )


@dataclass(frozen=True)
class Cost:
    """What a set of calls, a stage or a whole run, costs and takes beyond what is stored."""

    name: str = ""
    what: str = ""
    """What it multiplies to, in words."""
    calls: Range = NOTHING
    tokens: Range = NOTHING
    """The workers', prompts and answers."""
    usd: Range = NOTHING
    worth: Range = NOTHING
    """USD of all its responses; those that are asked again are paid for once (`usd`)."""
    worker_s: Range = NOTHING
    """Seconds of waiting for workers, within their limits."""
    limited_by: str = ""
    """What the waiting is made of, as expected: a worker's limits, or a workflow's length; "": no waiting."""
    policy_s: Range | None = None
    """Seconds of writing and updating; None: not known, or nothing to do."""
    conditional: bool = False
    """Whether it depends on what comes before."""
    workers: Mapping[str, WorkerCost] = field(default_factory=dict, compare=False)
    """By name."""

    @property
    def to_make(self) -> int:
        """Calls that are expected to be paid for."""
        return round(self.calls.expected)

    @property
    def cached(self) -> int:
        """Calls whose answers are stored."""
        return sum(each.cached for each in self.workers.values())

    @property
    def measured(self) -> int:
        """Of the calls to make, those whose tokens are those of earlier calls to the same worker."""
        return round(sum(each.measured for each in self.workers.values()))

    @property
    def alike(self) -> int:
        """Of them, those whose answers are taken to be as long as those of other workers of their kind."""
        return round(sum(each.alike for each in self.workers.values()))

    @property
    def basis(self) -> str:
        """What the expected USD follow from."""
        shares = [
            (self.measured, "from measured tokens"),
            (self.alike, "as long as the other workers' answers"),
            (self.to_make - self.measured - self.alike, "from the prompts' lengths and usual answers"),
        ]
        parts = [(count / self.to_make, words) for count, words in shares if count]
        about = ", ".join(words if len(parts) == 1 else f"{part:.0%} {words}" for part, words in parts)
        nothing = "; nothing was measured yet" if not self.measured and not self.alike else ""
        return f"({about}{nothing}; at most: every answer as long as max_tokens)"

    def __str__(self) -> str:
        asked = self.to_make + self.cached
        if not self.to_make:
            return f"{asked:,} calls, all of them cached: nothing to pay"
        return (
            f"{asked:,} calls, {self.cached:,} of them cached: about ${self.usd.expected:,.2f}, "
            f"at most ${self.usd.high:,.2f} {self.basis}"
        )

    def as_rows(self) -> list[dict[str, str | int | float]]:
        """A row per worker, for a table."""
        return [
            {
                "worker": name,
                "calls": round(each.calls.expected) + each.cached,
                "cached": each.cached,
                "expected_usd": round(each.usd.expected, 6),
                "worst_usd": round(each.usd.high, 6),
                "measured": round(each.measured),
            }
            for name, each in self.workers.items()
        ]


def total(parts: Iterable[Cost], name: str = "whole run", what: str = "") -> Cost:
    """All parts, one after another."""
    every = list(parts)
    policy = [part.policy_s for part in every if part.policy_s]

    def added(figure: Callable[[Cost], Range]) -> Range:
        return reduce(Range.plus, map(figure, every), NOTHING)

    return Cost(
        name,
        what,
        calls=added(lambda part: part.calls),
        tokens=added(lambda part: part.tokens),
        usd=added(lambda part: part.usd),
        worth=added(lambda part: part.worth),
        worker_s=added(lambda part: part.worker_s),
        policy_s=reduce(Range.plus, policy) if policy else None,
    )


def estimate(asks: Iterable[Ask], cache: ResponseCache, prices: Prices, name: str = "", what: str = "") -> Cost:
    """Count and price the calls that the cache does not answer. Raises `ConfigError` for a worker without a price."""
    todo, costs = list(asks), WorkerCosts()
    for ask, stored in zip(todo, cached(todo, cache), strict=True):
        of_worker = costs.of(prices, ask.worker)
        if stored:
            of_worker.cached += 1
        else:
            of_worker.take(prices.asked(ask), Range.of(1))
    return costs.cost(name, what)


def cached(asks: Sequence[Ask], cache: ResponseCache) -> list[bool]:
    """Of each call, whether the cache answers it."""
    keys = [cache_key(ask.worker.identity, ask.messages, ask.sample) for ask in asks]
    held = cache.holds(keys)
    return [key in held for key in keys]


def stopped(error: OverBudget, rest: Cost) -> OverBudget:
    """The error of a run that met its cap, saying what is done and what the rest would cost.

    `rest` is the estimate of *all* calls of the run, made after it stopped: what was answered is cached by then.
    """
    return OverBudget(
        f"stopped at the cap: {rest.cached:,} of {rest.to_make + rest.cached:,} calls are done and stay cached; "
        f"the other {rest.to_make:,} would cost about ${rest.usd.expected:,.2f}, at most ${rest.usd.high:,.2f} "
        f"{rest.basis}. Run the same command again to go on where it stopped ({error})"
    )
