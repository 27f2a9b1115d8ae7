"""What exhibits are made from: every system's accuracy and price by benchmark, the training curves, the experiments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Literal, NamedTuple, Self

from ops.benchmarks.registry import training_benchmarks, unseen_benchmarks
from ops.evaluation.report import Columns
from ops.evaluation.rows import OutcomeRow
from ops.evaluation.statistics import MeanEstimate, mean_estimate, mean_of, question_means

Kind = Literal["Conductor", "cold start", "worker", "baseline"]
IN_DOMAIN, OOD = "in-domain", "out-of-distribution"
RANDOM = "random_worker"


class QuestionCost(NamedTuple):
    """Means a question, of what the workers took; what the Conductor writes itself is not counted."""

    tokens: float
    usd: float
    calls: float
    latency_s: float
    """Of the critical path."""


@dataclass(frozen=True)
class System:
    """Whatever answers questions, on all benchmarks that it was scored on."""

    name: str
    title: str
    kind: Kind
    accuracies: Mapping[str, Mapping[str, float]]
    """Benchmark → question → accuracy over repeats, in [0, 1]."""
    spent: Mapping[str, QuestionCost]
    """By benchmark."""
    unscorable: int = 0
    """Answers of which nothing is known, left out."""
    source: str = ""
    differs: str = ""
    """In which way a baseline is not its authors' own."""

    @classmethod
    def of(
        cls, name: str, title: str, kind: Kind, rows: Sequence[OutcomeRow], source: str = "", differs: str = ""
    ) -> Self:
        """From its rows on all benchmarks."""
        scored: dict[str, list[OutcomeRow]] = defaultdict(list)
        for row in rows:
            if not row.unscorable:
                scored[row.benchmark].append(row)
        spent = {benchmark: _spent(own) for benchmark, own in scored.items()}
        unscorable = len(rows) - sum(map(len, scored.values()))
        return cls(name, title, kind, question_means(rows), spent, unscorable, source, differs)

    def accuracy(self, over: Iterable[str]) -> MeanEstimate:
        """Unweighted mean over those of the benchmarks that it was scored on, ± its standard error."""
        return mean_of([mean_estimate(list(self.accuracies[name].values())) for name in over if name in self.spent])

    def price(self, over: Iterable[str]) -> QuestionCost:
        """Unweighted means over those benchmarks; NaN where it was scored on none."""
        chosen = [self.spent[name] for name in over if name in self.spent]
        return QuestionCost(*map(fmean, zip(*chosen, strict=True))) if chosen else QuestionCost(*[float("nan")] * 4)


def _spent(rows: Sequence[OutcomeRow]) -> QuestionCost:
    return QuestionCost(
        fmean(row.tokens for row in rows),
        fmean(row.cost_usd for row in rows),
        fmean(len(row.usage) for row in rows),
        fmean(row.latency_s for row in rows),
    )


def drawn_at_random(workers: Sequence[System]) -> System:
    """A worker drawn anew for every question: its expectation, computed and not sampled."""
    accuracies: dict[str, dict[str, float]] = {}
    for benchmark in workers[0].accuracies:
        answered = [worker.accuracies[benchmark] for worker in workers if benchmark in worker.accuracies]
        questions = dict.fromkeys(question for own in answered for question in own)
        accuracies[benchmark] = {name: fmean(own[name] for own in answered if name in own) for name in questions}
    prices = {benchmark: [each.spent[benchmark] for each in workers if benchmark in each.spent]
              for benchmark in accuracies}  # fmt: skip
    spent = {benchmark: QuestionCost(*map(fmean, zip(*own, strict=True))) for benchmark, own in prices.items()}
    return System(RANDOM, "random worker", "baseline", accuracies, spent, source="expected value, computed")


class Experiment(NamedTuple):
    """What an experiment came to."""

    title: str
    changes: str
    """What was changed or looked at, in a sentence."""
    table: Columns
    said: str = ""


class About(NamedTuple):
    """Of which run the evidence is."""

    recipe: str
    seed: int
    policy: str
    """The policy's key."""
    pool: str
    repeats: int = 1
    synthetic: bool = False
    """Any of its benchmarks is embedded: the figures say nothing of the paper's."""
    as_paper: bool = False
    """Recipe and pool are the paper's own, so that its figures can stand beside ours."""

    @property
    def argument(self) -> str:
        """The arguments that select this run on the command line."""
        return f"{self.recipe} --seed {self.seed}"


@dataclass(frozen=True)
class Evidence:
    """All that is known of one policy."""

    about: About
    systems: Mapping[str, System]
    """By name, the Conductor first."""
    conductor: Sequence[OutcomeRow] = ()
    best_worker: str = ""
    """The system that is the best single worker by the training mix, chosen before the test is seen."""
    curves: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Stage of training → the lines of its curve."""
    answers: Mapping[str, Mapping[str, Sequence[Sequence[float]]]] = field(default_factory=dict)
    """Benchmark → question → worker → repeat, in [0, 1] with NaN for what is not known: what an oracle chooses from."""
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    """By name, those that were run on this policy."""
    retrained: Sequence[str] = ()
    """Experiments that train another policy each, whose tables are not the report's."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """What could not be read → why."""

    @cached_property
    def benchmarks(self) -> list[str]:
        """Those that any system was scored on: training ones first, in the registry's order."""
        known = (*training_benchmarks(), *unseen_benchmarks())
        seen = {name for system in self.systems.values() for name in system.spent}
        return [name for name in known if name in seen]

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """In-domain and out-of-distribution benchmarks, as far as they were scored."""
        parts = {IN_DOMAIN: training_benchmarks(), OOD: unseen_benchmarks()}
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
        """Workers and baselines: what could be bought instead. The policy's own cold start is none."""
        return self.of_kind("worker", "baseline")

    @property
    def questions(self) -> int:
        """Of all benchmarks together."""
        own = next(iter(self.systems.values()), None)
        return sum(map(len, own.accuracies.values())) if own else 0

    @property
    def n(self) -> str:
        """How much was asked."""
        repeats = "one answer each" if self.about.repeats == 1 else f"{self.about.repeats} answers each"
        left = sum(system.unscorable for system in self.systems.values())
        note = f"; {left} answers of unreachable workers left out" if left else ""
        return f"{self.questions:,} questions of {len(self.benchmarks)} benchmarks, {repeats}{note}"
