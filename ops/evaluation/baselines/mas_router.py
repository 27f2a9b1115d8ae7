"""Baseline: MasRouter, which learns to choose collaboration, roles and workers per question, with a penalty for
cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ops.core.problem import Problem
from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.baselines._collaboration import MAX_STEPS, MODES, Mode
from ops.evaluation.baselines._controller import Controller, Exploration, SampledWorkflow, convert_to_tensor
from ops.evaluation.baselines._embedding import QuestionEmbedding
from ops.evaluation.baselines._outcomes import Outcomes
from ops.evaluation.method import Method, TrainingData
from ops.workflow.grammar import Workflow

if TYPE_CHECKING:
    from torch import Generator, Tensor

LEARNING_ROUNDS, QUESTIONS_PER_ROUND = 40, 10
"""The number of learning rounds and of training problems per round. One workflow of each mode runs on each problem,
1,600 workflows in total."""
COST_PENALTY = 0.02
"""The reward that a workflow loses if it costs as much as the mean response of the best single worker."""
UNIFORM_SHARES = (0.5, 0.1)
"""The share of the probability that is spread evenly over choices, in the first and in the last round."""
LEARNING_RATE = 3.0
"""The learning rate of plain SGD. Adam would give evidence from one question the same weight as evidence from all."""
RIDGE, TEMPERATURE = 1.0, 0.1
"""Settings of the initial regression: its L2 penalty, and the difference in reward that makes a worker e times as
likely."""


@dataclass
class PolicyGradient:
    """Learns a controller by policy gradient (REINFORCE) over executed workflows."""

    training_data: TrainingData
    outcomes: Outcomes
    controller: Controller
    vectors: Tensor
    penalty: float
    """The weight of costs in the reward, which is 1 or 0 for the answer minus `penalty` × cost ÷
    `mean_best_worker_usd`."""

    @cached_property
    def mean_best_worker_usd(self) -> float:
        """The mean cost of the best single worker's response in USD; infinite (no penalty) if it is free."""
        return float(self.outcomes.usd[self.training_data.best_worker]) or float("inf")

    def initialize_worker_head(self, own: Sequence[int]) -> None:
        """Initialise the worker head by a ridge regression of the workers' precached rewards on these questions.

        A worker's probability is the softmax of its predicted reward: the best policy of a given entropy.
        """
        import torch
        from sklearn.linear_model import Ridge

        workers = list(self.controller.workers)
        scores = np.where(np.isnan(self.outcomes.scores), self.outcomes.mean_scores, self.outcomes.scores)[:, workers]
        rewards = scores - self.penalty * self.outcomes.usd[workers] / self.mean_best_worker_usd
        promised = Ridge(alpha=RIDGE).fit(self.vectors[own, :-1].numpy(), rewards[own])
        head = np.hstack([np.atleast_2d(promised.coef_), np.atleast_1d(promised.intercept_)[:, None]])
        self.controller.heads["worker"].data = torch.from_numpy(head / TEMPERATURE)

    def learn(self) -> None:
        """Initialise the worker head on one half of the problems, learn on the other, and initialise again on all.

        On problems that the regression was fitted on, its predictions would favour single workers too much.
        """
        import torch

        draw = torch.Generator().manual_seed(self.training_data.seed)
        order = torch.randperm(len(self.vectors), generator=draw).tolist()
        half = len(order) // 2
        self.initialize_worker_head(order[half:])
        self._rounds(order[:half] or order, draw)
        self.initialize_worker_head(order)

    def _rounds(self, problems: Sequence[int], draw: Generator) -> None:
        """Run `ROUNDS` rounds of policy gradient; the mode is learned in the second half only.

        The advantage of a workflow is its reward minus its mode's running mean, compared with that of the other modes
        on the same question.
        """
        import torch

        # The head that all roles share was fitted on every precached answer; a few runs would only add noise to it.
        learning = [head for name, head in self.controller.heads.items() if name != "worker"]
        optimizer = torch.optim.SGD(learning, lr=LEARNING_RATE)
        usual = torch.zeros(len(self.controller.modes), dtype=torch.float64)
        for done, own in enumerate(_draw_batches(problems, draw)):
            share = done / max(1, LEARNING_ROUNDS - 1)
            exploring = Exploration(draw, UNIFORM_SHARES[0] + share * (UNIFORM_SHARES[1] - UNIFORM_SHARES[0]))
            plans = [[self._plan(index, mode, exploring) for mode in self.controller.modes] for index in own]
            rewards = self._rewards(own, plans)
            known = ~rewards.isnan()
            better = torch.where(known, rewards - (usual if done else rewards.nanmean(0).nan_to_num()), 0.0)
            others = (better.sum(1, keepdim=True) - better) / max(1, len(usual) - 1)
            chances = torch.stack([torch.stack([plan.log_probability for plan in row]) for row in plans])
            loss = -((better - others).where(known, 0.0) * chances).sum() / max(1, int(known.sum()))
            if done >= LEARNING_ROUNDS // 2:
                modes = self.controller.mode_logits(self.vectors[own]).softmax(1)
                loss = loss - (modes * torch.where(known, rewards, usual)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            pace = 1 / min(done + 1, 10)
            usual = usual + pace * (torch.where(known, rewards, usual).mean(0) - usual)

    def _plan(self, index: int, mode: Mode, exploring: Exploration) -> SampledWorkflow:
        return self.controller.decide_workflow(self.vectors[index], mode, exploring)

    def _rewards(self, own: Sequence[int], plans: Sequence[Sequence[SampledWorkflow]]) -> Tensor:
        """Run the planned workflows and return rewards of shape questions × modes; NaN if a worker was unreachable."""
        import torch

        problems = [self.training_data.problems[index] for index in own]
        columns = []
        for mode in range(len(self.controller.modes)):
            chosen = {problem.key: row[mode].workflow for problem, row in zip(problems, plans, strict=True)}
            rows = self.training_data.run_method(_make_fixed_method(chosen), problems)
            columns.append(
                [
                    float("nan")
                    if row.unscorable
                    else row.correct - self.penalty * row.cost_usd / self.mean_best_worker_usd
                    for row in rows
                ]
            )
        return torch.tensor(columns, dtype=torch.float64).T


def _make_fixed_method(chosen: dict[str, Workflow]) -> Method:
    return Method.routed(lambda problems: [chosen[problem.key] for problem in problems])


def _draw_batches(problems: Sequence[int], draw: Generator) -> Iterator[list[int]]:
    """Yield `LEARNING_ROUNDS` batches of distinct problems; reshuffle when too few problems remain for a batch."""
    import torch

    waiting: list[int] = []
    for _ in range(LEARNING_ROUNDS):
        if len(waiting) < min(QUESTIONS_PER_ROUND, len(problems)):
            waiting = [problems[index] for index in torch.randperm(len(problems), generator=draw).tolist()]
        own, waiting = waiting[:QUESTIONS_PER_ROUND], waiting[QUESTIONS_PER_ROUND:]
        yield sorted(own)


def train_mas_router(training_data: TrainingData, penalty: float = COST_PENALTY) -> Method:
    """Train MasRouter; `penalty` as in `PolicyGradient`. Raises `ValueError` if no worker has answered a problem."""
    embedding, outcomes = (
        QuestionEmbedding.fit(training_data.problems, training_data.seed),
        Outcomes.from_training_data(training_data),
    )
    vectors = convert_to_tensor(embedding.embed(training_data.problems))
    workers = [worker for worker in sorted(training_data.team.ordinals) if np.isfinite(outcomes.usd[worker])]
    controller = Controller.with_zero_weights(
        vectors.shape[1], workers, min(MAX_STEPS, training_data.team.prompting.max_steps)
    )
    PolicyGradient(training_data, outcomes, controller, vectors, penalty).learn()
    usage = Counter(controller.choose_best(vector)[0] for vector in vectors)

    def route(problems: Sequence[Problem]) -> list[Workflow]:
        return [controller.choose_best(vector)[1] for vector in convert_to_tensor(embedding.embed(problems))]

    shares = [f"{mode} {usage[mode] / len(vectors):.0%}" for mode in MODES if usage[mode]]
    return Method.routed(route, ", ".join(shares))


@workflow_baseline(
    "MasRouter",
    position=70,
    calls_per_question=lambda workers: MAX_STEPS,
    learning_calls=lambda workers: LEARNING_ROUNDS * QUESTIONS_PER_ROUND * len(MODES) * MAX_STEPS,
    source="arXiv:2502.11133 (MasRouter)",
    differences="The heads of the network are linear in TF-IDF vectors. The authors embed questions, forms, roles and "
    "LLMs with a sentence encoder and have a latent variable. There are four forms of collaboration and four "
    "roles, in at most five steps. Which worker solves which questions is learned by a regression on the "
    "stored answers, and not from executed workflows. The gradient is exact over the forms and has a "
    "baseline. The penalty for cost is measured in answers of the best single worker. The most probable "
    "decision is taken, and none is drawn at random.",
)
def mas_router(training_data: TrainingData) -> Method:
    """A trained network chooses a form of collaboration, roles and workers for each question.

    It is trained with the default penalty.
    """
    return train_mas_router(training_data)
