"""Tell what each retraining did, as one page: the change, the plan, the checks, the training, the decision, and how to
undo it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ops.config import Snapshot
from ops.core.atomic import write_text
from ops.core.errors import DataError, PodiumError, format_figure
from ops.core.workspace import Workspace
from ops.release import registry
from ops.release.lineage import FINE_TUNED_FROM
from ops.release.mlflow_store import RegisteredVersion
from ops.release.promotion import GateCheck
from ops.release.way_back import describe_way_back
from ops.reports.decision_page import make_checks_table
from ops.reports.exhibit import Table, format_number
from ops.reports.page import render_template
from ops.reports.retraining import RetrainingSummary, retraining_file, summaries_file
from ops.retraining.decision import TrainingDecision
from ops.retraining.record import (
    BEFORE,
    NEW,
    NOW,
    Figures,
    RetrainingRecord,
    load_record,
    load_records,
    measure_figures,
    update_record,
)
from ops.retraining.retraining_plan import RetrainingPlan
from ops.retraining.standing import find_next_command, list_caused_failures, load_training_decision, plan_required_work
from ops.spending.bookings import LedgerReader, format_usd
from ops.spending.ledger import open_ledger
from ops.training.run.training_run import RunResult
from ops.workers.pool import PoolDifference, compare_pools

SHOWN = 30
"""The number of the newest retrainings on the page."""
_DECIDING = ("difference to the champion", "gain over the best single worker", "format compliance")
"""The checks that show best how good a version is, if none failed."""


@dataclass(frozen=True)
class RetrainingStory:
    """One retraining in words and figures."""

    key: str
    at: str
    """When it began, in UTC."""
    title: str
    """What changed, in one line."""
    outcome: str
    """The result in one sentence."""
    next_step: str = ""
    """What a person has to do; empty if nobody has to do anything."""
    version: str = ""
    """The number of the version that it made; empty if none."""
    facts: dict[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()

    @property
    def summary(self) -> RetrainingSummary:
        """Return what `podium status` shows."""
        return RetrainingSummary(self.at, self.title, self.outcome.replace("`", ""), self.version or None)


def write_retraining_page(workspace: Workspace) -> Path | None:
    """Write the page of all retrainings, and attach it to the versions that they made. Return the page; None if there
    was no retraining."""
    stories = load_stories(workspace)
    if not stories:
        return None
    page = retraining_file(workspace)
    write_text(page, render_template("retraining.html", title="Retrainings", stories=stories))
    write_text(summaries_file(workspace), json.dumps([story.summary._asdict() for story in stories], indent=1))
    for version in {story.version for story in stories if story.version}:
        registry.attach_file(workspace, registry.get_version(workspace, version), page, "report")
    return page


def finish_record(workspace: Workspace, key: str, version: str) -> Path | None:
    """Record that a retraining has made and judged a version, and write the page, which is returned."""
    record = load_record(workspace, key) or RetrainingRecord(key)
    rows = registry.load_scores(workspace, registry.get_version(workspace, version))
    update_record(workspace, key, ended_at=time.time(), figures={**record.figures, NEW: measure_figures(rows)})
    return write_retraining_page(workspace)


def load_stories(workspace: Workspace) -> list[RetrainingStory]:
    """Return the newest retrainings, the newest first. One whose snapshot is gone is left out."""
    ledger = open_ledger(workspace.ledger)
    try:
        stories = []
        for record in load_records(workspace)[:SHOWN]:
            try:
                snapshot = Snapshot.read(workspace.snapshots, record.key)
            except DataError:
                continue
            if snapshot.change is not None:
                stories.append(_tell(workspace, record, snapshot, ledger))
        return stories
    finally:
        ledger.close()


def _tell(workspace: Workspace, record: RetrainingRecord, snapshot: Snapshot, ledger: LedgerReader) -> RetrainingStory:
    change = snapshot.change
    assert change is not None
    difference, plan = compare_pools(change.before, snapshot.pool), plan_required_work(snapshot)
    try:
        decision = load_training_decision(workspace, record.key) if record.figures else None
    except DataError:
        decision = None
    made = _find_version(workspace, record.key)
    spent = ledger.total_usd(snapshot.account)
    outcome, next_step = _describe_outcome(record, snapshot, decision, made)
    lines = str(difference).splitlines()
    facts = {
        "What changed": f"pool `{snapshot.pool.name}`: {'; '.join(lines)}",
        "What it required, and why": " ".join(_explain_plan(difference, snapshot)),
        "Started by": record.cause or "a person, from the launchpad",
        "Money": f"{_planned_usd(record)}; actual {format_usd(spent)} (ledger, run `{snapshot.account}`)",
        "Time": f"{_planned_time(record)}; actual {_actual_time(record)}",
        "What was checked": _describe_checked(record, decision, plan),
        "What was trained": _describe_training(workspace, change.version, decision, made),
        "Decision": _describe_decision(workspace, snapshot, decision, made),
        "How to undo it": _describe_undo(workspace, snapshot, made),
        **({"Why it failed": record.failure} if record.failure else {}),
        "Dagster run": f"`{record.run}`" if record.run else "none yet",
    }
    tables = [_figures_table(record, change.version, made)] if record.figures else []
    if decision is not None and decision.checks:
        tables.append(
            make_checks_table(decision.checks, f"The checks of champion version {change.version} on the changed pool")
        )
    if made is not None and (checks := registry.load_decision(workspace, made.version).checks):
        tables.append(make_checks_table(checks, f"The promotion gate's checks of version {made.version}"))
    at = datetime.fromtimestamp(record.at, UTC).strftime("%Y-%m-%d %H:%M")
    title = f"{snapshot.recipe_file}: {_name_change(difference)}"
    return RetrainingStory(record.key, at, title, outcome, next_step, made.version if made else "", facts, tables)


def _name_change(difference: PoolDifference) -> str:
    """Return the change in a few words."""
    parts = [f"{name} removed" for name in difference.removed] + [f"{name} added" for name in difference.added]
    parts += [f"{name} changed ({', '.join(difference.changed[name])})" for name in difference.affects_answers]
    parts += [f"price of {name} changed" for name in difference.affects_price]
    return ", ".join(parts) or "nothing that concerns answers or prices"


def _explain_plan(difference: PoolDifference, snapshot: Snapshot) -> Iterator[str]:
    """Say what each part of the change required, and why."""
    if names := ", ".join(difference.removed):
        yield f"{names} is gone, so that the champion had to be evaluated with the remaining workers, and is "
        yield "fine-tuned if it fails the promotion gate there."
    if names := ", ".join(difference.affects_answers):
        yield f"{names} may answer differently, so that its stored questions had to be asked again and the champion "
        yield "evaluated. It is fine-tuned if it fails the promotion gate."
    if names := ", ".join(difference.added):
        yield f"{names} is new, so that it had to be asked the stored questions."
        if snapshot.recipe.prompting.cards:
            yield "The champion reads descriptions of the workers. It is fine-tuned if the new worker pays."
        else:
            yield "The champion has no descriptions of the workers and cannot use it. Whether it pays was measured."
    if names := ", ".join(difference.affects_price):
        yield f"The price of {names} changed. A price changes no answer, so that only the costs had to be computed "
        yield "again, and no worker was asked."


def _find_version(workspace: Workspace, key: str) -> RegisteredVersion | None:
    found = registry.find_versions_by_tag(workspace, "snapshot", key)
    return next((each for each in reversed(found) if FINE_TUNED_FROM in each.tags), None)


def _describe_outcome(
    record: RetrainingRecord, snapshot: Snapshot, decision: TrainingDecision | None, made: RegisteredVersion | None
) -> tuple[str, str]:
    """Return the outcome in one sentence, and what a person has to do about it."""
    change = snapshot.change
    assert change is not None
    stays = f"Version {change.version} stays champion"
    if record.waits and not record.began_at:
        return "It waits for a person, because it costs more than `retraining.budget_usd`.", "podium retrain"
    if record.failure:
        return f"The run failed: {record.failure.splitlines()[0].partition('. ')[0]}.", record.remedy
    if decision is None:
        return "It has not reached a decision yet.", ""
    if not decision.fine_tune:
        step = find_next_command(snapshot, decision)
        if not decision.train_anew and list_caused_failures(snapshot, decision):
            return f"{stays} although it does not hold: {decision.why}.", step
        if decision.train_anew:
            return f"{stays}: {decision.why}.", step
        return f"{stays}, and nothing was trained: {decision.why}.", ""
    if made is None:
        return f"Version {change.version} is being fine-tuned: {decision.why}.", ""
    if "rolled_back" in made.tags:
        return f"Version {made.version} was promoted and rolled back later ({made.tags['rolled_back']}).", ""
    if made.tags.get("verdict") == "promoted" or "override" in made.tags:
        by = f" by {made.tags['override']}" if "override" in made.tags else ""
        return f"Version {made.version}, fine-tuned from version {change.version}, was promoted{by}.", ""
    verdict = made.tags.get("verdict", "not judged yet")
    step = f"podium promote {made.version} --by NAME --reason WHY" if "verdict" in made.tags else ""
    return f"{stays}; version {made.version}, fine-tuned from it: {verdict}.", step


def _planned_usd(record: RetrainingRecord) -> str:
    return _format_planned(record.usd, format_usd, "$0, because no worker is asked")


def _planned_time(record: RetrainingRecord) -> str:
    nothing = "less than a minute of waiting for workers"
    return _format_planned(record.seconds, _format_duration, nothing, " (calls and training)")


def _format_planned(
    planned: tuple[float, float] | None, format_amount: Callable[[float], str], nothing: str, what: str = ""
) -> str:
    """Return the expected and the highest planned amount in words; `nothing` stands for an amount of 0."""
    if planned is None:
        return "not estimated"
    expected, high = planned
    if not high:
        return f"planned {nothing}"
    return f"planned {format_amount(expected)}, at most {format_amount(high)}{what}"


def _actual_time(record: RetrainingRecord) -> str:
    if not (record.began_at and record.ended_at):
        return "not finished"
    return _format_duration(record.ended_at - record.began_at)


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _describe_checked(record: RetrainingRecord, decision: TrainingDecision | None, plan: RetrainingPlan) -> str:
    if decision is None:
        return "nothing yet"
    questions = f"{record.figures[NOW].questions:,} test questions"
    if not plan.evaluate:
        return f"cost and latency of the champion's stored answers to {questions}, at the new prices"
    said = [f"the champion on {questions} with the changed pool"]
    if plan.precache:
        said.append(f"the answers of {', '.join(plan.precache)} to the stored questions")
    failed = len(decision.standing.failed)
    said.append(f"{len(decision.checks)} checks, of which {failed or 'none'} of the gate failed")
    return "; ".join(said)


def _describe_training(
    workspace: Workspace, version: str, decision: TrainingDecision | None, made: RegisteredVersion | None
) -> str:
    if decision is None:
        return "nothing yet"
    if not decision.fine_tune:
        return "nothing"
    if made is None:
        return f"version {version} is being fine-tuned"
    policy = made.tags.get("policy", "")
    try:
        result = RunResult.read(workspace.runs / policy)
    except PodiumError:
        result = None
    said = f"version {version} was fine-tuned to version {made.version}, policy `{policy}`"
    if result is None:
        return said
    return (
        f"{said}: {result.steps} steps of GRPO with {result.rollouts:,} rollouts in "
        f"{_format_duration(result.seconds)}; mean reward {result.reward_before:.3f} before, "
        f"{result.reward_after:.3f} after"
    )


def _describe_decision(
    workspace: Workspace, snapshot: Snapshot, decision: TrainingDecision | None, made: RegisteredVersion | None
) -> str:
    if decision is None:
        return "not yet"
    said = [f"{'fine-tune' if decision.fine_tune else 'do not train'}, because {decision.why}"]
    paying = [check for check in decision.pays if check.passed]
    caused = list_caused_failures(snapshot, decision)
    if caused or plan_required_work(snapshot).evaluate:
        chosen = choose_deciding(caused or [check for check in decision.standing.checks if check.passed], also=paying)
    else:
        chosen = [check for check in decision.standing.checks if check.subject == "cost"][:3]
    said += [_describe_check(check) for check in chosen]
    if made is not None:
        checks = registry.load_decision(workspace, made.version).checks
        said.append(f"version {made.version}: {made.tags.get('verdict', 'not judged')}")
        said += [_describe_check(check) for check in choose_deciding(checks)]
    return "; ".join(said)


def choose_deciding(checks: Sequence[GateCheck], also: Sequence[GateCheck] = ()) -> list[GateCheck]:
    """Return the two or three checks that decided: those that failed, otherwise those that say most."""
    if failed := [check for check in checks if not check.passed]:
        return [*failed[:3], *also][:3]
    known = {check.name: check for check in checks}
    return [*also, *(known[name] for name in _DECIDING if name in known)][:3]


def _describe_check(check: GateCheck) -> str:
    state = "passed" if check.passed else "failed"
    return f"{check.name} {format_figure(check.value)} ({state}, bound {format_figure(check.bound)})"


def _describe_undo(workspace: Workspace, snapshot: Snapshot, made: RegisteredVersion | None) -> str:
    edit = f"put the old values back into `config/pools/{snapshot.recipe.pool}.yaml` and give `podium retrain`"
    champion = registry.find_champion(workspace)
    if made is None or champion is None or champion.version != made.version:
        return f"{edit}; stored answers are used again, so that nothing is paid twice"
    return f"{describe_way_back(workspace)}. To undo the change itself as well, {edit}"


def _figures_table(record: RetrainingRecord, version: str, made: RegisteredVersion | None) -> Table:
    labels = {
        BEFORE: f"version {version} before the change",
        NOW: f"version {version} with the changed pool",
        NEW: f"version {made.version if made else ''} with the changed pool",
    }
    rows = [
        (
            label, own.questions, _format_share(own.in_domain), _format_share(own.out_of_distribution),
            format_number(own.usd, 5), format_number(own.latency_s, 2), format_number(100 * own.valid, 1),
        )
        for name, label in labels.items() if (own := record.figures.get(name)) is not None
    ]  # fmt: skip
    head = ("system", "questions", "in-domain, %", "OOD, %", "USD a question", "seconds a question",
            "valid workflows, %")  # fmt: skip
    note = "The means of the benchmarks, with 95 % intervals. USD and seconds are those of the questions for which the "
    note += "system wrote a valid workflow. OOD: out of distribution."
    said = _describe_missing_benchmarks(record.figures, labels) or _describe_loss(record.figures)
    return Table("What the change cost", head, rows, [len(rows) - 1], note=f"{note} {said}")


def _describe_missing_benchmarks(figures: Mapping[str, Figures], labels: Mapping[str, str]) -> str:
    """Say which systems were measured without benchmarks that others were measured on; empty if there are none."""
    every = {name for own in figures.values() for name in own.benchmarks}
    missing = {labels[name]: sorted(every - set(figures[name].benchmarks)) for name in labels if name in figures}
    said = "; ".join(f"{label}, without {', '.join(names)}" for label, names in missing.items() if names)
    return (
        f"The systems were measured on different questions, so that their rows cannot be compared: {said}. A benchmark "
        "is left out if another version of its grader graded the answers." if said else ""
    )  # fmt: skip


def _describe_loss(figures: Mapping[str, Figures]) -> str:
    before, after = figures.get(BEFORE), figures.get(NEW) or figures.get(NOW)
    if before is None or after is None:
        return ""
    points = f"{100 * (after.in_domain[0] - before.in_domain[0]):+.1f}".replace("-", "−")
    usd = after.usd - before.usd
    said = "as before" if points in ("+0.0", "−0.0") else f"{points} points"
    costs = (
        "unknown" if math.isnan(usd) else "as before" if not usd else f"{'+' if usd > 0 else '−'}{format_usd(abs(usd))}"
    )
    return f"Compared with the time before the change: in-domain accuracy {said}, USD a question {costs}."


def _format_share(estimate: tuple[float, float, float]) -> str:
    mean, low, high = (100 * value for value in estimate)
    if mean != mean:
        return "–"
    return f"{mean:.1f} ({low:.1f} … {high:.1f})" if low == low else f"{mean:.1f}"
