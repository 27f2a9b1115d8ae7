"""The accuracy of sending each question to the best worker for it."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import Cell, ExhibitContent, Table, exhibit, format_accuracy, format_number
from ops.results.statistics import MeanEstimate, OracleEstimate, average_estimates, estimate_oracle

NO_ESTIMATE = MeanEstimate(float("nan"), float("nan"), 0)


@exhibit(
    "The oracle over single workers",
    120,
    shows="What one would reach by giving each question to its best worker, chosen by other answers than the one "
    "that is scored. The upper bound chooses the worker by the scored answers themselves, so it includes "
    "luck.",
    needs=("workers",),
)
def oracle(evidence: Evidence) -> ExhibitContent:
    """The oracle, the Conductor and the best worker, by benchmark and in the means."""
    by_benchmark = {
        name: estimate_oracle(np.array(list(questions.values()))) for name, questions in evidence.worker_scores.items()
    }
    fair = all(each.cross_fitted is not None for each in by_benchmark.values())
    best = evidence.systems.get(evidence.best_worker)
    systems = [system for system in (evidence.conductor, best) if system]
    head = [
        "benchmark",
        "questions",
        "oracle, %",
        "upper bound, with hindsight, %",
        *([] if fair else ["by chance, %"]),
        *(f"{each.title}, %" for each in systems),
    ]
    groups = {name: [name] for name in by_benchmark} | {
        f"{group} mean": over for group, over in evidence.groups.items()
    }
    rows = [_row(label, over, by_benchmark, systems, fair) for label, over in groups.items()]
    said = "" if fair else (
        "The oracle itself was not run: it takes two answers of a worker to a question (`evaluation.repeats: 2`, then "
        "podium evaluate). Its upper bound rewards luck: workers of these accuracies that all find the same questions "
        "hard reach what stands in the column “by chance”."
    )  # fmt: skip
    return ExhibitContent([Table("", head, rows)], evidence.sample_description, said)


def _row(
    label: str, over: list[str], by_benchmark: dict[str, OracleEstimate], systems: list[System], fair: bool
) -> list[Cell]:
    known = [by_benchmark[name] for name in over if name in by_benchmark]
    plain = average_estimates([each.plain for each in known])
    fitted = [each.cross_fitted for each in known if each.cross_fitted is not None]
    chosen = average_estimates(fitted) if len(fitted) == len(known) else NO_ESTIMATE
    lucky = fmean(each.by_chance for each in known) if known else float("nan")
    return [
        label,
        plain.n,
        format_accuracy(chosen),
        format_accuracy(plain),
        *([] if fair else [format_number(100 * lucky, 1)]),
        *(format_accuracy(system.mean_accuracy(over)) for system in systems),
    ]
