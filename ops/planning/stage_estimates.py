"""Estimate each stage's worker calls: number, tokens, USD and seconds, as ranges.

The plan lists the assumptions (`ops.planning.plan_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from statistics import fmean

from ops.benchmarks.registry import BENCHMARKS, training_benchmarks, training_domains
from ops.config import Grpo, PromptedPolicy, Setup, StaticPolicy, Teacher, Vote, Worker
from ops.core.errors import counted
from ops.evaluation.baseline import WorkflowBaseline, needs_every_worker, select_baselines
from ops.planning.estimate import NOTHING, SUBTASK_TOKENS, Call, Cost, Measured, Prices, Range, WorkerCosts, total
from ops.planning.lengths import Lengths, lengths
from ops.planning.stored import Left

HARD = (0.1, 0.5, 1.0)
"""Assumed share of training problems that no worker reliably solves alone; exploration tries workflows on them."""


COLD_START, TRAINING, SUBSETS, ROUNDS = "cold start", "training", "training on subsets", "training in rounds"
EVALUATION = "evaluation"
"""The stages' names."""


DISTINCT = {COLD_START: Range(0.5, 0.9, 1.0), TRAINING: Range(0.2, 0.4, 1.0), EVALUATION: Range(0.0, 0.67, 1.0)}
"""Share of the cost of a scratch policy's workflows that is paid for; identical calls are paid once.

The rollouts of a group repeat calls, and the first step of an evaluation workflow mostly repeats a worker's solo call.
The expected share is what the quickstart paid, relative to the cost of its workflows with workers chosen uniformly.
A language model's subtasks differ, so its calls are paid in full.
"""


_REPEATING = (SUBSETS, ROUNDS)
"""Stages whose rollouts repeat calls as those of training do."""


ONE = Range.of(1.0)
ANEW = Range(0.0, 0.5, 1.0)
"""Share of recursive rounds that call workers again instead of keeping the answer."""


class Stages:
    """Estimate the cost of each stage of one recipe."""

    def __init__(
        self,
        setup: Setup,
        known: Lengths,
        questions: Mapping[str, int | None],
        measured: Measured,
        left: Left | None = None,
    ) -> None:
        """`questions`: benchmark → number of evaluation questions. `measured`: measurements of the recipe's pool.
        `left`: shares that remain to be paid for; None: nothing is stored."""
        self._left = left or Left()
        self._setup, self._prices = setup, _prices(setup, known, measured)
        self._prompt = known.prompt
        priced = {setup.pool.answers_key: self._prices}
        self._evaluated: dict[str, Prices] = {}
        for name in questions:  # a separate evaluation pool has no measurements
            asked = setup.asked_on(name)
            self._evaluated[name] = priced.setdefault(asked.pool.answers_key, _prices(asked, known))
        settings = {name: setup.recipe.evaluation.of(name) for name in questions}
        self._questions = {name: _most(count or 0, settings[name].most_questions) for name, count in questions.items()}
        self._answers = {name: count * settings[name].repeats for name, count in self._questions.items()}
        theirs = setup.recipe.evaluation.of_opponents
        self._opponents = {name: float(count * theirs.of(name).repeats) for name, count in self._questions.items()}
        self._trained = training_benchmarks(setup.recipe.benchmarks)
        self._scratch = setup.recipe.policy.kind == "scratch"

    @property
    def places(self) -> int:
        """Number of problems in the training mix."""
        recipe = self._setup.recipe
        return len(training_domains(recipe.benchmarks)) * recipe.curation.per_domain

    @property
    def answers(self) -> dict[str, float]:
        """Benchmark → answers that a scored policy still has to give: questions × repeats, without stored ones."""
        return {name: count * self._left.evaluation.get(name, 1.0) for name, count in self._answers.items()}

    def all(self) -> list[Cost]:
        """All stages in the order of a pipeline run, without the stages that the recipe omits."""
        stages: list[Cost | None] = [self.precaching()]
        if self._setup.recipe.trains:
            stages += [self.cold_start(), self.training(), self.adaptive(), self.recursive()]
        stages += [self.baselines(), self.evaluation()]
        return [stage for stage in stages if stage is not None]

    def precaching(self) -> Cost:
        """Cost of precaching: every worker answers every candidate."""
        recipe = self._setup.recipe
        candidates, samples = round(self.places * recipe.curation.shortlist_factor), recipe.precaching.samples
        workers = len(self._setup.pool.workers)
        what = f"{candidates:,} problems × {workers} workers × {samples}"
        prices, costs = self._prices, WorkerCosts()
        for benchmark, count in self._spread(candidates * samples).items():
            for worker in prices.workers:
                share = self._left.precaching.get((worker.name, benchmark), 1.0)
                self._answered(costs, prices, worker, benchmark, count * share)
        return self._stage("precaching", what, costs)

    def cold_start(self) -> Cost | None:
        """Cost of the cold start: the workflows that exploration tries."""
        cold_start = self._setup.recipe.cold_start
        pretrained = self._setup.recipe.policy.kind == "pretrained"
        if cold_start is None or not (cold_start.attempts or cold_start.teacher or pretrained):
            return None
        tries = 2 * cold_start.attempts
        tried = Range(*(share * self.places * tries for share in HARD)).times(self._left.cold_start)
        what = f"{tries} workflows on each problem that no worker solves alone" if tries else "no worker is asked"
        explored = self._workflows(COLD_START, what, tried, self._spread(1))
        return explored if cold_start.teacher is None else self._with_teacher(explored, cold_start.teacher)

    def _with_teacher(self, explored: Cost, teacher: Teacher) -> Cost:
        """Add the cost of the teacher's workflows, and of writing them."""
        count = Range.of(self.places * teacher.samples * self._left.cold_start)
        costs = WorkerCosts()
        if isinstance(policy := teacher.policy, PromptedPolicy):
            recipe = self._setup.recipe
            full = recipe.prompting.model_copy(update={"style": "full"})
            prompt = lengths(replace(self._setup, recipe=recipe.model_copy(update={"prompting": full}))).prompt
            worker = next(each for each in self._prices.workers if each.name == policy.worker)
            costs.of(self._prices, worker).take(self._prices.writing(worker, prompt), count)
        written = self._stage("", "", costs)
        played = self._workflows("", "", count, self._spread(1))
        what = f"{explored.what}; {self.places} problems × {teacher.samples} workflows of the teacher ({policy.kind})"
        return total([explored, written, played], COLD_START, what)

    def training(self) -> Cost:
        """Cost of training: the workflow of every rollout."""
        return self._rollouts(TRAINING, self._setup.recipe.grpo, left=self._left.training)

    def adaptive(self) -> Cost | None:
        """Cost of training on worker subsets, each worker being offered equally often on average."""
        recipe = self._setup.recipe
        if recipe.adaptive is None:
            return None
        return self._rollouts(SUBSETS, recipe.adaptive.grpo(recipe.grpo), left=self._left.adaptive)

    def recursive(self) -> Cost | None:
        """Cost of training in rounds: half of the rollouts are recursive rounds, which keep the answer or ask again."""
        recipe = self._setup.recipe
        if recipe.recursive is None:
            return None
        grpo = recipe.recursive.grpo(recipe.grpo)
        return self._rollouts(ROUNDS, grpo, recursive=0.5, left=self._left.recursive)

    def last_training(self) -> Cost:
        """Cost of the recipe's last training stage."""
        return self.recursive() or self.adaptive() or self.training()

    def _rollouts(self, name: str, grpo: Grpo, recursive: float = 0.0, left: float = 1.0) -> Cost:
        """`recursive`: share of rollouts that are recursive rounds; `left`: share of steps still to run."""
        rollouts = Range.of(grpo.steps * grpo.rollouts_per_step * left)
        what = f"{grpo.steps} steps × {grpo.rollouts_per_step} rollouts"
        again = rollouts.times(ANEW).times(recursive)
        waits = grpo.steps * left * (2 if recursive else 1)
        return self._workflows(name, what, rollouts.times(1 - recursive), self._spread(1), again, waits)

    def baselines(self) -> Cost:
        """Cost of the baselines: solo workers on the test questions, and the recipe's workflow baselines."""
        workers = len(self._setup.pool.workers)
        asked = self._opponents
        alone = self._alone(asked)
        what = alone.what
        named = self._setup.recipe.evaluation.baselines
        asking = [
            entry
            for entry in select_baselines(named)
            if isinstance(entry, WorkflowBaseline) and not (entry.uses_solo_responses and needs_every_worker(named))
        ]
        if not asking:
            return alone
        parts, words = [alone], []
        for entry in asking:
            calls, problems = entry.calls_per_question(workers), entry.learning_calls(workers)
            open_ = {name: count * self._left.baselines.get((entry.name, name), 1.0) for name, count in asked.items()}
            learning = self._spread(problems) if any(open_.values()) else {}
            parts += [self._baseline(calls, open_, self._evaluated), self._baseline(1, learning, {})]
            words.append(f"{entry.title} ({calls:.0f}{f', and {problems:,.0f} to the mix' if problems else ''})")
        slowest = max(parts, key=lambda part: part.worker_s.expected)
        what = f"{what}; calls a question: {', '.join(words)}"
        return replace(total(parts, "baselines", what), limited_by=slowest.limited_by)

    def _alone(self, asked: Mapping[str, float]) -> Cost:
        """Cost of every worker, or of the best single worker, on the test questions.

        Precaching determines which worker is best.
        """
        cells, names = self._left.alone, self._setup.pool.names
        if not needs_every_worker(self._setup.recipe.evaluation.baselines):
            shares = {name: max((cells.get((each, name), 0.0) for each in names), default=0.0) for name in asked}
            open_ = {name: count * (shares[name] if cells else 1.0) for name, count in asked.items()}
            best = self._baseline(1, open_, self._evaluated)
            return replace(best, name="best worker alone", what=f"{self._asked()}, for the promotion gate")
        costs = WorkerCosts()
        for benchmark, count in asked.items():
            prices = self._evaluated[benchmark]
            for worker in prices.workers:
                share = cells.get((worker.name, benchmark), 1.0)
                self._answered(costs, prices, worker, benchmark, count * share)
        return self._stage("every worker alone", f"{self._asked()} × {len(names)} workers", costs)

    def _baseline(self, calls: float, asked: Mapping[str, float], on: Mapping[str, Prices]) -> Cost:
        """Cost of at most `calls` calls per question, each of which sees none, half or all of the earlier answers.

        The best worker is unknown before precaching: the range extends from the cheapest to the most expensive worker.
        """
        seen = (calls - 1) / 2
        costs, alone = WorkerCosts(), dict.fromkeys(self._setup.pool.names, 0.0)  # USD
        for benchmark, count in asked.items():
            prices = on.get(benchmark, self._prices)
            each = [(worker, prices.call(worker, benchmark)) for worker in prices.workers]
            said = reduce(Range.plus, (call.answer for _, call in each)).times(1 / len(each))
            shown = said.plus(Range.of(SUBTASK_TOKENS)).times(Range(0.0, seen / 2, seen))
            for worker, call in each:
                asking = call._replace(prompt=call.prompt.plus(shown))
                costs.of(prices, worker).take(asking, Range.of(count * calls / len(each)))
                alone[worker.name] += count * call.usd.expected
            costs.judge(prices, benchmark, said, Range.of(count))
        cost, mean = self._stage("", "", costs), fmean(alone.values())
        ratios = Range(min(alone.values()) / mean, 1.0, max(alone.values()) / mean) if mean else Range.of(1.0)
        return replace(cost, usd=cost.usd.times(ratios))

    def _answered(self, costs: WorkerCosts, prices: Prices, worker: Worker, benchmark: str, count: float) -> None:
        """Add `count` answers of a worker alone, and their judge."""
        call = prices.call(worker, benchmark)
        costs.of(prices, worker).take(call, Range.of(count))
        costs.judge(prices, benchmark, call.answer, Range.of(count))

    def evaluation(self, policies: int | None = None) -> Cost:
        """Cost of the Conductor on the test questions, before and after GRPO if there is a cold start.

        `policies`: number of scored policies, if it differs from the recipe's. The last policy also runs in rounds.
        """
        recipe = self._setup.recipe
        scored = policies or 1 + (recipe.cold_start is not None)
        answers = self.answers
        asked = sum(answers.values())
        what = self._asked() + (", before and after GRPO" if scored > 1 else "")
        again = NOTHING
        if recipe.recursive is not None and recipe.recursive.limits.rounds:
            again, what = ANEW.times((recipe.recursive.limits.calls_ratio - 1) * asked), f"{what}, in rounds"
        return self._played(what, scored, answers, again)

    def night(self) -> Cost:
        """Cost of one policy's first rounds, once per question, without stored answers."""
        cost = self._played(f"{sum(self._questions.values()):,} questions", 1, self._questions)
        return replace(cost, usd=cost.worth)

    def _played(self, what: str, policies: int, answers: Mapping[str, float], again: Range = NOTHING) -> Cost:
        """Cost of the policy's workflows on these numbers of questions, and of writing them if a worker does."""
        policy, vote = self._setup.recipe.policy, self._setup.recipe.evaluation.vote
        if vote.workflows > 1:
            what = f"{what}, up to {vote.workflows} workflows each"
        if isinstance(policy, StaticPolicy):
            return self._fixed(policy, f"{what}, one workflow of {counted(len(policy.workflow), 'step')}", answers)
        asked, times = Range.of(policies * sum(answers.values())), self._voting(1)
        played = self._workflows(EVALUATION, what, asked, _shares(answers), again, on=self._evaluated, voting=times)
        if not isinstance(policy, PromptedPolicy):
            return played
        costs = WorkerCosts()
        for benchmark, count in answers.items():
            prices = self._evaluated[benchmark]
            worker = next(each for each in prices.workers if each.name == policy.worker)
            costs.of(prices, worker).take(prices.writing(worker, self._prompt), self._voting(count))
        written = self._stage("", "", costs)
        slower = max(played, written, key=lambda part: part.worker_s.expected)
        what = f"{what}; {policy.worker} writes each workflow, in a call of its own"
        return replace(total([played, written], EVALUATION, what), limited_by=slower.limited_by)

    def _fixed(self, policy: StaticPolicy, what: str, answers: Mapping[str, float]) -> Cost:
        """Cost of one workflow for every question; each step also reads the answers that it sees."""
        costs = WorkerCosts()
        for benchmark, count in answers.items():
            prices = self._evaluated[benchmark]
            workers = {worker.name: worker for worker in prices.workers}
            calls = [prices.call(workers[step.worker], benchmark) for step in policy.workflow]
            for place, (step, call) in enumerate(zip(policy.workflow, calls, strict=True)):
                sees = range(place) if step.access == "all" else step.access
                said = reduce(Range.plus, (calls[earlier].answer for earlier in sees), NOTHING)
                more = said.plus(Range.of(SUBTASK_TOKENS * (1 + len(sees))))
                costs.of(prices, workers[step.worker]).take(
                    call._replace(prompt=call.prompt.plus(more)), self._voting(count)
                )
            costs.judge(prices, benchmark, calls[-1].answer, Range.of(count))
        return self._stage(EVALUATION, what, costs)

    def _voting(self, answers: float) -> Range:
        return workflows_an_answer(self._setup.recipe.evaluation.vote).times(answers)

    def _asked(self) -> str:
        repeats = {self._setup.recipe.evaluation.of(name).repeats for name in self._questions}
        times = str(repeats.pop()) if len(repeats) == 1 else f"{min(repeats)} to {max(repeats)}"
        return f"{sum(self._questions.values()):,} questions × {times}"

    def _spread(self, problems: float) -> dict[str, float]:
        """Distribute `problems` over the training benchmarks, with equal weight per domain."""
        domains = [BENCHMARKS[name].domain for name in self._trained]
        return {
            name: problems / len(set(domains)) / domains.count(domain)
            for name, domain in zip(self._trained, domains, strict=True)
        }

    def _workflows(
        self,
        name: str,
        what: str,
        count: Range,
        shares: Mapping[str, float],
        again: Range = NOTHING,
        waits: float = 0,
        on: Mapping[str, Prices] | None = None,
        voting: Range = ONE,
    ) -> Cost:
        """Cost of `count` workflows, or `count` times as many as vote on an answer, which is judged once.

        `again`: additional workflows of later rounds. `waits`: number of batches that end when their last workflow
        ends. `on`: benchmark → prices of its pool, if it is not the recipe's pool.
        """
        costs = WorkerCosts()
        chain, most_expensive = NOTHING, 0.0
        for benchmark, share in shares.items():
            prices = (on or {}).get(benchmark, self._prices)
            for later, workflows in ((False, count), (True, again)):
                steps, calls = self._longest(*self._workflow(prices, benchmark, again=later))
                steps = steps.times(voting)
                each = workflows.times(share / len(calls)).times(steps)
                for worker in prices.workers:
                    costs.of(prices, worker).take(calls[worker.name], each)
                judged = costs.judge(prices, benchmark, _mean(calls, lambda call: call.answer), workflows.times(share))
                most_usd = steps.high * max(call.usd.high for call in calls.values()) + judged.high
                most_expensive += workflows.high * share * most_usd
            chain = chain.plus(steps.times(_mean(calls, lambda call: call.latency_s)).times(share))
        return self._stage(name, what, costs, most_expensive=most_expensive, chain=chain.times(waits))

    def _workflow(self, prices: Prices, benchmark: str, *, again: bool = False) -> tuple[Range, dict[str, Call]]:
        """Return (steps, worker name → mean call of a step), with workers chosen uniformly.

        Low: one step. High: (1 + max_steps) / 2 steps, each of which sees all earlier steps. Expected: the same number
        of steps, each of which sees half of them. `again`: a later round, whose steps may also see the previous answer.
        """
        most = (1 + self._setup.recipe.prompting.max_steps) / 2
        alone = {worker.name: prices.call(worker, benchmark) for worker in prices.workers}
        seen = (most - 1) / 2 + again  # mean number of visible answers: binomial(most, 2) pairs ÷ most steps
        said = _mean(alone, lambda call: call.answer).plus(Range.of(SUBTASK_TOKENS))
        wider = said.times(Range(0.0, seen / 2, seen)).plus(Range.of(SUBTASK_TOKENS))
        steps = {name: call._replace(prompt=call.prompt.plus(wider)) for name, call in alone.items()}
        return Range(1.0, most, most), steps

    def _longest(self, steps: Range, calls: Mapping[str, Call]) -> tuple[Range, dict[str, Call]]:
        """Set the high end to the maximum number of steps, each of which sees all earlier steps."""
        most = self._setup.recipe.prompting.max_steps
        said = _mean(calls, lambda call: call.answer).high + SUBTASK_TOKENS
        more = Range(0.0, 0.0, (most - steps.high) / 2 * said)
        longer = {name: call._replace(prompt=call.prompt.plus(more)) for name, call in calls.items()}
        return steps._replace(high=float(most)), longer

    def _stage(
        self, name: str, what: str, costs: WorkerCosts, most_expensive: float | None = None, chain: Range = NOTHING
    ) -> Cost:
        """The stage's cost. `most_expensive`: USD if the most expensive worker runs all steps; None: fixed workers."""
        cost = costs.cost(name, what, chain_s=chain)
        worth = cost.usd if most_expensive is None else cost.usd._replace(high=most_expensive)
        paid = DISTINCT.get(TRAINING if name in _REPEATING else name) if self._scratch else None
        return replace(cost, usd=worth if paid is None else worth.times(paid), worth=worth)


def workflows_an_answer(vote: Vote) -> Range:
    """Return the number of workflows that give an answer: from those that must agree to all that may vote."""
    return Range(vote.enough, (vote.enough + vote.workflows) / 2, vote.workflows)


def _prices(setup: Setup, known: Lengths, measured: Measured | None = None) -> Prices:
    judges = {name: grader.judge for name, grader in setup.recipe.judges.items()}
    return Prices(setup.pool.workers, measured, pool_file=setup.pool_file, question=known.question, judges=judges)


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    """Each count as a share of the total; empty if the total is 0."""
    whole = sum(counts.values())
    return {name: count / whole for name, count in counts.items()} if whole else {}


def _mean(calls: Mapping[str, Call], of: Callable[[Call], Range]) -> Range:
    return reduce(Range.plus, map(of, calls.values())).times(1 / len(calls))


def _most(count: int, limit: int | None) -> int:
    return count if limit is None else min(count, limit)
