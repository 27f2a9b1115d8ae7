"""Estimate the worker calls of each stage of a recipe: their number, tokens, USD and seconds, as ranges.

The printed plan lists the assumptions (`ops.planning.plan_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from statistics import fmean

from ops.benchmarks.registry import BENCHMARKS, training_benchmarks, training_domains
from ops.config import Grpo, PromptedPolicy, Setup, StaticPolicy, Teacher, Vote, Worker
from ops.core.errors import format_count
from ops.evaluation.baseline import WorkflowBaseline, needs_every_worker, select_baselines
from ops.planning.estimate import (
    SUBTASK_TOKENS,
    ZERO,
    CallEstimate,
    CallEstimator,
    Cost,
    MeasuredUsage,
    Range,
    WorkerCosts,
    add_costs,
)
from ops.planning.lengths import TokenLengths, estimate_lengths
from ops.planning.stored_results import RemainingShares

HARD_SHARE = (0.1, 0.5, 1.0)
"""The assumed share (0-1) of training problems that no worker reliably solves alone: low, expected and high. The cold
start tries workflows on these problems."""


COLD_START, TRAINING, SUBSETS, ROUNDS = "cold start", "training", "training on subsets", "training in rounds"
"""The names of the training stages."""
EVALUATION = "evaluation"
"""The name of the evaluation stage."""


PAID_SHARE = {COLD_START: Range(0.5, 0.9, 1.0), TRAINING: Range(0.2, 0.4, 1.0), EVALUATION: Range(0.0, 0.67, 1.0)}
"""The share (0-1) of the cost of a scratch policy's workflows that is paid for, because identical calls are paid once.

The rollouts of a group repeat calls, and the first step of an evaluation workflow mostly repeats a worker's solo call.
The expected share is what the quickstart paid, relative to the cost of its workflows with workers chosen uniformly. The
subtasks of a language model differ, so its calls are paid in full.
"""


_REPEATING_STAGES = (SUBSETS, ROUNDS)
"""The stages whose rollouts repeat calls as often as those of the stage `TRAINING`."""


ONE = Range.exactly(1.0)
"""The range that is exactly 1."""
NEW_WORKFLOW_SHARE = Range(0.0, 0.5, 1.0)
"""The assumed share (0-1) of recursive rounds that call workers again instead of keeping the previous answer."""


class StageEstimator:
    """Estimates the cost of each stage of one recipe."""

    def __init__(
        self,
        setup: Setup,
        lengths: TokenLengths,
        questions: Mapping[str, int | None],
        measured: MeasuredUsage,
        remaining: RemainingShares | None = None,
    ) -> None:
        """Create an estimator for the recipe of `setup`.

        `questions` maps each benchmark to its number of evaluation questions. `measured` holds measurements of the
        recipe's pool. `remaining` holds the shares of calls that are still to be paid for; None means that no answers
        are stored.
        """
        self._remaining = remaining or RemainingShares()
        self._setup, self._estimator = setup, _build_estimator(setup, lengths, measured)
        self._prompt = lengths.prompt
        priced = {setup.pool.answers_key: self._estimator}
        self._evaluation_estimators: dict[str, CallEstimator] = {}
        for name in questions:  # no measurements are known of a separate evaluation pool
            asked = setup.for_benchmark(name)
            self._evaluation_estimators[name] = priced.setdefault(
                asked.pool.answers_key, _build_estimator(asked, lengths)
            )
        settings = {name: setup.recipe.evaluation.for_benchmark(name) for name in questions}
        self._questions = {
            name: _at_most(count or 0, settings[name].max_questions) for name, count in questions.items()
        }
        self._answers_per_policy = {name: count * settings[name].repeats for name, count in self._questions.items()}
        theirs = setup.recipe.evaluation.for_opponents
        self._baseline_answers = {
            name: float(count * theirs.for_benchmark(name).repeats) for name, count in self._questions.items()
        }
        self._training_benchmarks = training_benchmarks(setup.recipe.benchmarks)
        self._is_scratch = setup.recipe.policy.kind == "scratch"

    @property
    def mix_size(self) -> int:
        """Return the number of problems in the training mix."""
        recipe = self._setup.recipe
        return len(training_domains(recipe.benchmarks)) * recipe.curation.per_domain

    @property
    def remaining_answers(self) -> dict[str, float]:
        """Return the number of answers that a scored policy still has to give, by benchmark.

        It is the number of questions times repeats, without the answers that are stored.
        """
        return {
            name: count * self._remaining.evaluation.get(name, 1.0) for name, count in self._answers_per_policy.items()
        }

    def estimate_all(self) -> list[Cost]:
        """Return the costs of all stages of the recipe in the order of a pipeline run."""
        stages: list[Cost | None] = [self.estimate_precaching()]
        if self._setup.recipe.is_trained:
            stages += [
                self.estimate_cold_start(),
                self.estimate_training(),
                self.estimate_adaptive(),
                self.estimate_recursive(),
            ]
        stages += [self.estimate_baselines(), self.estimate_evaluation()]
        return [stage for stage in stages if stage is not None]

    def estimate_precaching(self) -> Cost:
        """Return the cost of precaching, in which every worker answers every candidate problem."""
        recipe = self._setup.recipe
        candidates, samples = round(self.mix_size * recipe.curation.shortlist_factor), recipe.precaching.samples
        workers = len(self._setup.pool.workers)
        what = f"{candidates:,} problems × {workers} workers × {samples}"
        prices, costs = self._estimator, WorkerCosts()
        for benchmark, count in self._spread_over_benchmarks(candidates * samples).items():
            for worker in prices.workers:
                share = self._remaining.precaching.get((worker.name, benchmark), 1.0)
                self._add_answers(costs, prices, worker, benchmark, count * share)
        return self._build_stage("precaching", what, costs)

    def estimate_cold_start(self) -> Cost | None:
        """Return the cost of the workflows that the cold start tries.

        The result is None if there is no cold start, or if that of a policy from scratch calls no workers.
        """
        cold_start = self._setup.recipe.cold_start
        pretrained = self._setup.recipe.policy.kind == "pretrained"
        if cold_start is None or not (cold_start.attempts or cold_start.teacher or pretrained):
            return None
        tries = 2 * cold_start.attempts
        tried = Range(*(share * self.mix_size * tries for share in HARD_SHARE)).times(self._remaining.cold_start)
        what = f"{tries} workflows on each problem that no worker solves alone" if tries else "no worker is asked"
        explored = self._estimate_workflows(COLD_START, what, tried, self._spread_over_benchmarks(1))
        return explored if cold_start.teacher is None else self._add_teacher(explored, cold_start.teacher)

    def _add_teacher(self, explored: Cost, teacher: Teacher) -> Cost:
        """Return the cost of the cold start with that of writing and executing the teacher's workflows."""
        count = Range.exactly(self.mix_size * teacher.samples * self._remaining.cold_start)
        costs = WorkerCosts()
        if isinstance(policy := teacher.policy, PromptedPolicy):
            recipe = self._setup.recipe
            full = recipe.prompting.model_copy(update={"style": "full"})
            prompt = estimate_lengths(replace(self._setup, recipe=recipe.model_copy(update={"prompting": full}))).prompt
            worker = next(each for each in self._estimator.workers if each.name == policy.worker)
            costs.entry(self._estimator, worker).add_calls(self._estimator.estimate_writing(worker, prompt), count)
        written = self._build_stage("", "", costs)
        played = self._estimate_workflows("", "", count, self._spread_over_benchmarks(1))
        taught = f"{self.mix_size} problems × {teacher.samples} workflows of the teacher ({policy.kind})"
        what = f"{explored.calls_formula}; {taught}"
        return add_costs([explored, written, played], COLD_START, what)

    def estimate_training(self) -> Cost:
        """Return the cost of executing the workflow of every rollout of training."""
        return self._estimate_rollouts(TRAINING, self._setup.recipe.grpo, left=self._remaining.training)

    def estimate_adaptive(self) -> Cost | None:
        """Return the cost of training on subsets of the workers, or None if the recipe has no such stage.

        Each worker is assumed to be offered equally often.
        """
        recipe = self._setup.recipe
        if recipe.adaptive is None:
            return None
        return self._estimate_rollouts(SUBSETS, recipe.adaptive.grpo(recipe.grpo), left=self._remaining.adaptive)

    def estimate_recursive(self) -> Cost | None:
        """Return the cost of training in rounds, or None if the recipe has no such stage.

        Half of the rollouts are recursive rounds, which keep the previous answer or call workers again.
        """
        recipe = self._setup.recipe
        if recipe.recursive is None:
            return None
        grpo = recipe.recursive.grpo(recipe.grpo)
        return self._estimate_rollouts(ROUNDS, grpo, recursive=0.5, left=self._remaining.recursive)

    def estimate_last_training(self) -> Cost:
        """Return the cost of the recipe's last training stage."""
        return self.estimate_recursive() or self.estimate_adaptive() or self.estimate_training()

    def _estimate_rollouts(self, name: str, grpo: Grpo, recursive: float = 0.0, left: float = 1.0) -> Cost:
        """Return the cost of a training stage's rollouts.

        `recursive` is the share (0-1) of rollouts that are recursive rounds, `left` the share of steps that are still
        to run.
        """
        rollouts = Range.exactly(grpo.steps * grpo.rollouts_per_step * left)
        what = f"{grpo.steps} steps × {grpo.rollouts_per_step} rollouts"
        again = rollouts.times(NEW_WORKFLOW_SHARE).times(recursive)
        waits = grpo.steps * left * (2 if recursive else 1)
        return self._estimate_workflows(
            name, what, rollouts.times(1 - recursive), self._spread_over_benchmarks(1), again, waits
        )

    def estimate_baselines(self) -> Cost:
        """Return the cost of the baselines: single workers on the test questions, and the recipe's workflow
        baselines."""
        workers = len(self._setup.pool.workers)
        asked = self._baseline_answers
        alone = self._estimate_solo(asked)
        what = alone.calls_formula
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
            open_ = {
                name: count * self._remaining.baselines.get((entry.name, name), 1.0) for name, count in asked.items()
            }
            learning = self._spread_over_benchmarks(problems) if any(open_.values()) else {}
            parts += [
                self._estimate_baseline(calls, open_, self._evaluation_estimators),
                self._estimate_baseline(1, learning, {}),
            ]
            words.append(f"{entry.title} ({calls:.0f}{f', and {problems:,.0f} to the mix' if problems else ''})")
        slowest = max(parts, key=lambda part: part.worker_s.expected)
        what = f"{what}; calls a question: {', '.join(words)}"
        return replace(add_costs(parts, "baselines", what), limited_by=slowest.limited_by)

    def _estimate_solo(self, asked: Mapping[str, float]) -> Cost:
        """Return the cost of every worker, or only of the best single worker, on the test questions.

        Which worker is best is known only after precaching.
        """
        cells, names = self._remaining.solo, self._setup.pool.names
        if not needs_every_worker(self._setup.recipe.evaluation.baselines):
            shares = {name: max((cells.get((each, name), 0.0) for each in names), default=0.0) for name in asked}
            open_ = {name: count * (shares[name] if cells else 1.0) for name, count in asked.items()}
            best = self._estimate_baseline(1, open_, self._evaluation_estimators)
            return replace(
                best, name="best worker alone", calls_formula=f"{self._describe_questions()}, for the promotion gate"
            )
        costs = WorkerCosts()
        for benchmark, count in asked.items():
            prices = self._evaluation_estimators[benchmark]
            for worker in prices.workers:
                share = cells.get((worker.name, benchmark), 1.0)
                self._add_answers(costs, prices, worker, benchmark, count * share)
        return self._build_stage("every worker alone", f"{self._describe_questions()} × {len(names)} workers", costs)

    def _estimate_baseline(self, calls: float, asked: Mapping[str, float], on: Mapping[str, CallEstimator]) -> Cost:
        """Return the cost of `calls` calls per question, each of which sees none, half or all of the earlier answers.

        The best worker is unknown before precaching, so the range extends from the cheapest to the most expensive
        worker.
        """
        seen = (calls - 1) / 2
        costs, alone = WorkerCosts(), dict.fromkeys(self._setup.pool.names, 0.0)  # USD by worker
        for benchmark, count in asked.items():
            prices = on.get(benchmark, self._estimator)
            each = [(worker, prices.estimate_answer(worker, benchmark)) for worker in prices.workers]
            said = reduce(Range.plus, (call.answer for _, call in each)).times(1 / len(each))
            shown = said.plus(Range.exactly(SUBTASK_TOKENS)).times(Range(0.0, seen / 2, seen))
            for worker, call in each:
                asking = call._replace(prompt=call.prompt.plus(shown))
                costs.entry(prices, worker).add_calls(asking, Range.exactly(count * calls / len(each)))
                alone[worker.name] += count * call.usd.expected
            costs.add_judge_calls(prices, benchmark, said, Range.exactly(count))
        cost, mean = self._build_stage("", "", costs), fmean(alone.values())
        ratios = Range(min(alone.values()) / mean, 1.0, max(alone.values()) / mean) if mean else Range.exactly(1.0)
        return replace(cost, usd=cost.usd.times(ratios))

    def _add_answers(
        self, costs: WorkerCosts, prices: CallEstimator, worker: Worker, benchmark: str, count: float
    ) -> None:
        """Add `count` answers of a worker alone to `costs`, and the calls of the judge that grades them."""
        call = prices.estimate_answer(worker, benchmark)
        costs.entry(prices, worker).add_calls(call, Range.exactly(count))
        costs.add_judge_calls(prices, benchmark, call.answer, Range.exactly(count))

    def estimate_evaluation(self, policies: int | None = None) -> Cost:
        """Return the cost of the Conductor on the test questions, before and after GRPO if there is a cold start.

        `policies` is the number of scored policies, if it differs from the recipe's. The last policy also runs in
        rounds if the recipe has the recursive stage.
        """
        recipe = self._setup.recipe
        scored = policies or 1 + (recipe.cold_start is not None)
        answers = self.remaining_answers
        asked = sum(answers.values())
        what = self._describe_questions() + (", before and after GRPO" if scored > 1 else "")
        again = ZERO
        if recipe.recursive is not None and recipe.recursive.limits.rounds:
            again, what = (
                NEW_WORKFLOW_SHARE.times((recipe.recursive.limits.calls_ratio - 1) * asked),
                f"{what}, in rounds",
            )
        return self._estimate_policy(what, scored, answers, again)

    def estimate_nightly_evaluation(self) -> Cost:
        """Return the cost of one policy's first rounds, once per question and without stored answers."""
        cost = self._estimate_policy(f"{sum(self._questions.values()):,} questions", 1, self._questions)
        return replace(cost, usd=cost.usd_with_repeats)

    def _estimate_policy(self, what: str, policies: int, answers: Mapping[str, float], again: Range = ZERO) -> Cost:
        """Return the cost of a policy's workflows for `answers` answers per benchmark.

        If a worker writes the workflows, the cost of writing them is included.
        """
        policy, vote = self._setup.recipe.policy, self._setup.recipe.evaluation.vote
        if vote.workflows > 1:
            what = f"{what}, up to {vote.workflows} workflows each"
        if isinstance(policy, StaticPolicy):
            return self._estimate_static(
                policy, f"{what}, one workflow of {format_count(len(policy.workflow), 'step')}", answers
            )
        asked, times = Range.exactly(policies * sum(answers.values())), self._workflows_of(1)
        played = self._estimate_workflows(
            EVALUATION, what, asked, _shares(answers), again, on=self._evaluation_estimators, voting=times
        )
        if not isinstance(policy, PromptedPolicy):
            return played
        costs = WorkerCosts()
        for benchmark, count in answers.items():
            prices = self._evaluation_estimators[benchmark]
            worker = next(each for each in prices.workers if each.name == policy.worker)
            costs.entry(prices, worker).add_calls(
                prices.estimate_writing(worker, self._prompt), self._workflows_of(count)
            )
        written = self._build_stage("", "", costs)
        slower = max(played, written, key=lambda part: part.worker_s.expected)
        what = f"{what}; {policy.worker} writes each workflow, in a call of its own"
        return replace(add_costs([played, written], EVALUATION, what), limited_by=slower.limited_by)

    def _estimate_static(self, policy: StaticPolicy, what: str, answers: Mapping[str, float]) -> Cost:
        """Return the cost of executing the same workflow for every question. Each step also reads the answers that it
        sees."""
        costs = WorkerCosts()
        for benchmark, count in answers.items():
            prices = self._evaluation_estimators[benchmark]
            workers = {worker.name: worker for worker in prices.workers}
            calls = [prices.estimate_answer(workers[step.worker], benchmark) for step in policy.workflow]
            for place, (step, call) in enumerate(zip(policy.workflow, calls, strict=True)):
                sees = range(place) if step.access == "all" else step.access
                said = reduce(Range.plus, (calls[earlier].answer for earlier in sees), ZERO)
                more = said.plus(Range.exactly(SUBTASK_TOKENS * (1 + len(sees))))
                costs.entry(prices, workers[step.worker]).add_calls(
                    call._replace(prompt=call.prompt.plus(more)), self._workflows_of(count)
                )
            costs.add_judge_calls(prices, benchmark, calls[-1].answer, Range.exactly(count))
        return self._build_stage(EVALUATION, what, costs)

    def _workflows_of(self, answers: float) -> Range:
        """Return the number of workflows that are executed for this number of answers."""
        return workflows_per_answer(self._setup.recipe.evaluation.vote).times(answers)

    def _describe_questions(self) -> str:
        """Return the number of test questions and of their repeats in words."""
        repeats = {self._setup.recipe.evaluation.for_benchmark(name).repeats for name in self._questions}
        times = str(repeats.pop()) if len(repeats) == 1 else f"{min(repeats)} to {max(repeats)}"
        return f"{sum(self._questions.values()):,} questions × {times}"

    def _spread_over_benchmarks(self, problems: float) -> dict[str, float]:
        """Return how `problems` problems are divided among the training benchmarks, with equal weight per domain."""
        domains = [BENCHMARKS[name].domain for name in self._training_benchmarks]
        return {
            name: problems / len(set(domains)) / domains.count(domain)
            for name, domain in zip(self._training_benchmarks, domains, strict=True)
        }

    def _estimate_workflows(
        self,
        name: str,
        what: str,
        count: Range,
        shares: Mapping[str, float],
        again: Range = ZERO,
        waits: float = 0,
        on: Mapping[str, CallEstimator] | None = None,
        voting: Range = ONE,
    ) -> Cost:
        """Return the cost of `count` workflows, whose workers are chosen uniformly.

        `shares` has the share (0-1) of each benchmark. `again` is the number of additional workflows of later rounds.
        `waits` is the number of batches that end when their last workflow ends. `on` maps a benchmark to the estimator
        of its pool, if this is not the recipe's pool. `voting` is the number of workflows that vote on one answer;
        `count` then counts answers, and each answer is judged once.
        """
        costs = WorkerCosts()
        chain, most_expensive = ZERO, 0.0
        for benchmark, share in shares.items():
            prices = (on or {}).get(benchmark, self._estimator)
            for later, workflows in ((False, count), (True, again)):
                steps, calls = self._with_most_steps(*self._mean_workflow(prices, benchmark, again=later))
                steps = steps.times(voting)
                each = workflows.times(share / len(calls)).times(steps)
                for worker in prices.workers:
                    costs.entry(prices, worker).add_calls(calls[worker.name], each)
                judged = costs.add_judge_calls(
                    prices, benchmark, _mean(calls, lambda call: call.answer), workflows.times(share)
                )
                most_usd = steps.high * max(call.usd.high for call in calls.values()) + judged.high
                most_expensive += workflows.high * share * most_usd
            chain = chain.plus(steps.times(_mean(calls, lambda call: call.latency_s)).times(share))
        return self._build_stage(name, what, costs, most_expensive=most_expensive, chain=chain.times(waits))

    def _mean_workflow(
        self, prices: CallEstimator, benchmark: str, *, again: bool = False
    ) -> tuple[Range, dict[str, CallEstimate]]:
        """Return the number of steps of a workflow, and the mean call of a step for each worker by name.

        The low end has one step. The high end has (1 + max_steps) / 2 steps, each of which sees all earlier steps. The
        expected value has the same number of steps, each of which sees half of the earlier ones. With `again`, the
        workflow belongs to a later round, whose steps may also see the previous answer.
        """
        most = (1 + self._setup.recipe.prompting.max_steps) / 2
        alone = {worker.name: prices.estimate_answer(worker, benchmark) for worker in prices.workers}
        seen = (most - 1) / 2 + again  # mean number of visible answers: binomial(most, 2) pairs ÷ most steps
        said = _mean(alone, lambda call: call.answer).plus(Range.exactly(SUBTASK_TOKENS))
        wider = said.times(Range(0.0, seen / 2, seen)).plus(Range.exactly(SUBTASK_TOKENS))
        steps = {name: call._replace(prompt=call.prompt.plus(wider)) for name, call in alone.items()}
        return Range(1.0, most, most), steps

    def _with_most_steps(
        self, steps: Range, calls: Mapping[str, CallEstimate]
    ) -> tuple[Range, dict[str, CallEstimate]]:
        """Return the workflow with the maximum number of steps as its high end, where each step sees all earlier
        steps."""
        most = self._setup.recipe.prompting.max_steps
        said = _mean(calls, lambda call: call.answer).high + SUBTASK_TOKENS
        more = Range(0.0, 0.0, (most - steps.high) / 2 * said)
        longer = {name: call._replace(prompt=call.prompt.plus(more)) for name, call in calls.items()}
        return steps._replace(high=float(most)), longer

    def _build_stage(
        self, name: str, what: str, costs: WorkerCosts, most_expensive: float | None = None, chain: Range = ZERO
    ) -> Cost:
        """Return the cost of a stage.

        `most_expensive` is the USD that the stage takes if the most expensive worker runs all steps. None means that
        the workers are fixed.
        """
        cost = costs.build_cost(name, what, chain_s=chain)
        worth = cost.usd if most_expensive is None else cost.usd._replace(high=most_expensive)
        paid = PAID_SHARE.get(TRAINING if name in _REPEATING_STAGES else name) if self._is_scratch else None
        return replace(cost, usd=worth if paid is None else worth.times(paid), usd_with_repeats=worth)


def workflows_per_answer(vote: Vote) -> Range:
    """Return the number of workflows that give an answer: from those that must agree to all that may vote."""
    return Range(vote.needed_votes, (vote.needed_votes + vote.workflows) / 2, vote.workflows)


def _build_estimator(setup: Setup, known: TokenLengths, measured: MeasuredUsage | None = None) -> CallEstimator:
    judges = {name: grader.judge for name, grader in setup.recipe.judges.items()}
    return CallEstimator(
        setup.pool.workers, measured, pool_file=setup.pool_file, question_tokens=known.question, judges=judges
    )


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    """Return each count as a share (0-1) of the total. The mapping is empty if the total is 0."""
    whole = sum(counts.values())
    return {name: count / whole for name, count in counts.items()} if whole else {}


def _mean(calls: Mapping[str, CallEstimate], of: Callable[[CallEstimate], Range]) -> Range:
    """Return the mean of a figure over the calls of all workers."""
    return reduce(Range.plus, map(of, calls.values())).times(1 / len(calls))


def _at_most(count: int, limit: int | None) -> int:
    return count if limit is None else min(count, limit)
