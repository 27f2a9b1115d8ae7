"""Baseline: the best fixed workflow; the Conductor's lead over it is the worth of choosing a workflow per question."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ops.config import Worker
from ops.core.problem import Problem
from ops.core.registry import StaticStep, plugins
from ops.evaluation.baseline import asking
from ops.evaluation.method import PROPOSERS, VOTERS, Known, Method, chained, checked, majority, mixture
from ops.workflow.grammar import Step, Workflow

STRONG = 3
"""The number of best single workers that are combined; every worker is tried alone."""
SAMPLE = 160
"""The number of training problems on which each candidate is tried: 40 in each of four domains."""


class Candidate(NamedTuple):
    """A workflow that is tried, and the number of its samples that vote."""

    name: str
    workflow: Workflow
    voters: int = 1

    @property
    def method(self) -> Method:
        """The method that runs the samples and takes the majority vote."""
        return Method.samples(self.workflow, self.voters, majority, self.name)

    @property
    def calls(self) -> int:
        """The number of responses per question."""
        return self.voters * len(self.workflow.steps)


def _learning(workers: int) -> int:
    everything = candidates(range(workers), [""] * workers)
    # A pool of a plug-in's size is taken for the plug-in's pool, so that the forecast is not too low. The workers'
    # own answers are precached and not counted.
    sets = [plugin.workflows().values() for plugin in plugins().values() if workers == len(plugin.NAMES)]
    further = sum(len(steps) for stated in sets for steps in stated)
    return SAMPLE * (sum(candidate.calls for candidate in everything) - workers + further)


@asking(
    "best static",
    place=90,
    calls=lambda workers: max(VOTERS, min(workers, PROPOSERS) + 1),
    learning=_learning,
    source="ours (ops/evaluation/baselines/best_static.py); arXiv:2512.04388 does not compare with such a baseline",
    differs=f"The candidates are each single worker and, with the {STRONG} best workers, votes, pairs that solve and "
    f"check, chains, and mixtures of agents. They are compared on {SAMPLE} training questions. If several are "
    "equally good, the cheapest is used. For the synthetic pool, the workflows of its plug-in are candidates "
    "too.",
)
def best_static(known: Known) -> Method:
    """The fixed workflow that is best on a sample of the training questions answers every question.

    Every candidate is tried on the same problems. If several are equally good, the cheapest is returned.
    """
    names, sample = known.team.names, sampled(known.problems, known.seed)
    offered = candidates(known.ranking, names)
    offered += further(known.team.workers)

    def standing(candidate: Candidate) -> tuple[int, float]:
        rows = known.run(candidate.method, sample)
        return sum(row.correct for row in rows), -sum(row.cost_usd for row in rows)

    return max(offered, key=standing).method


def candidates(ranking: Sequence[int], names: Sequence[str]) -> list[Candidate]:
    """Return the candidates for any pool; `ranking`: the ordinals from best to worst, `names`: by ordinal."""
    strong = ranking[:STRONG]
    made = [Candidate(names[worker], Workflow.single(worker)) for worker in ranking]
    made += [Candidate(f"{VOTERS} × {names[worker]}, voted", Workflow.single(worker), VOTERS) for worker in strong]
    for one in strong:
        made += [Candidate(f"{names[one]}, checked by {names[other]}", checked(one, other)) for other in strong]
    for length in range(2, len(strong) + 1):
        chain = strong[:length][::-1]  # the best worker takes the last step
        made.append(Candidate(" → ".join(names[worker] for worker in chain), chained(chain)))
    proposers = sorted(ranking[:PROPOSERS])
    return made + [Candidate(f"all to {names[worker]}", mixture(proposers, worker)) for worker in strong]


def sampled(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """Draw at most `SAMPLE` of the problems by seed, at most the same number from each domain."""
    by_domain: dict[str, list[Problem]] = defaultdict(list)
    for problem in sorted(problems, key=lambda problem: problem.key):
        by_domain[problem.domain].append(problem)
    drawn: list[Problem] = []
    for domain, own in sorted(by_domain.items()):
        drawn += Random(f"{seed} {domain}").sample(own, min(len(own), SAMPLE // len(by_domain)))
    return drawn


def further(workers: Sequence[Worker]) -> list[Candidate]:
    """Return the workflows that a plug-in declares, if all of its workers are in the pool; ordinals are the pool's."""
    models = [worker.model for worker in workers]
    return [
        Candidate(name, workflow(steps, [model.removeprefix(f"{prefix}/") for model in models]))
        for prefix, plugin in plugins().items()
        if {f"{prefix}/{name}" for name in plugin.NAMES} <= {*models}
        for name, steps in plugin.workflows().items()
    ]


def workflow(steps: Sequence[StaticStep], names: Sequence[str]) -> Workflow:
    """Convert a plug-in's steps to a workflow; a worker's ordinal is its index in `names`."""
    made = [Step(names.index(each.worker), each.subtask, "all" if each.sees_all else "none") for each in steps]
    return Workflow(tuple(made))
