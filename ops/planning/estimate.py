"""The only estimator of worker calls: how many tokens a call takes, what it costs, and how long the calls take.

The expected tokens of a call come from the first of these sources that exists: the worker's measured mean on the
benchmark; the worker's measured mean over all benchmarks; the mean answer of the pool's other workers of the same kind;
an assumed answer length (`assume_answer_tokens`).

If the prompts are known (`PlannedCall`), the high end of a range is what the client reserves, which assumes that every
answer takes `max_tokens`. If only the number of calls is known (`CallEstimator.estimate_answer`), the high end for an
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
from ops.core.usage import Usage
from ops.grading import GRADERS
from ops.precaching.precache import build_solo_messages
from ops.spending.bookings import format_usd
from ops.spending.ledger import Ledger
from ops.store import ResponseCache, cache_key
from ops.workers.providers import find_price, is_remote, max_prompt_tokens
from ops.workflow.judging import build_judge_request

CHARACTERS_PER_TOKEN = 4.0
"""The approximate number of characters per token in English text. It is used for workers without measured token
counts."""
TOOL_ANSWER_TOKENS = 19.0
"""Tokens of a tool's answer (a value, a formula or a short program): the mean of the quickstart's 10,800 answers."""
VERDICT = "verdict"
"""The name that stands in place of a grader's name for a call that asks a judge for its verdict."""
ANSWER_TOKENS = {"choice": 300.0, VERDICT: 12.0}
"""Tokens of a language model's answer to one question, by grader. Graders that are not listed have
`OTHER_ANSWER_TOKENS`.

The figures are derived from arXiv:2512.04388, constrained workers. A router that calls one worker once takes 840 tokens
per question, prompt included, averaged over the four training tasks, of which about 700 are the answer. A workflow
takes 735 tokens on MMLU and 1,820 on average, so an MMLU answer takes about 0.4 × 700 tokens, and the other answers
take (4 × 700 - 300) / 3.
"""
OTHER_ANSWER_TOKENS = 830.0
"""Tokens of a language model's answer to one question, for graders that `ANSWER_TOKENS` does not list."""
THINKING_TOKENS = 2000.0
"""Reasoning tokens before the answer of a worker without a stated limit. The figure is an assumption that measurements
replace."""
EFFORT_TOKENS = {"none": 0.0, "minimal": 0.0, "low": THINKING_TOKENS / 5}
"""Reasoning tokens before the answer, by the worker's `reasoning_effort`. Other efforts have `THINKING_TOKENS`."""
SUBTASK_TOKENS = 25
"""Tokens of a subtask (one or two sentences). The step's own worker reads it, and so does every later step that sees
the step."""
FORMAT_TOKENS = 20
"""Tokens of the instruction on the answer format that follows the question."""
JUDGE_PROMPT_TOKENS = 250.0
"""Assumed tokens of the instructions to a judge, with a rubric of a few sentences."""
WORKFLOW_TOKENS = 300.0
"""Assumed tokens of a workflow that a prompted worker writes, with the few sentences before it."""
TOKENS_PER_SECOND = (100.0, 50.0, 25.0)
"""Tokens per second that an unmeasured language model generates, if it is fast, of the expected speed, or slow."""
FIRST_TOKEN_S = 1.0
"""Assumed seconds until an unmeasured language model gives its first token."""
CALL_CPU_S = 0.005
"""CPU seconds that this process needs for one call over a network, measured by `make bench`. LiteLLM takes nearly all
of them. One process uses one core."""
_PURPOSES = ("serving", "training", "evaluation", "baseline", "precache")
"""The purposes of the ledger's calls from which token counts are taken. A later purpose in the list replaces an earlier
one, because its calls are more like those of a worker that answers alone."""


class Range(NamedTuple):
    """A figure (calls, tokens, USD or seconds) with its low end, expected value and high end."""

    low: float
    """The lowest plausible value."""
    expected: float
    """The expected value."""
    high: float
    """The highest plausible value."""

    def plus(self, other: Range) -> Range:
        """Return the sum of two ranges, whose low ends, expected values and high ends are added separately."""
        return Range(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def times(self, other: Range | float) -> Range:
        """Return the product with a number or with a range, whose low ends, expected values and high ends are
        multiplied separately."""
        low, expected, high = other if isinstance(other, Range) else (other, other, other)
        return Range(self.low * low, self.expected * expected, self.high * high)

    @classmethod
    def exactly(cls, value: float) -> Range:
        """Return a range whose three values equal the known `value`."""
        return cls(value, value, value)

    @classmethod
    def maximum(cls, *ranges: Range) -> Range:
        """Return the maximum of each end, which is the duration of activities that run in parallel."""
        return cls(*map(max, zip(*ranges, strict=True)))


ZERO = Range.exactly(0.0)
"""The range that is exactly 0."""


# ── measurements ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class MeasuredUsage:
    """The measured mean tokens and latencies of the workers' calls."""

    usage: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    """The mean usage of a call by (worker, benchmark). The benchmark "" stands for the mean over all benchmarks."""
    latency_s: Mapping[str, float] = field(default_factory=dict)
    """The mean latency of each worker's calls, in seconds."""

    @classmethod
    def from_rows(cls, rows: Iterable[ResponseRow], ledger: Ledger | None = None) -> MeasuredUsage:
        """Compute the means of precached responses (`rows`) and of the calls in a ledger.

        The ledger adds calls of other purposes, and calls of response tables that were never finished.
        """
        usages: dict[tuple[str, str], list[Usage]] = defaultdict(list)
        seconds: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row.status == "ok":
                seconds[row.worker].append(row.response.latency_s)
                for benchmark in (row.benchmark, ""):
                    usages[row.worker, benchmark].append(row.response.usage)
        means = {key: Usage.mean(every) for key, every in usages.items()}
        for purpose in _PURPOSES if ledger is not None else ():
            assert ledger is not None
            means |= {(worker, ""): mean for worker, mean in ledger.mean_usage(purpose).items()}
        return cls(means, {worker: fmean(values) for worker, values in seconds.items()})


def assume_answer_tokens(worker: Worker, grader: str = "") -> float:
    """Return the assumed completion tokens of an unmeasured worker's answer, including its reasoning tokens."""
    if "tool" in worker.tags:
        return TOOL_ANSWER_TOKENS
    answer = ANSWER_TOKENS.get(grader, OTHER_ANSWER_TOKENS)
    if worker.thinking_budget is not None:
        return answer + min(worker.thinking_budget, THINKING_TOKENS)
    if worker.reasoning_effort is not None:
        return answer + EFFORT_TOKENS.get(worker.reasoning_effort, THINKING_TOKENS)
    return answer + (THINKING_TOKENS if "reasoning" in worker.tags else 0)


# ── one call ─────────────────────────────────────────────────────────────────────


class PlannedCall(NamedTuple):
    """A planned call to a worker, whose prompt is known."""

    worker: Worker
    """The worker that is to be called."""
    benchmark: str
    """The name of the benchmark of the problem."""
    messages: Sequence[Message]
    """The messages of the prompt."""
    sample: int | Sample = 0
    """Which of several answers to the same prompt is asked for."""
    grader: str = ""
    """The grader of the answer ("choice", "math" …), which determines the assumed length. "" means that it is not
    graded."""
    problem: Problem | None = None
    """The problem that the call answers, if a judge may have to grade the answer."""

    @property
    def key(self) -> str:
        """Return the call's key in the response cache."""
        return cache_key(self.worker.identity, self.messages, self.sample)


def plan_precache_calls(problems: Iterable[Problem], workers: Sequence[Worker], samples: int) -> Iterator[PlannedCall]:
    """Yield the calls of precaching, in which every worker answers every problem `samples` times."""
    for problem in problems:
        messages = build_solo_messages(problem)
        for worker in workers:
            for sample in range(samples):
                yield PlannedCall(worker, problem.benchmark, messages, sample, problem.grader, problem)


class CallEstimate(NamedTuple):
    """The estimated tokens, price and latency of one call to a worker."""

    prompt: Range
    """Tokens of the prompt."""
    answer: Range
    """Tokens of the answer, including reasoning tokens."""
    latency_s: Range
    """Seconds from the request to the complete answer."""
    price: Price
    """The worker's price per token."""
    service_tier: str | None = None
    """The provider's service tier that the worker's requests name, or None if they name none."""
    parts: Usage = Usage()
    """The expected tokens of the prompt and of the answer that are billed at rates of their own, such as cached
    tokens."""
    basis: str = ""
    """Where the answer's length comes from: "measured" (this worker's calls), "alike" (answers of similar workers) or
    "" (an assumption)."""

    @property
    def usd(self) -> Range:
        """Return the USD of the call. The high end is the most expensive way in which the provider may bill its
        tokens."""
        tier = self.service_tier or ""
        low, expected = (
            self.price.compute_usd(
                replace(self.parts, prompt_tokens=prompt, completion_tokens=answer, service_tier=tier)
            )
            for prompt, answer in zip(self.prompt[:2], self.answer[:2], strict=True)
        )
        return Range(low, expected, self.price.compute_max_usd(self.prompt.high, self.answer.high, self.service_tier))

    @property
    def tokens(self) -> Range:
        """Return the tokens of the prompt and the answer together."""
        return self.prompt.plus(self.answer)


class CallEstimator:
    """Estimates the tokens, cost and latency of calls to a pool's workers."""

    def __init__(
        self,
        workers: Sequence[Worker],
        measured: MeasuredUsage | None = None,
        *,
        pool_file: Path | str,
        question_tokens: float = 0.0,
        judges: Mapping[str, Worker] | None = None,
    ) -> None:
        """Create an estimator for the workers of one pool.

        `measured` holds measurements of these workers, not of another pool's. `question_tokens` is the mean number of
        tokens of a question, which is used if the prompt is unknown. `judges` maps a benchmark to the judge that grades
        each answer to it.
        """
        self.judges = judges or {}
        self.workers, self._measured, self._question = workers, measured or MeasuredUsage(), question_tokens
        self._file, self._workers_by_name = pool_file, {worker.name: worker for worker in workers}
        self._prices: dict[str, Price] = {}
        alike: dict[tuple[str, str], list[float]] = defaultdict(list)
        for (name, benchmark), mean in self._measured.usage.items():
            if name in self._workers_by_name:
                alike[_worker_kind(self._workers_by_name[name]), benchmark].append(mean.completion_tokens)
        self._similar_answer_tokens = {key: fmean(means) for key, means in alike.items()}

    def estimate_answer(self, worker: Worker, benchmark: str) -> CallEstimate:
        """Estimate a call in which `worker` answers a question of `benchmark` directly.

        Raises `ConfigError` if the worker has no price.
        """
        usage, answer, basis = self._expected_answer(worker, benchmark, BENCHMARKS[benchmark].grader)
        if usage is not None:
            return self._build_estimate(worker, Range.exactly(usage.prompt_tokens), Range.exactly(answer), basis, usage)
        answers = Range(*(min(part * answer, worker.max_tokens) for part in (0.5, 1.0, 2.0)))
        return self._build_estimate(worker, Range.exactly(self._question + FORMAT_TOKENS), answers, basis)

    def estimate_writing(self, worker: Worker, prompt: float) -> CallEstimate:
        """Estimate a call in which `worker` writes a workflow after a prompt of `prompt` tokens.

        Raises `ConfigError` if the worker has no price.
        """
        said = (
            TOOL_ANSWER_TOKENS
            if "tool" in worker.tags
            else WORKFLOW_TOKENS + assume_answer_tokens(worker) - OTHER_ANSWER_TOKENS
        )
        answers = Range(*(min(part * said, worker.max_tokens) for part in (0.5, 1.0, 2.0)))
        return self._build_estimate(worker, Range.exactly(prompt), answers, "")

    def estimate_verdict(self, judge: Worker, answer: Range) -> CallEstimate:
        """Estimate a call in which `judge` grades an answer of `answer` tokens.

        Raises `ConfigError` if the judge has no price.
        """
        said = assume_answer_tokens(judge, VERDICT)
        verdicts = Range(*(min(part * said, judge.max_tokens) for part in (0.5, 1.0, 2.0)))
        return self._build_estimate(
            judge, answer.plus(Range.exactly(self._question + JUDGE_PROMPT_TOKENS)), verdicts, ""
        )

    def estimate_planned(self, planned: PlannedCall) -> CallEstimate:
        """Estimate a planned call. The high end of its USD is what the client reserves before the call.

        Raises `ConfigError` if the worker has no price.
        """
        usage, answer, basis = self._expected_answer(planned.worker, planned.benchmark, planned.grader)
        if usage is not None:
            prompt = usage.prompt_tokens
        else:
            prompt = sum(len(message["content"]) for message in planned.messages) / CHARACTERS_PER_TOKEN
            answer = min(answer, planned.worker.max_tokens)
        prompts = Range(prompt, prompt, max_prompt_tokens(planned.worker, planned.messages))
        answers = Range(answer, answer, planned.worker.max_tokens)
        return self._build_estimate(planned.worker, prompts, answers, basis, usage)

    def _expected_answer(self, worker: Worker, benchmark: str, grader: str) -> tuple[Usage | None, float, str]:
        """Return the mean usage of the worker's own calls (or None), the expected tokens of the answer, and their
        basis."""
        measured = self._measured.usage
        usage = measured.get((worker.name, benchmark)) or measured.get((worker.name, ""))
        if usage is not None:
            return usage, usage.completion_tokens, "measured"
        alike = self._similar_answer_tokens.get((_worker_kind(worker), benchmark)) or self._similar_answer_tokens.get(
            (_worker_kind(worker), "")
        )
        return (None, assume_answer_tokens(worker, grader), "") if alike is None else (None, alike, "alike")

    def _build_estimate(
        self, worker: Worker, prompt: Range, answer: Range, basis: str, measured: Usage | None = None
    ) -> CallEstimate:
        if worker.name not in self._prices:
            self._prices[worker.name] = find_price(worker, self._file)
        price, parts = self._prices[worker.name], measured or Usage()
        return CallEstimate(prompt, answer, self._latency(worker, answer), price, worker.service_tier, parts, basis)

    def _latency(self, worker: Worker, answer: Range) -> Range:
        """Return the seconds of a call whose answer has `answer` tokens."""
        if worker.latency_s is not None:
            return ZERO  # a tool's latency is negligible
        if worker.name in self._measured.latency_s:
            return Range.exactly(self._measured.latency_s[worker.name])
        return Range(*(FIRST_TOKEN_S + tokens / speed for tokens, speed in zip(answer, TOKENS_PER_SECOND, strict=True)))


def _worker_kind(worker: Worker) -> str:
    """Return the kind of a worker. Workers of one kind give answers of similar length."""
    return next((tag for tag in ("tool", "reasoning") if tag in worker.tags), "")


# ── many calls ───────────────────────────────────────────────────────────────────


@dataclass
class WorkerCost:
    """The calls to one worker, with their tokens, USD and seconds."""

    worker: Worker
    """The worker that is called."""
    calls: Range = ZERO
    """The number of calls that are to be made and paid for."""
    tokens: Range = ZERO
    """Tokens of these calls' prompts and answers."""
    usd: Range = ZERO
    """USD of these calls."""
    busy_s: Range = ZERO
    """Seconds that these calls would take if they ran one at a time."""
    cached_calls: int = 0
    """The number of calls whose answers are stored. They are not part of `calls`."""
    measured_calls: float = 0
    """The expected number of calls whose tokens come from measurements of this worker."""
    similar_calls: float = 0
    """The expected number of calls whose answer length comes from other workers of the same kind."""

    def add_calls(self, call: CallEstimate, calls: Range) -> None:
        """Add `calls` calls, each of which is estimated as `call`."""
        self.calls = self.calls.plus(calls)
        self.tokens = self.tokens.plus(call.tokens.times(calls))
        self.usd = self.usd.plus(call.usd.times(calls))
        self.busy_s = self.busy_s.plus(call.latency_s.times(calls))
        self.measured_calls += calls.expected * (call.basis == "measured")
        self.similar_calls += calls.expected * (call.basis == "alike")

    @property
    def waiting_s(self) -> Range:
        """Return the seconds that the calls take within the worker's limits: concurrency, requests and tokens per
        minute."""
        worker, limits = self.worker, [self.busy_s.times(1 / self.worker.concurrency)]
        if worker.requests_per_minute:
            limits.append(self.calls.times(60 / worker.requests_per_minute))
        if worker.tokens_per_minute:
            limits.append(self.tokens.times(60 / worker.tokens_per_minute))
        return Range.maximum(*limits)

    @property
    def process_s(self) -> Range:
        """Return the CPU seconds of the process that makes the calls. Those of a tool in this process are
        negligible."""
        tool = self.worker.latency_s is not None or not is_remote(self.worker)
        return ZERO if tool else self.calls.times(CALL_CPU_S)


class WorkerCosts:
    """The calls to the workers of one or several pools."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, str], WorkerCost] = {}

    def entry(self, prices: CallEstimator, worker: Worker) -> WorkerCost:
        """Return the entry of `worker` in the pool of `prices`, which is created on first use."""
        return self._entries.setdefault((id(prices), worker.name), WorkerCost(worker))

    def total(self, figure: Callable[[WorkerCost], Range]) -> Range:
        """Return the sum of `figure` over all workers."""
        return reduce(Range.plus, map(figure, self._entries.values()), ZERO)

    def waiting_s(self) -> dict[str, Range]:
        """Return the seconds of waiting for each worker by its name.

        They are summed over pools, because the pools are called one after the other.
        """
        waiting: dict[str, Range] = defaultdict(lambda: ZERO)
        for each in self._entries.values():
            waiting[each.worker.name] = waiting[each.worker.name].plus(each.waiting_s)
        return dict(waiting)

    def add_judge_calls(self, prices: CallEstimator, benchmark: str, answer: Range, answers: Range) -> Range:
        """Add the calls of the benchmark's judge for `answers` answers of `answer` tokens each, and return the USD of
        one call.

        Without a judge nothing is added, and the result is 0.
        """
        if (judge := prices.judges.get(benchmark)) is None:
            return ZERO
        call = prices.estimate_verdict(judge, answer)
        self.entry(prices, judge).add_calls(call, answers)
        return call.usd

    def build_cost(self, name: str, what: str, *, chain_s: Range = ZERO) -> Cost:
        """Return the total as a `Cost`. `chain_s` is the time in seconds of calls that must wait for each other in any
        case."""
        waiting = self.waiting_s()
        slowest = max(waiting, key=lambda worker: waiting[worker].expected, default="")
        process_s = self.total(lambda each: each.process_s)
        longest = Range.maximum(chain_s, process_s, *waiting.values())
        limited = "a workflow's length" if chain_s.expected >= waiting.get(slowest, ZERO).expected else slowest
        if process_s.expected > max(chain_s.expected, waiting.get(slowest, ZERO).expected):
            limited = "the CPU of one process"
        usd = self.total(lambda each: each.usd)
        return Cost(
            name,
            what,
            calls=self.total(lambda each: each.calls),
            tokens=self.total(lambda each: each.tokens),
            usd=usd,
            usd_with_repeats=usd,
            worker_s=longest,
            limited_by=limited if longest.expected else "",
            workers={each.worker.name: each for each in self._entries.values()},
        )


@dataclass(frozen=True)
class Cost:
    """The cost and duration of a set of calls (a stage or a whole run), without the calls whose answers are stored."""

    name: str = ""
    """The name of the stage."""
    calls_formula: str = ""
    """The multiplication from which the number of calls follows, in words."""
    calls: Range = ZERO
    """The number of calls that are to be made."""
    tokens: Range = ZERO
    """Tokens of the workers' prompts and answers."""
    usd: Range = ZERO
    """USD to pay, where identical calls are paid once."""
    usd_with_repeats: Range = ZERO
    """USD of all responses, where identical calls count each time."""
    worker_s: Range = ZERO
    """Seconds of waiting for workers within their limits."""
    limited_by: str = ""
    """What determines the expected waiting: a worker's name, a workflow's length or the CPU. "" means that nothing is
    waited for."""
    policy_s: Range | None = None
    """Seconds of generation and policy updates. None means that they are unknown, or that there is nothing to do."""
    is_conditional: bool = False
    """True if the stage runs only for certain results of an earlier stage."""
    workers: Mapping[str, WorkerCost] = field(default_factory=dict, compare=False)
    """Each worker's part of the cost, by the worker's name."""

    @property
    def paid_calls(self) -> int:
        """Return the expected number of calls that are to be paid for."""
        return round(self.calls.expected)

    @property
    def cached_calls(self) -> int:
        """Return the number of calls whose answers are stored."""
        return sum(each.cached_calls for each in self.workers.values())

    @property
    def measured_calls(self) -> int:
        """Return the expected number of calls whose tokens come from measurements of the same worker."""
        return round(sum(each.measured_calls for each in self.workers.values()))

    @property
    def similar_calls(self) -> int:
        """Return the expected number of calls whose answer length comes from other workers of the same kind."""
        return round(sum(each.similar_calls for each in self.workers.values()))

    @property
    def basis(self) -> str:
        """Return a text that says for which shares of the calls the token counts were measured, taken from similar
        workers, or assumed."""
        shares = [
            (self.measured_calls, "from measured tokens"),
            (self.similar_calls, "as long as the other workers' answers"),
            (self.paid_calls - self.measured_calls - self.similar_calls, "from the prompts' lengths and usual answers"),
        ]
        parts = [(count / self.paid_calls, words) for count, words in shares if count]
        about = ", ".join(words if len(parts) == 1 else f"{part:.0%} {words}" for part, words in parts)
        nothing = "; nothing was measured yet" if not self.measured_calls and not self.similar_calls else ""
        return f"({about}{nothing}; at most: every answer as long as max_tokens)"

    def __str__(self) -> str:
        asked = self.paid_calls + self.cached_calls
        if not self.paid_calls:
            return f"{asked:,} calls, all of them cached: nothing to pay"
        return (
            f"{asked:,} calls, {self.cached_calls:,} of them cached: about {format_usd(self.usd.expected)}, "
            f"at most {format_usd(self.usd.high)} {self.basis}"
        )

    def to_rows(self) -> list[dict[str, str | int | float]]:
        """Return one row per worker for a table."""
        return [
            {
                "worker": name,
                "calls": round(each.calls.expected) + each.cached_calls,
                "cached": each.cached_calls,
                "expected_usd": round(each.usd.expected, 6),
                "worst_usd": round(each.usd.high, 6),
                "measured": round(each.measured_calls),
            }
            for name, each in self.workers.items()
        ]


def add_costs(parts: Iterable[Cost], name: str = "whole run", what: str = "") -> Cost:
    """Return the total cost of stages that run one after another."""
    every = list(parts)
    policy = [part.policy_s for part in every if part.policy_s]

    def added(figure: Callable[[Cost], Range]) -> Range:
        return reduce(Range.plus, map(figure, every), ZERO)

    return Cost(
        name,
        what,
        calls=added(lambda part: part.calls),
        tokens=added(lambda part: part.tokens),
        usd=added(lambda part: part.usd),
        usd_with_repeats=added(lambda part: part.usd_with_repeats),
        worker_s=added(lambda part: part.worker_s),
        policy_s=reduce(Range.plus, policy) if policy else None,
    )


def estimate_calls(
    planned: Iterable[PlannedCall], cache: ResponseCache, estimator: CallEstimator, name: str = "", what: str = ""
) -> Cost:
    """Return the number and cost of the planned calls that the cache does not answer, including the calls of judges.

    Raises `ConfigError` for a worker without a price.
    """
    todo, costs = list(planned), WorkerCosts()
    for ask, stored in zip(todo, find_cached_calls(todo, cache), strict=True):
        of_worker = costs.entry(estimator, ask.worker)
        if stored:
            of_worker.cached_calls += 1
        else:
            call = estimator.estimate_planned(ask)
            of_worker.add_calls(call, Range.exactly(1))
            costs.add_judge_calls(estimator, ask.benchmark, call.answer, Range.exactly(1))
    verdicts = list(_plan_verdicts(todo, cache, estimator))
    for ask, stored in zip(verdicts, find_cached_calls(verdicts, cache), strict=True):
        if stored:
            costs.entry(estimator, ask.worker).cached_calls += 1
        else:
            costs.entry(estimator, ask.worker).add_calls(estimator.estimate_planned(ask), Range.exactly(1))
    return costs.build_cost(name, what)


def _plan_verdicts(asks: Iterable[PlannedCall], cache: ResponseCache, prices: CallEstimator) -> Iterator[PlannedCall]:
    """Yield the judges' calls about answers that the cache has. After a change of the rubric, all of them are paid for
    again."""
    for ask in asks:
        if ask.problem is None or ask.benchmark not in prices.judges:
            continue
        response = cache.get(ask.key)
        if response is not None and (answer := GRADERS[ask.problem.grader].extract_answer(ask.problem, response.text)):
            judge, messages = build_judge_request(ask.problem, answer)
            yield PlannedCall(judge, ask.benchmark, messages, grader=VERDICT)


def find_cached_calls(planned: Sequence[PlannedCall], cache: ResponseCache) -> list[bool]:
    """Return for each planned call whether the cache holds its answer."""
    keys = [ask.key for ask in planned]
    held = cache.find_existing(keys)
    return [key in held for key in keys]


def explain_cap_error(error: OverBudget, rest: Cost) -> OverBudget:
    """Return the error of a run that reached its cap, with the number of calls that are done and the cost of the
    others.

    `rest` is the estimate of *all* calls of the run, made after it stopped, when the completed calls are in the cache.
    """
    return OverBudget(
        f"stopped at the cap: {rest.cached_calls:,} of {rest.paid_calls + rest.cached_calls:,} calls are done and stay "
        "cached; "
        f"the other {rest.paid_calls:,} would cost about {format_usd(rest.usd.expected)}, at most "
        f"{format_usd(rest.usd.high)} {rest.basis}. Run the same command again to go on where it stopped ({error})"
    )
