"""The input of exhibits: accuracy and price of every system by benchmark, training curves and experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Literal, NamedTuple, Self

from ops.benchmarks.registry import ood_benchmarks, training_benchmarks
from ops.results.leaderboard import Columns
from ops.results.statistics import MeanEstimate, accuracy_estimate, mean_of
from ops.results.summary import AnswerCost, Summary, question_means, summarize
from ops.results.table import Rows, table

Kind = Literal["Conductor", "cold start", "worker", "baseline"]
IN_DOMAIN, OOD = "in-domain", "out-of-distribution"
RANDOM = "random_worker"


@dataclass(frozen=True)
class System:
    """A system that answers questions, with its results on all scored benchmarks."""

    name: str
    title: str
    kind: Kind
    accuracies: Mapping[str, Mapping[str, float]]
    """Benchmark → question → accuracy over repeats, in [0, 1]."""
    spent: Mapping[str, AnswerCost]
    """Benchmark → mean usage per question."""
    unscorable: int = 0
    """Number of unscorable answers, which are excluded."""
    source: str = ""
    differs: str = ""
    """How a baseline differs from its authors' version."""

    @classmethod
    def of(cls, name: str, title: str, kind: Kind, rows: Rows, source: str = "", differs: str = "") -> Self:
        """Summarise the system's rows on all benchmarks."""
        rows = table(rows)
        summaries, accuracies = summarize(rows), question_means(rows)
        spent = {benchmark: AnswerCost.of(summaries[benchmark]) for benchmark in accuracies}
        unscorable = sum(each.unscorable for each in summaries.values())
        return cls(name, title, kind, accuracies, spent, unscorable, source, differs)

    def accuracy(self, over: Iterable[str]) -> MeanEstimate:
        """Unweighted mean accuracy over the scored benchmarks of `over`, with its standard error and 95 % interval."""
        return mean_of([accuracy_estimate(list(self.accuracies[name].values())) for name in over if name in self.spent])

    def price(self, over: Iterable[str]) -> AnswerCost:
        """Unweighted mean usage over the scored benchmarks of `over`; NaN if there are none."""
        return AnswerCost.mean([self.spent[name] for name in over if name in self.spent])


def drawn_at_random(workers: Sequence[System]) -> System:
    """The system that draws a worker at random for every question, computed as an expectation instead of sampled."""
    accuracies: dict[str, dict[str, float]] = {}
    for benchmark in workers[0].accuracies:
        answered = [worker.accuracies[benchmark] for worker in workers if benchmark in worker.accuracies]
        questions = dict.fromkeys(question for own in answered for question in own)
        accuracies[benchmark] = {name: fmean(own[name] for own in answered if name in own) for name in questions}
    prices = {benchmark: [each.spent[benchmark] for each in workers if benchmark in each.spent]
              for benchmark in accuracies}  # fmt: skip
    # A draw among workers has another percentile than the mean of theirs.
    spent = {benchmark: AnswerCost.mean(own)._replace(latency_p95_s=float("nan")) for benchmark, own in prices.items()}
    return System(RANDOM, "random worker", "baseline", accuracies, spent, source="expected value, computed")


class Experiment(NamedTuple):
    """The result of an experiment."""

    title: str
    changes: str
    """One sentence on what the experiment changed or examined."""
    table: Columns
    said: str = ""


class About(NamedTuple):
    """Identity and setting of the run behind the evidence."""

    recipe: str
    seed: int
    policy: str
    """The policy's key."""
    pool: str
    repeats: int = 1
    synthetic: bool = False
    """Whether any benchmark is embedded, so that the figures are not comparable to the paper's."""
    as_paper: bool = False
    """Whether recipe and pool are the paper's, so that the paper's figures are comparable."""

    @property
    def argument(self) -> str:
        """The arguments that select this run on the command line."""
        return f"{self.recipe} --seed {self.seed}"


@dataclass(frozen=True)
class Evidence:
    """All stored results of one policy."""

    about: About
    systems: Mapping[str, System]
    """Systems by name, the Conductor first."""
    conductor: Rows = ()
    best_worker: str = ""
    """Name of the best single worker on the training mix, chosen without the test questions."""
    curves: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Training stage → rows of its curve."""
    answers: Mapping[str, Mapping[str, Sequence[Sequence[float]]]] = field(default_factory=dict)
    """Benchmark → question → worker → repeat: scores in [0, 1] or NaN if unknown. An oracle chooses among them."""
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    """Experiments that were run on this policy, by name."""
    retrained: Sequence[str] = ()
    """Experiments that each train another policy; the report does not contain their tables."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Name of an unreadable input → reason."""

    @cached_property
    def workflows(self) -> dict[str, Summary]:
        """Benchmark → summary of the Conductor's rows."""
        return summarize(self.conductor)

    @cached_property
    def benchmarks(self) -> list[str]:
        """Benchmarks with scores of any system, training benchmarks first, in the registry's order."""
        known = (*training_benchmarks(), *ood_benchmarks())
        seen = {name for system in self.systems.values() for name in system.spent}
        return [name for name in known if name in seen]

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """The scored benchmarks, grouped into in-domain and out-of-distribution."""
        parts = {IN_DOMAIN: training_benchmarks(), OOD: ood_benchmarks()}
        made = {group: [name for name in self.benchmarks if name in names] for group, names in parts.items()}
        return {group: names for group, names in made.items() if names}

    @property
    def ours(self) -> System | None:
        return self.systems.get("conductor")

    def of_kind(self, *kinds: Kind) -> list[System]:
        """The systems of these kinds, in order."""
        return [system for system in self.systems.values() if system.kind in kinds]

    @property
    def opponents(self) -> list[System]:
        """Workers and baselines: the alternatives to the Conductor, without the policy's own cold start."""
        return self.of_kind("worker", "baseline")

    @property
    def questions(self) -> int:
        """Number of questions on all benchmarks."""
        own = next(iter(self.systems.values()), None)
        return sum(map(len, own.accuracies.values())) if own else 0

    @property
    def n(self) -> str:
        """Describe the sample: questions, benchmarks, answers per question and excluded answers."""
        repeats = "one answer each" if self.about.repeats == 1 else f"{self.about.repeats} answers each"
        left = sum(system.unscorable for system in self.systems.values())
        note = f"; {left} answers of unreachable workers left out" if left else ""
        return f"{self.questions:,} questions of {len(self.benchmarks)} benchmarks, {repeats}{note}"
