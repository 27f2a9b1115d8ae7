"""Calls, tokens, USD and hours of each stage, as ranges: what must be assumed is said in `ASSUMPTIONS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from statistics import fmean

from ops.benchmarks.registry import BENCHMARKS, training_benchmarks, training_domains
from ops.config import Grpo, Setup, Worker
from ops.core.rows import ResponseRow
from ops.evaluation.baseline import Asking, chosen, needs_every_worker
from ops.planning.lengths import Lengths
from ops.planning.prices import NOTHING, Call, Prices, Span
from ops.planning.stored import Left
from ops.precaching.estimate import SUBTASK_TOKENS

HARD = (0.1, 0.5, 1.0)
"""Share of the training problems that no worker reliably solves alone, on which exploration tries workflows."""


COLD_START, TRAINING, ROUNDS, EVALUATION = "cold start", "training", "training in rounds", "evaluation"
"""The stages' names."""


DISTINCT = {COLD_START: Span(0.5, 0.9, 1.0), TRAINING: Span(0.2, 0.4, 1.0), EVALUATION: Span(0.0, 0.67, 1.0)}
"""Share of what a scratch policy's workflows cost that is paid for: equal calls are paid once. The rollouts of a group
repeat each other, and the first step of an evaluation's workflow is mostly what its worker was asked alone. Expected:
what the quickstart paid, of what its workflows cost where any worker is as likely as the next. A language model's
subtasks differ."""


_REPEATING = ("training on subsets", ROUNDS)
"""Stages whose rollouts repeat each other as those of training do."""


ANEW = Span(0.0, 0.5, 1.0)
"""Share of the recursive rounds that keep no answer and ask workers again."""


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
    worth: Span = NOTHING
    """USD of all its responses; those that are asked again are paid for once (`usd`)."""
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


@dataclass
class _Bill:
    """What one worker is asked in a stage, as one pool has it."""

    worker: Worker
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

    @property
    def hours(self) -> Span:
        """Within the worker's limits: calls in flight, requests and tokens a minute."""
        worker = self.worker
        limits = [self.busy_s.times(1 / worker.concurrency / 3600)]
        if worker.requests_per_minute:
            limits.append(self.calls.times(1 / worker.requests_per_minute / 60))
        if worker.tokens_per_minute:
            limits.append(self.tokens.times(1 / worker.tokens_per_minute / 60))
        return Span(*map(max, zip(*limits, strict=True)))


class _Bills:
    """What the workers are asked in a stage."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, str], _Bill] = {}

    def of(self, prices: Prices, name: str) -> _Bill:
        """The worker of that name in the pool of these prices."""
        known = self._of.get((id(prices), name))
        if known is None:
            [worker] = [worker for worker in prices.workers if worker.name == name]
            known = self._of[id(prices), name] = _Bill(worker)
        return known

    def sum(self, figure: Callable[[_Bill], Span]) -> Span:
        """Of all workers together."""
        return reduce(Span.plus, map(figure, self._of.values()), NOTHING)

    def hours(self) -> dict[str, Span]:
        """Worker's name → hours: two pools are asked one after the other."""
        hours: dict[str, Span] = {}
        for bill in self._of.values():
            hours[bill.worker.name] = hours.get(bill.worker.name, NOTHING).plus(bill.hours)
        return hours


class Stages:
    """The stages of one recipe, priced."""

    def __init__(
        self,
        setup: Setup,
        known: Lengths,
        questions: Mapping[str, int | None],
        rows: list[ResponseRow],
        left: Left | None = None,
    ) -> None:
        """`left`: what is still to be paid for; None: nothing is stored."""
        self._left = left or Left()
        self._setup, self._prices = setup, Prices(setup, known, rows)
        priced = {setup.pool.answers_key: self._prices}
        self._evaluated: dict[str, Prices] = {}
        for name in questions:  # a pool of the evaluation's own was not measured
            asked = setup.asked_on(name)
            self._evaluated[name] = priced.setdefault(asked.pool.answers_key, Prices(asked, known))
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
        prices, bills = self._prices, _Bills()
        for benchmark, count in self._spread(candidates * samples).items():
            for worker in prices.workers:
                share = self._left.precaching.get((worker.name, benchmark), 1.0)
                bills.of(prices, worker.name).take(prices.call(worker, benchmark), Span.of(count * share))
        return self._stage("precaching", what, bills)

    def cold_start(self) -> StageCost | None:
        """The workflows that exploration tries."""
        lesson = self._setup.recipe.cold_start
        if lesson is None or not (lesson.attempts or self._setup.recipe.policy.kind == "pretrained"):
            return None
        tries = 2 * lesson.attempts
        tried = Span(*(share * self.places * tries for share in HARD)).times(self._left.cold_start)
        what = f"{tries} workflows on each problem that nobody solves alone" if tries else "nobody is asked"
        return self._workflows(COLD_START, what, tried, self._spread(1))

    def training(self) -> StageCost:
        """Every rollout's workflow."""
        return self._rollouts(TRAINING, self._setup.recipe.grpo, left=self._left.training)

    def adaptive(self) -> StageCost | None:
        """The same of the stage on subsets: in the mean each worker is on offer as often."""
        recipe = self._setup.recipe
        if recipe.adaptive is None:
            return None
        return self._rollouts("training on subsets", recipe.adaptive.grpo(recipe.grpo), left=self._left.adaptive)

    def recursive(self) -> StageCost | None:
        """Half of the rollouts are recursive rounds, which keep an answer or ask anew."""
        recipe = self._setup.recipe
        if recipe.recursive is None:
            return None
        grpo = recipe.recursive.grpo(recipe.grpo)
        return self._rollouts(ROUNDS, grpo, recursive=0.5, left=self._left.recursive)

    def _rollouts(self, name: str, grpo: Grpo, recursive: float = 0.0, left: float = 1.0) -> StageCost:
        """`recursive`: share of the rollouts that are later rounds; `left`: of the steps, those to come."""
        rollouts = refilled(grpo).times(grpo.steps * grpo.rollouts_per_step * left)
        what = f"{grpo.steps} steps × {grpo.rollouts_per_step} rollouts"
        if grpo.refills_per_step:
            what += f", and up to {grpo.refills_per_step * grpo.rollouts_per_question} in place of what teaches nothing"
        again = rollouts.times(ANEW).times(recursive)
        waits = grpo.steps * left * (2 if recursive else 1)
        return self._workflows(name, what, rollouts.times(1 - recursive), self._spread(1), again, waits)

    def baselines(self) -> StageCost:
        """The workers alone on the test questions; and what those baselines ask that the recipe names."""
        workers = len(self._setup.pool.workers)
        asked = {name: float(count) for name, count in self._answers.items()}
        alone = self._alone(asked)
        what = alone.what
        asking = [entry for entry in chosen(self._setup.recipe.evaluation.baselines) if isinstance(entry, Asking)]
        if not asking:
            return alone
        parts, words = [alone], []
        for entry in asking:
            calls, problems = entry.calls(workers), entry.learning(workers)
            open_ = {name: count * self._left.baselines.get((entry.name, name), 1.0) for name, count in asked.items()}
            learning = self._spread(problems) if any(open_.values()) else {}
            parts += [self._baseline(calls, open_, self._evaluated), self._baseline(1, learning, {})]
            words.append(f"{entry.title} ({calls:.0f}{f', and {problems:,.0f} to the mix' if problems else ''})")
        slowest = max(parts, key=lambda part: part.hours.expected)
        what = f"{what}; calls a question: {', '.join(words)}"
        return replace(total(parts), name="baselines", what=what, limited_by=slowest.limited_by, policy_hours=None)

    def _alone(self, asked: Mapping[str, float]) -> StageCost:
        """Every worker on the test questions, or the best single one: which it is follows from what is precached."""
        cells, names = self._left.alone, self._setup.pool.names
        if not needs_every_worker(self._setup.recipe.evaluation.baselines):
            shares = {name: max((cells.get((each, name), 0.0) for each in names), default=0.0) for name in asked}
            open_ = {name: count * (shares[name] if cells else 1.0) for name, count in asked.items()}
            best = self._baseline(1, open_, self._evaluated)
            return replace(best, name="best worker alone", what=f"{self._asked()}, for the promotion gate")
        bills = _Bills()
        for benchmark, count in asked.items():
            prices = self._evaluated[benchmark]
            for worker in prices.workers:
                share = cells.get((worker.name, benchmark), 1.0)
                bills.of(prices, worker.name).take(prices.call(worker, benchmark), Span.of(count * share))
        return self._stage("every worker alone", f"{self._asked()} × {len(names)} workers", bills)

    def _baseline(self, calls: float, asked: Mapping[str, float], on: Mapping[str, Prices]) -> StageCost:
        """So many calls a question, at most, of which each sees none, half or all of those before.

        Any worker alike, between the cheapest and the dearest: which is best is known when the mix was answered.
        """
        seen = (calls - 1) / 2
        bills, alone = _Bills(), dict.fromkeys(self._setup.pool.names, 0.0)  # USD
        for benchmark, count in asked.items():
            prices = on.get(benchmark, self._prices)
            each = {worker.name: prices.call(worker, benchmark) for worker in prices.workers}
            said = reduce(Span.plus, (call.answer for call in each.values())).times(1 / len(each))
            shown = said.plus(Span.of(SUBTASK_TOKENS)).times(Span(0.0, seen / 2, seen))
            for name, call in each.items():
                asking = call._replace(prompt=call.prompt.plus(shown))
                bills.of(prices, name).take(asking, Span.of(count * calls / len(each)))
                alone[name] += count * call.usd.expected
        cost, mean = self._stage("", "", bills), fmean(alone.values())
        ratios = Span(min(alone.values()) / mean, 1.0, max(alone.values()) / mean) if mean else Span.of(1.0)
        return replace(cost, usd=cost.usd.times(ratios))

    def evaluation(self) -> StageCost:
        """The Conductor on the test questions; with a cold start, what it was before GRPO too."""
        recipe = self._setup.recipe
        policies = 1 + (recipe.cold_start is not None)
        answers = {name: count * self._left.evaluation.get(name, 1.0) for name, count in self._answers.items()}
        asked = sum(answers.values())
        shares = {name: count / asked for name, count in answers.items()} if asked else {}
        what = self._asked() + (", before and after GRPO" if policies > 1 else "")
        again = NOTHING
        if recipe.recursive is not None and recipe.recursive.limits.rounds:  # the last policy goes on
            again, what = ANEW.times((recipe.recursive.limits.calls_ratio - 1) * asked), f"{what}, in rounds"
        return self._workflows(EVALUATION, what, Span.of(policies * asked), shares, again, on=self._evaluated)

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

    def _workflows(
        self,
        name: str,
        what: str,
        count: Span,
        shares: Mapping[str, float],
        again: Span = NOTHING,
        waits: float = 0,
        on: Mapping[str, Prices] | None = None,
    ) -> StageCost:
        """`again`: workflows of later rounds, beside `count`. `waits`: times that everybody waits for the last
        workflow of a batch. `on`: benchmark → who answers there, where it is not the recipe's pool."""
        bills = _Bills()
        chain, dearest = NOTHING, 0.0
        for benchmark, share in shares.items():
            prices = (on or {}).get(benchmark, self._prices)
            for later, workflows in ((False, count), (True, again)):
                steps, calls = self._longest(*prices.workflow(benchmark, again=later))
                each = workflows.times(share / len(calls)).times(steps)
                for worker, call in calls.items():
                    bills.of(prices, worker).take(call, each)
                dearest += workflows.high * share * steps.high * max(call.usd.high for call in calls.values())
            chain = chain.plus(steps.times(_mean(calls, lambda call: call.latency_s)).times(share))
        return self._stage(name, what, bills, dearest=dearest, chain=chain.times(waits / 3600))

    def _longest(self, steps: Span, calls: Mapping[str, Call]) -> tuple[Span, dict[str, Call]]:
        """The workflow with as many steps as are allowed at its high end, each of which sees all before it."""
        most = self._setup.recipe.prompting.max_steps
        said = _mean(calls, lambda call: call.answer).high + SUBTASK_TOKENS
        more = Span(0.0, 0.0, (most - steps.high) / 2 * said)
        longer = {name: call._replace(prompt=call.prompt.plus(more)) for name, call in calls.items()}
        return steps._replace(high=float(most)), longer

    def _stage(
        self, name: str, what: str, bills: _Bills, dearest: float | None = None, chain: Span = NOTHING
    ) -> StageCost:
        """`dearest`: USD at most, of workflows: each step by the dearest worker; None: the workers are known."""
        usd = bills.sum(lambda bill: bill.usd)
        if dearest is not None:
            usd = usd._replace(high=dearest)
        paid = DISTINCT.get(TRAINING if name in _REPEATING else name) if self._scratch else None
        hours = bills.hours()
        slowest = max(hours, key=lambda worker: hours[worker].expected, default="")
        longest = Span(*map(max, zip(chain, *hours.values(), strict=True)))
        limited = "a workflow's length" if chain.expected >= hours.get(slowest, NOTHING).expected else slowest
        return StageCost(
            name,
            what,
            bills.sum(lambda bill: bill.calls),
            bills.sum(lambda bill: bill.tokens),
            usd if paid is None else usd.times(paid),
            longest,
            limited if longest.expected else "",
            worth=usd,
        )


def _mean(calls: Mapping[str, Call], of: Callable[[Call], Span]) -> Span:
    return reduce(Span.plus, map(of, calls.values())).times(1 / len(calls))


def _most(count: int, limit: int | None) -> int:
    return count if limit is None else min(count, limit)
