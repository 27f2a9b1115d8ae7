"""Record what a retraining planned and measured, so that the page of the retrainings can tell it afterwards.

The difference of the pools and the plan follow from the run's snapshot, the decision from `ops.retraining.standing`,
the new version from the registry, and the money spent from the ledger. A record adds what is stored nowhere else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ops.benchmarks.registry import ood_benchmarks, training_benchmarks
from ops.core.atomic import write_text
from ops.core.workspace import Workspace
from ops.results.statistics import average_estimates
from ops.results.summary import average_by_question, filter_valid, mean_per_answer, summarize
from ops.results.table import Rows, to_table

BEFORE, NOW, NEW = "before", "now", "new"
"""The measured systems: the champion before the change, the champion on the changed pool, the fine-tuned version."""


class Figures(NamedTuple):
    """The measurements of one system on the test questions."""

    questions: int
    in_domain: tuple[float, float, float]
    """The accuracy in [0, 1] with the ends of its 95 % interval; NaN without questions."""
    out_of_distribution: tuple[float, float, float]
    usd: float
    """The mean cost in USD of a question for which the system wrote a valid workflow."""
    latency_s: float
    """The mean latency in seconds of such a question."""
    valid: float
    """The share of answers with a valid workflow, in [0, 1]."""
    benchmarks: tuple[str, ...] = ()
    """The benchmarks of the questions; empty in records of an earlier version of Podium."""


def measure_figures(rows: Rows) -> Figures:
    """Summarise the rows of a system."""
    table = to_table(rows)
    summaries = summarize(table)
    in_domain, ood = (
        average_estimates([summaries[name].accuracy for name in names if name in summaries])
        for names in (training_benchmarks(), ood_benchmarks())
    )
    valid = average_by_question(filter_valid(table))
    answers = sum(each.rows for each in summaries.values())
    return Figures(
        average_by_question(table).height,
        (in_domain.mean, in_domain.low, in_domain.high),
        (ood.mean, ood.low, ood.high),
        mean_per_answer(valid, "cost_usd"),
        mean_per_answer(valid, "latency_s"),
        sum(each.written for each in summaries.values()) / answers if answers else float("nan"),
        tuple(summaries),
    )


@dataclass(frozen=True)
class RetrainingRecord:
    """What was planned, measured and reached for one change of the pool. Times are seconds since the epoch."""

    key: str
    """The key of the snapshot from which the run works."""
    planned_at: float = 0.0
    cause: str = ""
    """What started it: a sensor, a schedule or a command."""
    waits: bool = False
    """True while the plan costs more than `retraining.budget_usd` and no person has started it."""
    estimate: str = ""
    usd: tuple[float, float] | None = None
    """The expected and the highest USD of the plan; None if it was not estimated."""
    seconds: tuple[float, float] | None = None
    """The expected and the highest time of the plan that is spent waiting for workers and training."""
    run: str = ""
    """The id of the Dagster run."""
    began_at: float = 0.0
    ended_at: float = 0.0
    """0 while it runs, or if it was interrupted."""
    failure: str = ""
    """Why the run failed; empty if it did not."""
    remedy: str = ""
    """The command that a person has to run after the failure."""
    figures: Mapping[str, Figures] = field(default_factory=dict)
    """The measurements of the systems `BEFORE`, `NOW` and `NEW`."""

    @property
    def at(self) -> float:
        """Return when it began, or when it was planned if it has not begun."""
        return self.began_at or self.planned_at


def update_record(workspace: Workspace, key: str, **facts: Any) -> RetrainingRecord:
    """Store facts in the record of the retraining with this snapshot, which is begun if there is none."""
    record = replace(load_record(workspace, key) or RetrainingRecord(key), **facts)
    write_text(_record_file(workspace, key), json.dumps(asdict(record), indent=1))
    return record


def plan_record(workspace: Workspace, key: str, *, waits: bool, **facts: Any) -> None:
    """Begin a record with a plan and its estimate. A plan that has begun keeps its record."""
    known = load_record(workspace, key)
    if known is not None and known.began_at and not known.ended_at:
        return
    write_text(
        _record_file(workspace, key),
        json.dumps(asdict(RetrainingRecord(key, planned_at=time.time(), waits=waits, **facts)), indent=1),
    )


def load_record(workspace: Workspace, key: str) -> RetrainingRecord | None:
    """Return the record of the retraining with this snapshot; None if there is none or it is damaged."""
    return _read(_record_file(workspace, key))


def load_records(workspace: Workspace) -> list[RetrainingRecord]:
    """Return all records, the newest first."""
    found = (_read(file) for file in _folder(workspace).glob("*.record.json"))
    return sorted((record for record in found if record is not None), key=lambda record: record.at, reverse=True)


def _read(file: Path) -> RetrainingRecord | None:
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        known = {each.name for each in fields(RetrainingRecord)}
        facts = {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}
        facts["figures"] = {name: Figures(*map(_as_tuple, own)) for name, own in facts.get("figures", {}).items()}
        return RetrainingRecord(**{name: value for name, value in facts.items() if name in known})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _folder(workspace: Workspace) -> Path:
    return workspace.results_folder / "retraining"


def _record_file(workspace: Workspace, key: str) -> Path:
    return _folder(workspace) / f"{key}.record.json"
