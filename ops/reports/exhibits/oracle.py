"""The accuracy of sending each question to the best worker for it."""

from __future__ import annotations

import numpy as np

from ops.evaluation.statistics import MeanEstimate, OracleEstimate, mean_of, oracle_over_workers
from ops.reports.evidence import Evidence, System
from ops.reports.exhibit import Cell, Shown, Table, accuracy, exhibit

NONE = MeanEstimate(float("nan"), float("nan"), 0)


@exhibit(
    "The oracle over single workers",
    120,
    shows="Each question's best worker: chosen on the answers that it is scored on (an upper bound, with hindsight and "
    "luck), and chosen on all repeats but the one that it is scored on (without).",
    needs=("workers",),
)
def oracle(evidence: Evidence) -> Shown:
    """The oracle, the Conductor and the best worker, by benchmark and in the means."""
    by_benchmark = {
        name: oracle_over_workers(np.array(list(questions.values()))) for name, questions in evidence.answers.items()
    }
    best = evidence.systems.get(evidence.best_worker)
    systems = [system for system in (evidence.ours, best) if system]
    head = [
        "benchmark",
        "questions",
        "oracle with hindsight, %",
        "without, %",
        *(f"{each.title}, %" for each in systems),
    ]
    groups = {name: [name] for name in by_benchmark} | {
        f"{group} mean": over for group, over in evidence.groups.items()
    }
    rows = [_row(label, over, by_benchmark, systems) for label, over in groups.items()]
    said = "" if any(each.cross_fitted for each in by_benchmark.values()) else (
        "The oracle without hindsight was not run: it takes two answers of a worker to a question "
        "(`evaluation.repeats: 2`, then podium evaluate)."
    )  # fmt: skip
    return Shown([Table("", head, rows)], evidence.n, said)


def _row(label: str, over: list[str], by_benchmark: dict[str, OracleEstimate], systems: list[System]) -> list[Cell]:
    known = [by_benchmark[name] for name in over if name in by_benchmark]
    plain = mean_of([each.plain for each in known])
    fitted = [each.cross_fitted for each in known if each.cross_fitted is not None]
    without = mean_of(fitted) if len(fitted) == len(known) else NONE
    return [
        label,
        plain.n,
        accuracy(plain),
        accuracy(without),
        *(accuracy(system.accuracy(over)) for system in systems),
    ]
