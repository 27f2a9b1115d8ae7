"""Judge the champion on the current pool: find measurements that are missing, decide whether to train, and store the
decision."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ops.alerts import notify
from ops.alerts.catalogue import CHAMPION_FALLS, CHAMPION_STAYS_BELOW, CHAMPION_TOO_COSTLY, TRAIN_ANEW
from ops.alerts.notify import close_alerts
from ops.benchmarks.graded import read_graded_responses
from ops.benchmarks.problem_files import read_evaluation_questions
from ops.conductor.policy import CARD_FILE, PolicyCard
from ops.config import PoolChange, Setup, Snapshot
from ops.core.atomic import write_text
from ops.core.errors import DataError, PodiumError
from ops.core.workspace import Workspace
from ops.evaluation.comparison import grader_keys, question_keys, read_comparison
from ops.evaluation.stored_baselines import make_score_reader
from ops.evaluation.stored_scores import COLD_START, list_solo_workers, read_policy_scores, read_solo_responses
from ops.planning.lengths import read_shortlist
from ops.precaching.profiles import map_subjects
from ops.release import registry
from ops.release.judgement import explain_other_graders
from ops.release.lineage import find_changed_graders, read_question_keys
from ops.release.mlflow_store import MODEL_NAME, RegisteredVersion
from ops.release.promotion import GateCheck
from ops.release.way_back import describe_way_back, record_standing
from ops.reports.retraining import retraining_file
from ops.results.table import reprice_rows
from ops.retraining.decision import RetrainingEvidence, TrainingDecision, decide_training
from ops.retraining.fine_tuning_start import get_champion_folder
from ops.retraining.record import BEFORE, NOW, measure_figures, update_record
from ops.retraining.retraining_plan import NEVER, RetrainingPlan, plan_retraining
from ops.training.run.training_run import PLAN_FILE, RunPlan
from ops.workers.pool import compare_pools

if TYPE_CHECKING:
    import polars as pl

log = logging.getLogger(__name__)

UNTRAINED_REASON = "an untrained policy is evaluated and not fine-tuned"


def plan_required_work(snapshot: Snapshot) -> RetrainingPlan:
    """Return the work that the pool change of a run requires; an empty plan if the run has no change. An untrained
    policy is evaluated and never fine-tuned."""
    if snapshot.change is None:
        return RetrainingPlan()
    made = plan_retraining(
        compare_pools(snapshot.change.before, snapshot.pool), has_descriptions=snapshot.recipe.prompting.cards
    )
    if snapshot.recipe.is_trained or made.fine_tune == NEVER:
        return made
    return replace(made, fine_tune=NEVER, reasons=(*made.reasons, UNTRAINED_REASON))


def find_scored_cold_start(setup: Setup, change: PoolChange) -> Path | None:
    """Return the folder of the champion's cold start if its scores on the current pool are stored, otherwise None."""
    folder = setup.workspace.runs / change.policy
    try:
        while (folder / PLAN_FILE).is_file():  # later stages and fine-tuning start from the policy of another run
            start = RunPlan.read(folder).base_policy
            if start.name != "policy" or not (start.parent / PLAN_FILE).is_file():
                read_policy_scores(setup, start, COLD_START, [name for name, own in read_evaluation_questions(
                    setup.workspace, setup.recipe).items() if own])  # fmt: skip
                return start
            folder = start.parent
    except DataError:
        pass
    return None


def find_unanswered_benchmarks(setup: Setup) -> list[str]:
    """Return all benchmarks with questions if a single worker or a baseline lacks stored answers, otherwise an empty
    list."""
    try:
        read_solo_responses(setup, list_solo_workers(setup))
        make_score_reader(setup)
    except DataError:
        return [name for name, own in read_evaluation_questions(setup.workspace, setup.recipe).items() if own]
    return []


def judge_champion(setup: Setup, snapshot: Snapshot) -> TrainingDecision:
    """Judge the champion on the current pool from stored results, and store the decision under the key of the snapshot.

    Raises `PodiumError` if the run has no pool change or another version has become champion, and `DataError` if a
    measurement is missing.
    """
    change = snapshot.change
    if change is None:
        raise PodiumError(
            "this run has no change of the pool to work on. Start the job `retraining`, or `podium retrain`"
        )
    now = registry.find_champion(setup.workspace)
    if now is None or now.version != change.version:
        raise PodiumError(
            f"the plan was made for champion version {change.version}, and it is {now.version if now else 'gone'} now. "
            "Start the job `retraining` again"
        )
    folder = get_champion_folder(setup.workspace, change)
    compared, precached = read_comparison(setup, folder), read_graded_responses(setup.workspace.data / "responses")
    before = load_comparable_rows(setup, now)
    if before.limit(1).collect().is_empty():
        said = explain_other_graders(now, find_changed_graders(now.tags, compared.graders))
        raise DataError(f"version {now.version} of {MODEL_NAME}", "tags", said, "Then start the retraining again")
    evidence = RetrainingEvidence(
        rows_now=compared.conductor,
        rows_before=reprice_rows(before, change.before),
        best_worker=compared.best_worker_rows,
        responses=[row for row in precached if row.worker in setup.pool.names],
        subjects=map_subjects(read_shortlist(setup)),
    )
    made = decide_training(
        plan_required_work(snapshot), evidence, find_newcomers(setup, change), snapshot.gate, snapshot.retraining
    )
    write_text(_decision_file(setup.workspace, snapshot.key), json.dumps(made.as_dict(), indent=1))
    record_standing(setup.workspace, now.version, setup.pool, made.standing)
    figures = {BEFORE: measure_figures(evidence.rows_before), NOW: measure_figures(evidence.rows_now)}
    update_record(setup.workspace, snapshot.key, figures=figures)
    return made


def load_comparable_rows(setup: Setup, champion: RegisteredVersion) -> pl.LazyFrame:
    """Return the champion's rows without the benchmarks that another version of a grader graded. One log line names
    these."""
    import polars as pl

    rows, others = (
        registry.load_scores(setup.workspace, champion),
        find_changed_graders(champion.tags, grader_keys(setup)),
    )
    if others:
        log.warning("%s", explain_other_graders(champion, others))
    return rows.filter(~pl.col("benchmark").is_in(others))


def find_champion_to_rescore(setup: Setup) -> Path | None:
    """Return the champion's policy if another version of a grader graded it, on this pool and these questions.

    Scoring it again calls no worker whose answer is stored. The result is None in all other cases, and for a champion
    that was not trained in this checkout.
    """
    known = registry.find_champion(setup.workspace)
    if known is None or known.tags.get("pool_answers_key") != setup.pool.answers_key:
        return None
    if read_question_keys(known.tags) != question_keys(setup) or not find_changed_graders(
        known.tags, grader_keys(setup)
    ):
        return None
    policy = setup.workspace.runs / known.tags.get("policy", "") / "policy"
    return policy if (policy / CARD_FILE).is_file() else None


def alert_on_decision(workspace: Workspace, snapshot: Snapshot, decision: TrainingDecision) -> None:
    """Send one alert for the change if the champion fails the gate, or if it cannot use a new worker that pays.

    Alerts on the champion with another pool are closed, because this decision takes their place.
    """
    change, recipe, seed = snapshot.change, snapshot.recipe_file, snapshot.recipe.seed
    assert change is not None
    failed = list_caused_failures(snapshot, decision)
    text = "\n".join([decision.why, *(check.describe_value() for check in failed)])
    occasion = snapshot.key
    link = str(page) if (page := retraining_file(workspace)).is_file() else ""
    of_this_change = [f"{state} {occasion}" for state in ("falls", "below", "anew")]
    because = f"the champion was judged again with pool {snapshot.pool.name}"
    closed = (CHAMPION_FALLS, CHAMPION_STAYS_BELOW, CHAMPION_TOO_COSTLY, TRAIN_ANEW)
    close_alerts(workspace, closed, because, still_open=of_this_change)
    checks = f"{len(failed)} checks failed" if len(failed) > 1 else "".join(f"{check.name} failed" for check in failed)
    title = f"champion version {change.version} does not hold ({checks})"
    if failed and decision.fine_tune:
        notify(
            workspace,
            CHAMPION_FALLS.make_notice(
                f"{title}: the same run trains it further", text, link, occasion=f"falls {occasion}"
            ),
        )
    elif failed and not decision.train_anew:
        text += "\nIt stays champion. "
        if is_training := bool(find_next_command(snapshot, decision)):
            text += "Train another, or accept it (config/promotion.yaml)."
        else:
            text += "If its cost and latency are acceptable, raise their bounds in config/promotion.yaml. Otherwise "
            text += "take the workers that are too expensive or too slow out of the pool."
        if back := describe_way_back(workspace).replace("`", ""):
            text += f"\n{back}."
        alert = CHAMPION_STAYS_BELOW if is_training else CHAMPION_TOO_COSTLY
        notify(workspace, alert.make_notice(
            f"{title}: nothing follows", text, link, f"below {occasion}", recipe=recipe, another_seed=str(seed + 1)
        ))  # fmt: skip
    if decision.train_anew:
        title = "a new worker pays, and needs a training from the start"
        values = {"recipe": recipe, "seed": str(seed)}
        notify(workspace, TRAIN_ANEW.make_notice(title, text, link, occasion=f"anew {occasion}", **values))


def find_next_command(snapshot: Snapshot, decision: TrainingDecision) -> str:
    """Return the command that a person may run after a decision; empty if none is needed, or none would help.

    A training from the start helps if a new worker pays that the champion cannot use, or if the champion fails a check
    of accuracy and is not fine-tuned. It does not lower the prices of the workers.
    """
    command = f"podium run {snapshot.recipe_file} --seed"
    if decision.train_anew:
        return f"{command} {snapshot.recipe.seed}"
    if decision.fine_tune or all(check.subject == "cost" for check in list_caused_failures(snapshot, decision)):
        return ""
    return f"{command} {snapshot.recipe.seed + 1}"


def list_caused_failures(snapshot: Snapshot, decision: TrainingDecision) -> list[GateCheck]:
    """Return the gate's failed checks that the change of the pool can have caused.

    A change of prices alone changes no answer, so that it can only fail the checks of cost and latency.
    """
    answers_changed = decision.fine_tune or plan_required_work(snapshot).evaluate
    return [check for check in decision.standing.failed if answers_changed or check.name not in decision.failed_checks]


def find_newcomers(setup: Setup, change: PoolChange) -> tuple[str, ...]:
    """Return the workers that neither the previous pool nor the champion's training had. A worker that returns is not
    new."""
    known = PolicyCard.read(get_champion_folder(setup.workspace, change)).offered
    return tuple(name for name in setup.pool.names if name not in known and name not in change.before.names)


def load_training_decision(workspace: Workspace, key: str) -> TrainingDecision:
    """Return the decision that `judge_champion` stored under the key of a snapshot. Raises `DataError` if there is
    none."""
    file = _decision_file(workspace, key)
    try:
        return TrainingDecision.from_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(file, "", f"has no decision ({error})", "Materialize champion_standing") from None


def _decision_file(workspace: Workspace, key: str) -> Path:
    return workspace.results_folder / "retraining" / f"{key}.json"
