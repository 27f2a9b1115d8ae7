"""The one estimator of worker calls: how many tokens a call takes, what it costs, and how long the calls take.

The expected tokens of a call come from the first of these sources that exists: the worker's measured mean on the
benchmark; the worker's measured mean over all benchmarks; the mean answer of the pool's other workers of the same kind;
an assumed answer length (`usual_answer`). If the prompts are known (`Ask`), the high end of a range is what the client
reserves: every answer takes `max_tokens`. If only the number of calls is known (`Prices.call`), the high end for an
unmeasured worker is twice the expected answer length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.registry import BENCHMARKS
from ops.config import Price, Worker
from ops.core.errors import OverBudget
from ops.core.messages import Message, Sample
from ops.core.problem import Problem
from ops.core.response_rows import ResponseRow
from ops.core.usage import MeanUsage, Usage
from ops.grading import GRADERS
from ops.precaching.precache import build_solo_messages
from ops.spending.ledger import Ledger
from ops.store import ResponseCache, cache_key
from ops.workers.providers import is_remote, most_tokens, price_of
from ops.workflow.judging import question

CHARACTERS_PER_TOKEN = 4.0
"""Approximate ratio in English text, used for workers without measured token counts."""
TOOL_TOKENS = 19.0
"""Tokens of a tool's answer (a value, a formula or a short program): the mean of the quickstart's 10,800 answers."""
VERDICT = "verdict"
"""In place of a grader: the call asks a judge for its verdict."""
ANSWER_TOKENS = {"choice": 300.0, VERDICT: 12.0}
"""Tokens of a language model's answer to one question, by grader; `OTHER_TOKENS` for every other grader.

Derived from arXiv:2512.04388, constrained workers. A router that calls one worker once takes 840 tokens per question,
prompt included, averaged over the four training tasks: about 700 for the answer. A workflow takes 735 tokens on MMLU
and 1,820 on average, so an MMLU answer takes about 0.4 × 700, and the other answers take (4 × 700 - 300) / 3.
"""
OTHER_TOKENS = 830.0
THINKING_TOKENS = 2000.0
"""Reasoning tokens before the answer, for a worker without a stated limit: an assumption until responses exist."""
EFFORT_TOKENS = {"none": 0.0, "minimal": 0.0, "low": THINKING_TOKENS / 5}
"""The same by a stated `reasoning_effort`; `THINKING_TOKENS` for every other effort."""
SUBTASK_TOKENS = 25
"""Tokens of a subtask (one or two sentences). Its own worker and every later step that sees it read it."""
FORMAT_TOKENS = 20
"""Tokens of the instruction on the answer format that follows the question."""
JUDGING_TOKENS = 250.0
"""Tokens of the instructions to a judge with a rubric of a few sentences: an assumption."""
WORKFLOW_TOKENS = 300.0
"""Tokens of a workflow that a prompted worker writes, with the few sentences before it: an assumption."""
SPEED = (100.0, 50.0, 25.0)
"""Tokens per second of an unmeasured language model: fast, expected, slow."""
FIRST_TOKEN_S = 1.0
CALL_CPU_S = 0.005
"""CPU seconds of a call over a network, nearly all of them LiteLLM's (`make bench`). One process uses one core."""
_PURPOSES = ("serving", "training", "evaluation", "baseline", "precache")
"""Purposes of the ledger's calls, in ascending order of relevance to a worker that answers alone."""


class Range(NamedTuple):
    """A figure (calls, tokens, USD, seconds) between its low and its high end."""

    low: float
    expected: float
    high: float

    def plus(self, other: Range) -> Range:
        """Add low, expected and high ends separately."""
        return Range(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def times(self, other: Range | float) -> Range:
        """Multiply low, expected and high ends separately."""
        low, expected, high = other if isinstance(other, Range) else (other, other, other)
        return Range(self.low * low, self.expected * expected, self.high * high)

    @classmethod
    def of(cls, value: float) -> Range:
        """A range whose three values equal the known `value`."""
        return cls(value, value, value)

    @classmethod
    def longest(cls, *ranges: Range) -> Range:
        """The maximum of each end: the duration of activities that run in parallel."""
        return cls(*map(max, zip(*ranges, strict=True)))


NOTHING = Range.of(0.0)


# ── measurements ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Measured:
    """Measured tokens and latency of the workers' calls."""

    usage: Mapping[tuple[str, str], MeanUsage] = field(default_factory=dict)
    """(worker, benchmark) → mean usage of a call; benchmark "" is the mean over all benchmarks."""
    latency_s: Mapping[str, float] = field(default_factory=dict)
    """Worker → mean latency in seconds."""

    @classmethod
    def of(cls, rows: Iterable[ResponseRow], ledger: Ledger | None = None) -> Measured:
        """Measure precached `rows` and the calls of a ledger.

        The ledger adds calls of other purposes and calls of response tables that were never finished.
        """
        usages: dict[tuple[str, str], list[Usage]] = defaultdict(list)
        seconds: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row.status == "ok":
                seconds[row.worker].append(row.response.latency_s)
                for benchmark in (row.benchmark, ""):
                    usages[row.worker, benchmark].append(row.response.usage)
        means = {key: MeanUsage.of(every) for key, every in usages.items()}
        for purpose in _PURPOSES if ledger is not None else ():
            assert ledger is not None
            means |= {(worker, ""): mean for worker, mean in ledger.mean_usage(purpose).items()}
        return cls(means, {worker: fmean(values) for worker, values in seconds.items()})


def usual_answer(worker: Worker, grader: str = "") -> float:
    """Assumed completion tokens of an unmeasured worker's answer, including its reasoning tokens."""
    if "tool" in worker.tags:
        return TOOL_TOKENS
    answer = ANSWER_TOKENS.get(grader, OTHER_TOKENS)
    if worker.thinking_budget is not None:
        return answer + min(worker.thinking_budget, THINKING_TOKENS)
    if worker.reasoning_effort is not None:
        return answer + EFFORT_TOKENS.get(worker.reasoning_effort, THINKING_TOKENS)
    return answer + (THINKING_TOKENS if "reasoning" in worker.tags else 0)


# ── one call ─────────────────────────────────────────────────────────────────────


class Ask(NamedTuple):
    """A planned call with a known prompt."""

    worker: Worker
    benchmark: str
    messages: Sequence[Message]
    sample: int | Sample = 0
    grader: str = ""
    """Grader of the answer ("choice", "math" …), which determines the assumed length; "": not graded."""
    problem: Problem | None = None
    """The question, whose judge reads the answer."""

    @property
    def key(self) -> str:
        """Return the call's key in the response cache."""
        return cache_key(self.worker.identity, self.messages, self.sample)


def precache_asks(problems: Iterable[Problem], workers: Sequence[Worker], samples: int) -> Iterator[Ask]:
    """Yield the calls of precaching: every worker answers every problem `samples` times."""
    for problem in problems:
        messages = build_solo_messages(problem)
        for worker in workers:
            for sample in range(samples):
                yield Ask(worker, problem.benchmark, messages, sample, problem.grader, problem)


class Call(NamedTuple):
    """Estimated tokens, price and latency of one call to a worker."""

    prompt: Range
    """Tokens of the prompt."""
    answer: Range
    latency_s: Range
    price: Price
    service_tier: str | None = None
    """As the worker's requests name it."""
    parts: MeanUsage = MeanUsage()
    """The expected parts of prompt and answer that have rates of their own."""
    basis: str = ""
    """Source of the answer's length: "measured", "alike" (answers of similar workers) or "" (assumed length)."""

    @property
    def usd(self) -> Range:
        """The high end is the dearest way in which the provider may bill its tokens."""
        tier = self.service_tier or ""
        low, expected = (
            self.price.usd(replace(self.parts, prompt_tokens=prompt, completion_tokens=answer, service_tier=tier))
            for prompt, answer in zip(self.prompt[:2], self.answer[:2], strict=True)
        )
        return Range(low, expected, self.price.most_usd(self.prompt.high, self.answer.high, self.service_tier))

    @property
    def tokens(self) -> Range:
        return self.prompt.plus(self.answer)


class Prices:
    """Estimate the cost and latency of calls to a pool's workers."""

    def __init__(
        self,
        workers: Sequence[Worker],
        measured: Measured | None = None,
        *,
        pool_file: Path | str,
        question: float = 0.0,
        judges: Mapping[str, Worker] | None = None,
    ) -> None:
        """`measured`: measurements of these workers, not of another pool's. `question`: mean tokens of a question, used
        if the prompt is unknown. `judges`: benchmark → the judge that grades each answer to it."""
        self.judges = judges or {}
        self.workers, self._measured, self._question = workers, measured or Measured(), question
        self._file, self._of_worker = pool_file, {worker.name: worker for worker in workers}
        self._price: dict[str, Price] = {}
        alike: dict[tuple[str, str], list[float]] = defaultdict(list)
        for (name, benchmark), mean in self._measured.usage.items():
            if name in self._of_worker:
                alike[_kind(self._of_worker[name]), benchmark].append(mean.completion_tokens)
        self._alike = {key: fmean(means) for key, means in alike.items()}

    def call(self, worker: Worker, benchmark: str) -> Call:
        """Estimate a call in which `worker` answers a question of `benchmark` directly.

        Raises `ConfigError` if the worker has no price.
        """
        usage, answer, basis = self._expected(worker, benchmark, BENCHMARKS[benchmark].grader)
        if usage is not None:
            return self._made(worker, Range.of(usage.prompt_tokens), Range.of(answer), basis, usage)
        answers = Range(*(min(part * answer, worker.max_tokens) for part in (0.5, 1.0, 2.0)))
        return self._made(worker, Range.of(self._question + FORMAT_TOKENS), answers, basis)

    def writing(self, worker: Worker, prompt: float) -> Call:
        """Estimate a call in which `worker` writes a workflow, after a prompt of that many tokens.

        Raises `ConfigError` if the worker has no price.
        """
        said = TOOL_TOKENS if "tool" in worker.tags else WORKFLOW_TOKENS + usual_answer(worker) - OTHER_TOKENS
        answers = Range(*(min(part * said, worker.max_tokens) for part in (0.5, 1.0, 2.0)))
        return self._made(worker, Range.of(prompt), answers, "")

    def judging(self, judge: Worker, answer: Range) -> Call:
        """Estimate a call in which `judge` grades an answer of that many tokens.

        Raises `ConfigError` if the judge has no price.
        """
        said = usual_answer(judge, VERDICT)
        verdicts = Range(*(min(part * said, judge.max_tokens) for part in (0.5, 1.0, 2.0)))
        return self._made(judge, answer.plus(Range.of(self._question + JUDGING_TOKENS)), verdicts, "")

    def asked(self, ask: Ask) -> Call:
        """Estimate the call of `ask`. The high end of the USD is what the client reserves.

        Raises `ConfigError` if the worker has no price.
        """
        usage, answer, basis = self._expected(ask.worker, ask.benchmark, ask.grader)
        if usage is not None:
            prompt = usage.prompt_tokens
        else:
            prompt = sum(len(message["content"]) for message in ask.messages) / CHARACTERS_PER_TOKEN
            answer = min(answer, ask.worker.max_tokens)
        most = Range(prompt, prompt, most_tokens(ask.messages)), Range(answer, answer, ask.worker.max_tokens)
        return self._made(ask.worker, *most, basis, usage)

    def _expected(self, worker: Worker, benchmark: str, grader: str) -> tuple[MeanUsage | None, float, str]:
        """Return (mean usage of the worker's own calls or None, expected tokens of the answer, basis)."""
        measured = self._measured.usage
        usage = measured.get((worker.name, benchmark)) or measured.get((worker.name, ""))
        if usage is not None:
            return usage, usage.completion_tokens, "measured"
        alike = self._alike.get((_kind(worker), benchmark)) or self._alike.get((_kind(worker), ""))
        return (None, usual_answer(worker, grader), "") if alike is None else (None, alike, "alike")

    def _made(
        self, worker: Worker, prompt: Range, answer: Range, basis: str, measured: MeanUsage | None = None
    ) -> Call:
        if worker.name not in self._price:
            self._price[worker.name] = price_of(worker, self._file)
        price, parts = self._price[worker.name], measured or MeanUsage()
        return Call(prompt, answer, self._latency(worker, answer), price, worker.service_tier, parts, basis)

    def _latency(self, worker: Worker, answer: Range) -> Range:
        if worker.latency_s is not None:
            return NOTHING  # a tool's latency is negligible
        if worker.name in self._measured.latency_s:
            return Range.of(self._measured.latency_s[worker.name])
        return Range(*(FIRST_TOKEN_S + tokens / speed for tokens, speed in zip(answer, SPEED, strict=True)))


def _kind(worker: Worker) -> str:
    """Kind of a worker; workers of one kind give answers of similar length."""
    return next((tag for tag in ("tool", "reasoning") if tag in worker.tags), "")


# ── many calls ───────────────────────────────────────────────────────────────────


@dataclass
class WorkerCost:
    """Calls to one worker, with their tokens, USD and seconds."""

    worker: Worker
    calls: Range = NOTHING
    """Calls to make and pay for."""
    tokens: Range = NOTHING
    usd: Range = NOTHING
    busy_s: Range = NOTHING
    """Seconds if the calls run one at a time."""
    cached: int = 0
    """Calls with stored answers, not included in `calls`."""
    measured: float = 0
    """Number of expected calls whose tokens come from measurements of this worker."""
    alike: float = 0
    """Number of expected calls whose answer length comes from other workers of the same kind."""

    def take(self, call: Call, calls: Range) -> None:
        """Add `calls` calls like `call`."""
        self.calls = self.calls.plus(calls)
        self.tokens = self.tokens.plus(call.tokens.times(calls))
        self.usd = self.usd.plus(call.usd.times(calls))
        self.busy_s = self.busy_s.plus(call.latency_s.times(calls))
        self.measured += calls.expected * (call.basis == "measured")
        self.alike += calls.expected * (call.basis == "alike")

    @property
    def waiting_s(self) -> Range:
        """Seconds that the calls take within the worker's limits: concurrency, requests and tokens per minute."""
        worker, limits = self.worker, [self.busy_s.times(1 / self.worker.concurrency)]
        if worker.requests_per_minute:
            limits.append(self.calls.times(60 / worker.requests_per_minute))
        if worker.tokens_per_minute:
            limits.append(self.tokens.times(60 / worker.tokens_per_minute))
        return Range.longest(*limits)

    @property
    def process_s(self) -> Range:
        """CPU seconds of the process that makes the calls; those of a tool in this process are negligible."""
        tool = self.worker.latency_s is not None or not is_remote(self.worker)
        return NOTHING if tool else self.calls.times(CALL_CPU_S)


class WorkerCosts:
    """Calls to the workers of one or several pools."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, str], WorkerCost] = {}

    def of(self, prices: Prices, worker: Worker) -> WorkerCost:
        """The entry of `worker` in the pool of `prices`, created on first use."""
        return self._of.setdefault((id(prices), worker.name), WorkerCost(worker))

    def sum(self, figure: Callable[[WorkerCost], Range]) -> Range:
        """Sum `figure` over all workers."""
        return reduce(Range.plus, map(figure, self._of.values()), NOTHING)

    def waiting_s(self) -> dict[str, Range]:
        """Worker name → seconds of waiting, summed over pools because pools run one after the other."""
        waiting: dict[str, Range] = defaultdict(lambda: NOTHING)
        for each in self._of.values():
            waiting[each.worker.name] = waiting[each.worker.name].plus(each.waiting_s)
        return dict(waiting)

    def judge(self, prices: Prices, benchmark: str, answer: Range, answers: Range) -> Range:
        """Add the calls of the benchmark's judge, if it has one, for `answers` answers like `answer`; return the USD of
        one."""
        if (judge := prices.judges.get(benchmark)) is None:
            return NOTHING
        call = prices.judging(judge, answer)
        self.of(prices, judge).take(call, answers)
        return call.usd

    def cost(self, name: str, what: str, *, chain_s: Range = NOTHING) -> Cost:
        """The total as a `Cost`. `chain_s`: seconds of sequential calls, which worker limits do not change."""
        waiting = self.waiting_s()
        slowest = max(waiting, key=lambda worker: waiting[worker].expected, default="")
        process_s = self.sum(lambda each: each.process_s)
        longest = Range.longest(chain_s, process_s, *waiting.values())
        limited = "a workflow's length" if chain_s.expected >= waiting.get(slowest, NOTHING).expected else slowest
        if process_s.expected > max(chain_s.expected, waiting.get(slowest, NOTHING).expected):
            limited = "the CPU of one process"
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
    """Cost and duration of a set of calls (a stage or a whole run), without the calls whose answers are stored."""

    name: str = ""
    what: str = ""
    """The multiplication behind the number of calls, in words."""
    calls: Range = NOTHING
    tokens: Range = NOTHING
    """Tokens of the workers' prompts and answers."""
    usd: Range = NOTHING
    worth: Range = NOTHING
    """USD of all responses, counting repeated calls each time; `usd` counts a repeated call once."""
    worker_s: Range = NOTHING
    """Seconds of waiting for workers, within their limits."""
    limited_by: str = ""
    """What determines the expected waiting: a worker's limits or the length of a workflow; "": no waiting."""
    policy_s: Range | None = None
    """Seconds of generation and policy updates; None: unknown, or nothing to do."""
    conditional: bool = False
    """Whether the stage depends on the outcome of an earlier stage."""
    workers: Mapping[str, WorkerCost] = field(default_factory=dict, compare=False)
    """Worker name → its part of the cost."""

    @property
    def to_make(self) -> int:
        """Expected number of paid calls."""
        return round(self.calls.expected)

    @property
    def cached(self) -> int:
        """Number of calls with stored answers."""
        return sum(each.cached for each in self.workers.values())

    @property
    def measured(self) -> int:
        """Number of calls to make whose tokens come from measurements of the same worker."""
        return round(sum(each.measured for each in self.workers.values()))

    @property
    def alike(self) -> int:
        """Number of calls to make whose answer length comes from other workers of the same kind."""
        return round(sum(each.alike for each in self.workers.values()))

    @property
    def basis(self) -> str:
        """Describe the basis of the expected USD: the share of calls per source of token counts."""
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
    """Add the costs of `parts` that run one after another."""
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
            call = prices.asked(ask)
            of_worker.take(call, Range.of(1))
            costs.judge(prices, ask.benchmark, call.answer, Range.of(1))
    verdicts = list(_verdicts(todo, cache, prices))
    for ask, stored in zip(verdicts, cached(verdicts, cache), strict=True):
        if stored:
            costs.of(prices, ask.worker).cached += 1
        else:
            costs.of(prices, ask.worker).take(prices.asked(ask), Range.of(1))
    return costs.cost(name, what)


def _verdicts(asks: Iterable[Ask], cache: ResponseCache, prices: Prices) -> Iterator[Ask]:
    """Yield the judges' calls about answers that the cache has: another rubric pays for all of them again."""
    for ask in asks:
        if ask.problem is None or ask.benchmark not in prices.judges:
            continue
        response = cache.get(ask.key)
        if response is not None and (answer := GRADERS[ask.problem.grader].extract_answer(ask.problem, response.text)):
            judge, messages = question(ask.problem, answer)
            yield Ask(judge, ask.benchmark, messages, grader=VERDICT)


def cached(asks: Sequence[Ask], cache: ResponseCache) -> list[bool]:
    """For each call, whether the cache holds its answer."""
    keys = [ask.key for ask in asks]
    held = cache.holds(keys)
    return [key in held for key in keys]


def stopped(error: OverBudget, rest: Cost) -> OverBudget:
    """Make the error of a run that reached its cap, with the calls done and the cost of the remaining calls.

    `rest` is the estimate of *all* calls of the run, made after it stopped; the completed calls are cached by then.
    """
    return OverBudget(
        f"stopped at the cap: {rest.cached:,} of {rest.to_make + rest.cached:,} calls are done and stay cached; "
        f"the other {rest.to_make:,} would cost about ${rest.usd.expected:,.2f}, at most ${rest.usd.high:,.2f} "
        f"{rest.basis}. Run the same command again to go on where it stopped ({error})"
    )
