"""The input of exhibits: accuracy and price of every system on every benchmark, training curves, experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Literal, NamedTuple, Self

from ops.benchmarks.registry import ood_benchmarks, training_benchmarks
from ops.results.leaderboard import TableData
from ops.results.measures import MEANS, UNKNOWN, average_values
from ops.results.statistics import MeanEstimate, average_estimates, estimate_accuracy
from ops.results.summary import Summary, accuracy_by_question, describe_invalid, summarize
from ops.results.table import Rows, to_table
from ops.spending.bookings import format_usd

Kind = Literal["Conductor", "cold start", "worker", "baseline"]
IN_DOMAIN, OOD = "in-domain", "out-of-distribution"
RANDOM_WORKER = "random_worker"


@dataclass(frozen=True)
class System:
    """A system that answers questions, with its results on all scored benchmarks."""

    name: str
    title: str
    kind: Kind
    accuracies: Mapping[str, Mapping[str, float]]
    """The accuracy of each question, averaged over repeats, in [0, 1]: benchmark → question → accuracy."""
    values: Mapping[str, Mapping[str, float]]
    """The values of the measures (`ops.results.measures`) by benchmark and name of the measure."""
    invalid: Mapping[str, float] = field(default_factory=dict)
    """The share (0-1) of invalid workflows, by benchmark; empty for a system that is computed from others."""
    unscorable: int = 0
    """The number of answers that could not be scored. They are left out of every average."""
    source: str = ""
    difference: str = ""
    """How a baseline differs from its authors' version; empty if it is not a baseline or does not differ."""

    @classmethod
    def from_rows(cls, name: str, title: str, kind: Kind, rows: Rows, source: str = "", differs: str = "") -> Self:
        """Summarise the system's rows on all benchmarks."""
        rows = to_table(rows)
        summaries, accuracies = summarize(rows), accuracy_by_question(rows)
        values = {benchmark: summaries[benchmark].values for benchmark in accuracies}
        invalid = {benchmark: 1 - summaries[benchmark].format_compliance for benchmark in accuracies}
        unscorable = sum(each.unscorable for each in summaries.values())
        return cls(name, title, kind, accuracies, values, invalid, unscorable, source, differs)

    def mean_accuracy(self, over: Iterable[str]) -> MeanEstimate:
        """Return the unweighted mean of the accuracies on the scored benchmarks of `over`, with its standard error and
        95 % interval."""
        return average_estimates(
            [estimate_accuracy(list(self.accuracies[name].values())) for name in over if name in self.values]
        )

    def mean_values(self, over: Iterable[str]) -> Mapping[str, float]:
        """Return the unweighted mean of each measure over the scored benchmarks of `over`; NaN if there are none."""
        return average_values([self.values[name] for name in over if name in self.values])

    def mean_invalid(self, over: Iterable[str]) -> float:
        """Return the unweighted mean of the shares of invalid workflows over the scored benchmarks of `over`; NaN if
        they are not known."""
        shares = [self.invalid[name] for name in over if name in self.invalid]
        return fmean(shares) if shares else float("nan")

    def describe_usd(self, over: Sequence[str]) -> str:
        """Return the mean USD of a question over these benchmarks, with the share of invalid workflows, which cost
        nothing."""
        return format_usd(self.mean_values(over)["cost_usd"]) + describe_invalid(self.mean_invalid(over))


def make_random_worker(workers: Sequence[System]) -> System:
    """Return the system that draws a worker at random for every question. It is computed as an expectation and not
    sampled."""
    accuracies: dict[str, dict[str, float]] = {}
    for benchmark in workers[0].accuracies:
        answered = [worker.accuracies[benchmark] for worker in workers if benchmark in worker.accuracies]
        questions = dict.fromkeys(question for own in answered for question in own)
        accuracies[benchmark] = {name: fmean(own[name] for own in answered if name in own) for name in questions}
    values = {}
    for benchmark in accuracies:
        means = average_values([each.values[benchmark] for each in workers if benchmark in each.values])
        # A draw among workers has another percentile than the mean of theirs.
        values[benchmark] = UNKNOWN | {measure.name: means[measure.name] for measure in MEANS}
    return System(RANDOM_WORKER, "random worker", "baseline", accuracies, values, source="expected value, computed")


class Experiment(NamedTuple):
    """The result of an experiment."""

    title: str
    changes: str
    """One sentence on what the experiment changed or examined."""
    table: TableData
    summary: str = ""


class RunInfo(NamedTuple):
    """The run behind the evidence: its recipe, seed, policy and pool."""

    recipe: str
    seed: int
    policy: str
    """The policy's key."""
    pool: str
    repeats: int = 1
    is_synthetic: bool = False
    """Whether a benchmark of the run is generated, so that its figures cannot be compared with the paper's."""
    has_paper_setting: bool = False
    """Whether recipe and pool are the paper's, so that its figures can be compared."""

    @property
    def command_arguments(self) -> str:
        """Return the arguments that select this run on the command line."""
        return f"{self.recipe} --seed {self.seed}"


class TrainingCost(NamedTuple):
    """What a policy's training took, over all of its stages."""

    steps: int
    rollouts: int
    seconds: float
    """Wall time."""
    rollouts_usd: float
    """What the workers' responses to the rollouts would have cost without the cache."""


@dataclass(frozen=True)
class Evidence:
    """All stored results of one policy."""

    run: RunInfo
    systems: Mapping[str, System]
    """The systems by name, the Conductor first."""
    conductor_rows: Rows = ()
    best_worker: str = ""
    """The name of the worker that is best on the training mix. It is chosen without the test questions."""
    curves: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The rows of the training curve of each training stage."""
    training_cost: TrainingCost | None = None
    """What the training took; None if nothing was trained, or if a stage has not finished."""
    worker_scores: Mapping[str, Mapping[str, Sequence[Sequence[float]]]] = field(default_factory=dict)
    """The scores of all workers in [0, 1], or NaN where unknown: benchmark → question → worker → repeat. The oracle
    chooses among them."""
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    """The experiments that were run on this policy, by name."""
    training_experiments: Sequence[str] = ()
    """The experiments that each train another policy. The report does not contain their tables."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """The inputs that could not be read, each with the reason."""

    @cached_property
    def workflow_summaries(self) -> dict[str, Summary]:
        """Return a summary of the Conductor's rows for each benchmark."""
        return summarize(self.conductor_rows)

    @cached_property
    def benchmarks(self) -> list[str]:
        """Return the benchmarks with scores of any system: training benchmarks first, then the others, in the order of
        the registry."""
        known = (*training_benchmarks(), *ood_benchmarks())
        seen = {name for system in self.systems.values() for name in system.values}
        return [name for name in known if name in seen]

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Return the scored benchmarks in two groups: in-domain and out-of-distribution."""
        parts = {IN_DOMAIN: training_benchmarks(), OOD: ood_benchmarks()}
        made = {group: [name for name in self.benchmarks if name in names] for group, names in parts.items()}
        return {group: names for group, names in made.items() if names}

    @property
    def conductor(self) -> System | None:
        """Return the Conductor, or None if it was not scored."""
        return self.systems.get("conductor")

    def list_systems(self, *kinds: Kind) -> list[System]:
        """Return the systems of these kinds, in order."""
        return [system for system in self.systems.values() if system.kind in kinds]

    @property
    def opponents(self) -> list[System]:
        """Return the alternatives to the Conductor: workers and baselines, without the policy's own cold start."""
        return self.list_systems("worker", "baseline")

    @property
    def question_count(self) -> int:
        """Return the number of questions on all benchmarks."""
        own = next(iter(self.systems.values()), None)
        return sum(map(len, own.accuracies.values())) if own else 0

    @property
    def sample_description(self) -> str:
        """Return a description of the sample: questions, benchmarks, answers per question, and answers that were left
        out."""
        repeats = "one answer each" if self.run.repeats == 1 else f"{self.run.repeats} answers each"
        left = sum(system.unscorable for system in self.systems.values())
        note = f"; {left} answers of unreachable workers left out" if left else ""
        return f"{self.question_count:,} questions of {len(self.benchmarks)} benchmarks, {repeats}{note}"
