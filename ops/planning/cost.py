"""Calls, tokens, USD and hours of each stage, as ranges: what must be assumed is said in `ASSUMPTIONS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from statistics import fmean
from typing import NamedTuple

from ops.benchmarks.registry import BENCHMARKS, training_benchmarks, training_domains
from ops.config import Grpo, Setup, Worker
from ops.core.rows import ResponseRow
from ops.planning.lengths import Lengths
from ops.precaching.estimate import SUBTASK_TOKENS, MeanTokens, measured_usage, usual_answer
from ops.workers.providers import worst_price

FORMAT_TOKENS = 20
"""Of the sentence that asks for a form of answer, beside the question."""
SPEED = (100.0, 50.0, 25.0)
"""Tokens a second of a language model that was never measured: fast, as expected, slow."""
FIRST_TOKEN_S = 1.0
HARD = (0.1, 0.5, 1.0)
"""Share of the training problems that no worker reliably solves alone, on which exploration tries workflows."""


COLD_START = "cold start"
"""The stage's name."""


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
DISTINCT = Span(0.1, 0.2, 1.0)
"""Share of a scratch policy's calls that are paid for: the others ask what was asked before (18 % were paid for in the
quickstart, docs/training.md). A language model's subtasks differ."""


ANEW = Span(0.5, 0.75, 1.0)
"""Share of the rollouts of a stage in rounds that ask workers: first ones all do, recursive ones none, half or all."""


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


def refilled(grpo: Grpo) -> Span:
    """Rollouts that are written for each one of the steps' own: none beside it, half of those that may be, all."""
    most = grpo.refills_per_step / grpo.questions_per_step
    return Span(1.0, 1 + most / 2, 1 + most)


@dataclass(frozen=True)
class StageCost:
    """One stage: what is asked and what that costs."""

    name: str
    what: str
    """What it multiplies to, in words."""
    calls: Span
    tokens: Span
    """The workers', prompts and answers."""
    usd: Span
    hours: Span
    """Waiting for workers, within their limits."""
    limited_by: str = ""
    """What the waiting is made of, as expected."""
    policy_hours: Span | None = None
    """Writing and updating, on the GPUs; None: not known, or nothing to do."""


def total(stages: Iterable[StageCost]) -> StageCost:
    """All stages, one after another."""
    both = StageCost("whole run", "", NOTHING, NOTHING, NOTHING, NOTHING)
    for stage in stages:
        mine, theirs = both.policy_hours, stage.policy_hours
        both = StageCost(
            both.name,
            both.what,
            both.calls.plus(stage.calls),
            both.tokens.plus(stage.tokens),
            both.usd.plus(stage.usd),
            both.hours.plus(stage.hours),
            policy_hours=mine.plus(theirs) if mine and theirs else mine or theirs,
        )
    return both


class Prices:
    """What a call costs and takes: as measured of this worker on this benchmark, else as usual."""

    def __init__(self, setup: Setup, known: Lengths, rows: list[ResponseRow]) -> None:
        self._setup, self._known = setup, known
        self._usage: Mapping[tuple[str, str], MeanTokens] = measured_usage(rows)
        seconds: dict[str, list[float]] = {}
        for row in rows:
            if row.status == "ok":
                seconds.setdefault(row.worker, []).append(row.response.latency_s)
        self._seconds = {worker: fmean(values) for worker, values in seconds.items()}
        self._price = {worker.name: worst_price(worker, setup.pool_file) for worker in setup.pool.workers}

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

    def workflow(self, benchmark: str) -> tuple[Span, dict[str, Call]]:
        """(steps, worker's name → the mean call of a step): any worker alike.

        Low: one step. High: (1 + max_steps) / 2 steps, each of which sees all before it. Expected: as many, and half
        of what they could see.
        """
        most = (1 + self._setup.recipe.prompting.max_steps) / 2
        alone = {worker.name: self.call(worker, benchmark) for worker in self._setup.pool.workers}
        said = reduce(Span.plus, (call.answer for call in alone.values())).times(1 / len(alone))
        seen = (most - 1) / 2  # of a step, in the mean: most choose 2 of most
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


@dataclass
class _Bill:
    """What one worker is asked in a stage."""

    calls: Span = NOTHING
    tokens: Span = NOTHING
    usd: Span = NOTHING
    busy_s: Span = NOTHING
    """Of one call at a time."""

    def take(self, call: Call, calls: Span) -> None:
        self.calls = self.calls.plus(calls)
        self.tokens = self.tokens.plus(call.tokens.times(calls))
        self.usd = self.usd.plus(call.usd.times(calls))
        self.busy_s = self.busy_s.plus(call.latency_s.times(calls))

    def hours(self, worker: Worker) -> Span:
        """Within the worker's limits: calls in flight, requests and tokens a minute."""
        limits = [self.busy_s.times(1 / worker.concurrency / 3600)]
        if worker.requests_per_minute:
            limits.append(self.calls.times(1 / worker.requests_per_minute / 60))
        if worker.tokens_per_minute:
            limits.append(self.tokens.times(1 / worker.tokens_per_minute / 60))
        return Span(*map(max, zip(*limits, strict=True)))


class Stages:
    """The stages of one recipe, priced."""

    def __init__(
        self,
        setup: Setup,
        known: Lengths,
        questions: Mapping[str, int | None],
        rows: list[ResponseRow],
    ) -> None:
        self._setup, self._prices = setup, Prices(setup, known, rows)
        settings = {name: setup.recipe.evaluation.of(name) for name in questions}
        self._questions = {name: _most(count or 0, settings[name].most_questions) for name, count in questions.items()}
        self._answers = {name: count * settings[name].repeats for name, count in self._questions.items()}
        self._trained = training_benchmarks(setup.recipe.benchmarks)
        self._scratch = setup.recipe.policy.kind == "scratch"

    @property
    def places(self) -> int:
        """In the training mix."""
        recipe = self._setup.recipe
        return len(training_domains(recipe.benchmarks)) * recipe.curation.per_domain

    def all(self) -> list[StageCost]:
        """In the order of a life; those that ask nobody are left out."""
        stages: list[StageCost | None] = [self.precaching(), self.cold_start(), self.training(), self.adaptive()]
        stages += [self.recursive(), self.baselines(), self.evaluation()]
        return [stage for stage in stages if stage is not None]

    def precaching(self) -> StageCost:
        """Every candidate, every worker."""
        recipe = self._setup.recipe
        candidates, samples = round(self.places * recipe.curation.shortlist_factor), recipe.precaching.samples
        workers = len(self._setup.pool.workers)
        what = f"{candidates:,} problems × {workers} workers × {samples}"
        return self._alone("precaching", what, self._spread(candidates * samples))

    def cold_start(self) -> StageCost | None:
        """The workflows that exploration tries."""
        lesson = self._setup.recipe.cold_start
        if lesson is None or not (lesson.attempts or self._setup.recipe.policy.kind == "pretrained"):
            return None
        tries = 2 * lesson.attempts
        tried = Span(*(share * self.places * tries for share in HARD))
        what = f"{tries} workflows on each problem that nobody solves alone" if tries else "nobody is asked"
        return self._workflows(COLD_START, what, tried, self._spread(1))

    def training(self) -> StageCost:
        """Every rollout's workflow."""
        return self._rollouts("training", self._setup.recipe.grpo)

    def adaptive(self) -> StageCost | None:
        """The same of the stage on subsets: in the mean each worker is on offer as often."""
        recipe = self._setup.recipe
        if recipe.adaptive is None:
            return None
        return self._rollouts("training on subsets", recipe.adaptive.grpo(recipe.grpo))

    def recursive(self) -> StageCost | None:
        """Half of the rollouts are recursive rounds, which keep an answer or ask anew."""
        recipe = self._setup.recipe
        if recipe.recursive is None:
            return None
        return self._rollouts("training in rounds", recipe.recursive.grpo(recipe.grpo), ANEW, rounds=2)

    def _rollouts(self, name: str, grpo: Grpo, asking: Span | None = None, rounds: int = 1) -> StageCost:
        """`asking`: share of the rollouts that ask anybody; None: all."""
        rollouts = refilled(grpo).times(grpo.steps * grpo.rollouts_per_step)
        what = f"{grpo.steps} steps × {grpo.rollouts_per_step} rollouts"
        if grpo.refills_per_step:
            what += f", and up to {grpo.refills_per_step * grpo.rollouts_per_question} in place of what teaches nothing"
        count = rollouts if asking is None else rollouts.times(asking)
        return self._workflows(name, what, count, self._spread(1), waits=grpo.steps * rounds)

    def baselines(self) -> StageCost:
        """Every worker alone on the test questions."""
        what = f"{self._asked()} × {len(self._setup.pool.workers)} workers"
        return self._alone("every worker alone", what, {name: float(count) for name, count in self._answers.items()})

    def evaluation(self) -> StageCost:
        """The Conductor on the test questions; with a cold start, what it was before GRPO too."""
        recipe = self._setup.recipe
        policies = 1 + (recipe.cold_start is not None)
        asked = sum(self._answers.values())
        shares = {name: count / asked for name, count in self._answers.items()} if asked else {}
        what = self._asked() + (", before and after GRPO" if policies > 1 else "")
        runs = Span.of(policies)
        if recipe.recursive is not None and recipe.recursive.limits.rounds:  # the last policy goes on
            more = recipe.recursive.limits.calls_ratio - 1
            runs, what = runs.plus(Span(0.0, more / 2, more)), f"{what}, in rounds"
        return self._workflows("evaluation", what, runs.times(asked), shares)

    def _asked(self) -> str:
        repeats = {self._setup.recipe.evaluation.of(name).repeats for name in self._questions}
        times = str(repeats.pop()) if len(repeats) == 1 else f"{min(repeats)} to {max(repeats)}"
        return f"{sum(self._questions.values()):,} questions × {times}"

    def workflow_usd(self) -> Span:
        """One workflow, the domains that are trained on weighing the same."""
        priced = [self._prices.workflow(name) for name in self._trained]
        means = [steps.times(_mean(calls, lambda call: call.usd)) for steps, calls in priced]
        return reduce(Span.plus, means).times(1 / len(means))

    def _spread(self, problems: float) -> dict[str, float]:
        """So many problems over the benchmarks that are trained on: domains weigh the same."""
        domains = [BENCHMARKS[name].domain for name in self._trained]
        return {
            name: problems / len(set(domains)) / domains.count(domain)
            for name, domain in zip(self._trained, domains, strict=True)
        }

    def _alone(self, name: str, what: str, asked: Mapping[str, float]) -> StageCost:
        bills = {worker.name: _Bill() for worker in self._setup.pool.workers}
        for benchmark, count in asked.items():
            for worker in self._setup.pool.workers:
                bills[worker.name].take(self._prices.call(worker, benchmark), Span.of(count))
        return self._stage(name, what, bills)

    def _workflows(
        self, name: str, what: str, count: Span, shares: Mapping[str, float], waits: int = 0
    ) -> StageCost:
        """`waits`: times that everybody waits for the last workflow of a batch."""
        bills = {worker.name: _Bill() for worker in self._setup.pool.workers}
        chain = NOTHING
        for benchmark, share in shares.items():
            steps, calls = self._prices.workflow(benchmark)
            each = count.times(share / len(calls)).times(steps)
            for worker, call in calls.items():
                bills[worker].take(call, each)
            chain = chain.plus(steps.times(_mean(calls, lambda call: call.latency_s)).times(share))
        return self._stage(name, what, bills, distinct=self._scratch, chain=chain.times(waits / 3600))

    def _stage(
        self, name: str, what: str, bills: Mapping[str, _Bill], distinct: bool = False, chain: Span = NOTHING
    ) -> StageCost:
        usd = reduce(Span.plus, (bill.usd for bill in bills.values()), NOTHING)
        if distinct:
            usd = usd.times(DISTINCT)
        hours = {worker.name: bills[worker.name].hours(worker) for worker in self._setup.pool.workers}
        slowest = max(hours, key=lambda worker: hours[worker].expected)
        longest = Span(*map(max, zip(chain, *hours.values(), strict=True)))
        limited = "a workflow's length" if chain.expected >= hours[slowest].expected else slowest
        return StageCost(
            name,
            what,
            reduce(Span.plus, (bill.calls for bill in bills.values()), NOTHING),
            reduce(Span.plus, (bill.tokens for bill in bills.values()), NOTHING),
            usd,
            longest,
            limited if longest.expected else "",
        )


def _mean(calls: Mapping[str, Call], of: Callable[[Call], Span]) -> Span:
    return reduce(Span.plus, map(of, calls.values())).times(1 / len(calls))


def _most(count: int, limit: int | None) -> int:
    return count if limit is None else min(count, limit)
