"""Baseline: the best fixed workflow.

The Conductor's lead over it measures the worth of choosing a workflow per question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ops.config import Worker
from ops.core.problem import Problem
from ops.core.registry import StaticStep, load_plugins
from ops.evaluation.baseline import workflow_baseline
from ops.evaluation.method import (
    PROPOSERS,
    VOTERS,
    Method,
    TrainingData,
    choose_majority,
    make_chain,
    make_checked_workflow,
    make_mixture,
)
from ops.workflow.grammar import Step, Workflow

STRONG_WORKERS = 3
"""The number of best single workers that are combined; every worker is also tried alone."""
TRIED_PROBLEMS = 160
"""The number of training problems on which each candidate is tried: 40 in each of four domains."""


class Candidate(NamedTuple):
    """A workflow that is tried, and the number of its samples that vote."""

    name: str
    workflow: Workflow
    voters: int = 1

    @property
    def method(self) -> Method:
        """The method that runs the samples and takes the majority vote."""
        return Method.samples(self.workflow, self.voters, choose_majority, self.name)

    @property
    def calls(self) -> int:
        """The number of responses per question."""
        return self.voters * len(self.workflow.steps)


def _count_learning_calls(workers: int) -> int:
    everything = list_candidates(range(workers), [""] * workers)
    # A pool of a plug-in's size is taken for the plug-in's pool, so that the forecast is not too low. The workers'
    # own answers are precached and not counted.
    sets = [plugin.workflows().values() for plugin in load_plugins().values() if workers == len(plugin.NAMES)]
    further = sum(len(steps) for stated in sets for steps in stated)
    return TRIED_PROBLEMS * (sum(candidate.calls for candidate in everything) - workers + further)


@workflow_baseline(
    "best static",
    position=90,
    calls_per_question=lambda workers: max(VOTERS, min(workers, PROPOSERS) + 1),
    learning_calls=_count_learning_calls,
    source="ours (ops/evaluation/baselines/best_static.py); arXiv:2512.04388 does not compare with such a baseline",
    differences=f"The candidates are each single worker and, with the {STRONG_WORKERS} best workers, votes, "
    f"pairs that solve and "
    f"check, chains, and mixtures of agents. They are compared on {TRIED_PROBLEMS} training questions. If several are "
    "equally good, the cheapest is used. For the synthetic pool, the workflows of its plug-in are candidates "
    "too.",
)
def best_static(training_data: TrainingData) -> Method:
    """The fixed workflow that is best on a sample of the training questions answers every question.

    Every candidate is tried on the same problems. If several are equally good, the cheapest is returned.
    """
    names, sample = training_data.team.names, sample_problems(training_data.problems, training_data.seed)
    offered = list_candidates(training_data.ranking, names)
    offered += list_plugin_candidates(training_data.team.workers)

    def score_candidate(candidate: Candidate) -> tuple[int, float]:
        rows = training_data.run_method(candidate.method, sample)
        return sum(row.correct for row in rows), -sum(row.cost_usd for row in rows)

    return max(offered, key=score_candidate).method


def list_candidates(ranking: Sequence[int], names: Sequence[str]) -> list[Candidate]:
    """Return the candidates for any pool; `ranking` are the ordinals from best to worst, `names` the workers by
    ordinal."""
    strong = ranking[:STRONG_WORKERS]
    made = [Candidate(names[worker], Workflow.single(worker)) for worker in ranking]
    made += [Candidate(f"{VOTERS} × {names[worker]}, voted", Workflow.single(worker), VOTERS) for worker in strong]
    for one in strong:
        made += [
            Candidate(f"{names[one]}, checked by {names[other]}", make_checked_workflow(one, other)) for other in strong
        ]
    for length in range(2, len(strong) + 1):
        chain = strong[:length][::-1]  # the best worker takes the last step
        made.append(Candidate(" → ".join(names[worker] for worker in chain), make_chain(chain)))
    proposers = sorted(ranking[:PROPOSERS])
    return made + [Candidate(f"all to {names[worker]}", make_mixture(proposers, worker)) for worker in strong]


def sample_problems(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """Draw at most `TRIED_PROBLEMS` of the problems by seed, the same number at most from each domain."""
    by_domain: dict[str, list[Problem]] = defaultdict(list)
    for problem in sorted(problems, key=lambda problem: problem.key):
        by_domain[problem.domain].append(problem)
    drawn: list[Problem] = []
    for domain, own in sorted(by_domain.items()):
        drawn += Random(f"{seed} {domain}").sample(own, min(len(own), TRIED_PROBLEMS // len(by_domain)))
    return drawn


def list_plugin_candidates(workers: Sequence[Worker]) -> list[Candidate]:
    """Return the workflows that a plug-in declares, if all of its workers are in the pool; ordinals are the pool's."""
    models = [worker.model for worker in workers]
    return [
        Candidate(name, convert_steps(steps, [model.removeprefix(f"{prefix}/") for model in models]))
        for prefix, plugin in load_plugins().items()
        if {f"{prefix}/{name}" for name in plugin.NAMES} <= {*models}
        for name, steps in plugin.workflows().items()
    ]


def convert_steps(steps: Sequence[StaticStep], names: Sequence[str]) -> Workflow:
    """Convert a plug-in's steps to a workflow; a worker's ordinal is its index in `names`."""
    made = [Step(names.index(each.worker), each.subtask, "all" if each.sees_all else "none") for each in steps]
    return Workflow(tuple(made))
