"""Apply the promotion gate to a challenger: check its tags, find the champion, number the analysis, and decide."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ops.benchmarks.problem_files import read_evaluation_questions
from ops.config import JudgeGrader, PromotionGate, Setup
from ops.core.errors import DataError
from ops.evaluation.comparison import Comparison
from ops.evaluation.stored_scores import CONDUCTOR, read_policy_scores
from ops.quality.agreement import load_agreement
from ops.release import mlflow_store, registry
from ops.release.dossier import Dossier, Opponent, compare_by_benchmark
from ops.release.lineage import (
    FINE_TUNED_FROM,
    ReleaseRefusedError,
    check_lineage,
    check_tags,
    describe_cost,
    find_changed_graders,
    read_question_keys,
)
from ops.release.promotion import NO_CHAMPION, GateCheck, GateDecision, confidence_of_analysis, decide_promotion
from ops.results.summary import count_questions, select_grades
from ops.results.table import Rows, reprice_rows, to_table
from ops.spending.bookings import format_usd

log = logging.getLogger(__name__)

_LABEL_OF_TAG = {
    "policy": "policy",
    "pool_answers_key": "pool (answers)",
    "pool_prices_key": "pool (prices)",
    "dvc_revision": "data (DVC)",
    "git_commit": "code (git)",
    "recipe": "recipe",
    "seed": "seed",
    "ledger_run": "run in the ledger",
    "paid_usd": "paid, USD",
    "training_paid_usd": "paid for the training, USD",
    "rollouts_usd": "rollouts without the cache, USD",
    "training_cost_usd": "rollouts without the cache, USD",  # the name in versions of an earlier checkout
    FINE_TUNED_FROM: "fine-tuned from version",
}
"""Tags that identify a version, with their labels on a page."""


@dataclass(frozen=True)
class GateResult:
    """A decision of the gate with its evidence."""

    decision: GateDecision
    dossier: Dossier | None
    """The evidence; None if the challenger is the champion itself, because a comparison with itself shows nothing."""


def apply_gate(
    setup: Setup, challenger: mlflow_store.RegisteredVersion, comparison: Comparison, gate: PromotionGate
) -> GateResult:
    """Decide by the gate whether the challenger replaces the champion, at the prices of the pool. The interim analysis
    is counted before the comparison.

    For the champion itself, the decision of its promotion is returned. A benchmark is left out of the comparison if the
    champion was scored on other questions, or if another version of a grader graded its answers.

    Raises `RegistryError` if there is no such version, and `ReleaseRefusedError` if its lineage is incomplete or
    `comparison` is about another policy, pool or data than its tags state.
    """
    champion = registry.find_champion(setup.workspace)
    if champion is not None and champion.version == challenger.version:
        return GateResult(registry.load_decision(setup.workspace, champion.version), None)
    check_lineage(challenger.version, challenger.tags)
    shown = {
        "policy": comparison.policy,
        "pool_answers_key": setup.pool.answers_key,
        "evaluation": comparison.scores_key,
    }
    check_tags(challenger.version, challenger.tags, {name: value for name, value in shown.items() if value})
    _check_scores(setup, challenger, comparison)
    again = _find_new_scores(setup, champion) if champion else None
    theirs = again if again is not None or champion is None else _comparable_rows(champion, setup, comparison)
    if champion is not None and again is None and (others := find_changed_graders(champion.tags, comparison.graders)):
        log.warning("%s", explain_other_graders(champion, others))
    analysis = registry.assign_analysis_number(setup.workspace, champion, challenger.version)
    decision = decide_promotion(comparison.conductor, theirs, comparison.best_worker_rows, gate, analysis=analysis)
    decision = add_judge_checks(setup, gate, replace(decision, against=champion.version if champion else NO_CHAMPION))
    confidence = confidence_of_analysis(gate, analysis)
    opponents = [Opponent(
        f"best single worker, {comparison.best_worker}", {"chosen by": "its answers to the training problems"},
        compare_by_benchmark(comparison.conductor, comparison.best_worker_rows, confidence),
    )]  # fmt: skip
    if champion is not None and theirs is not None:
        rows = compare_by_benchmark(comparison.conductor, theirs, confidence)
        note = _describe_caveats(champion, challenger, comparison) if again is None else "Scored again with this pool."
        opponents.insert(0, Opponent(_champion_title(champion), label_lineage(champion), rows, note))
    before = _compare_with_previous_pool(champion, challenger, comparison, setup, confidence) if champion else None
    counted = count_questions(comparison.conductor)
    dossier = Dossier(
        version=challenger.version,
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        facts=label_lineage(challenger),
        questions={
            name: f"{count} ({comparison.questions.get(name, 'key unknown')})" for name, count in counted.items()
        },
        gate=gate.model_dump(mode="json"),
        confidence=confidence,
        cost=describe_cost(challenger.tags),
        opponents=(*opponents, *((before,) if before else ())),
        pool_change=_describe_pool_change(challenger, champion, before) if champion and before else "",
    )
    return GateResult(decision, dossier)


def _compare_with_previous_pool(
    champion: mlflow_store.RegisteredVersion,
    challenger: mlflow_store.RegisteredVersion,
    comparison: Comparison,
    setup: Setup,
    confidence: float,
) -> Opponent | None:
    """Compare the challenger with the champion's registered scores, which are those on its own pool at that pool's
    prices; None if the pool has not changed since, or if they have no question in common."""
    if all(champion.tags.get(tag) == challenger.tags.get(tag) for tag in ("pool_answers_key", "pool_prices_key")):
        return None
    rows = _mark_other_questions(registry.load_scores(setup.workspace, champion), champion, comparison)
    pairings = compare_by_benchmark(comparison.conductor, rows, confidence)
    note = "The scores with which it was registered, on its own pool at the prices of that time. The comparison shows "
    note += "what the change of the pool cost. The gate does not use it."
    name = f"version {champion.version} before the change of the pool"
    return Opponent(name, label_lineage(champion), pairings, note) if pairings else None


def _describe_pool_change(
    challenger: mlflow_store.RegisteredVersion, champion: mlflow_store.RegisteredVersion, before: Opponent
) -> str:
    mean = before.pairings[0]
    ours, theirs = (format_usd(mean.values[key]) for key in ("usd", "their_usd"))
    return (
        f"Version {challenger.version} reaches {100 * mean.ours:.1f} % at {ours} a question "
        f"({100 * mean.invalid:.1f} % invalid workflows). Version {champion.version} reached {100 * mean.theirs:.1f} % "
        f"at {theirs} on its own pool before the change ({100 * mean.their_invalid:.1f} % invalid)."
    )


def add_judge_checks(setup: Setup, gate: PromotionGate, decision: GateDecision) -> GateDecision:
    """Add one check for each judge of the recipe: whether it agrees with labelled answers often enough."""
    checks = [_check_judge_agreement(setup, name, grader, gate) for name, grader in setup.recipe.judges.items()]
    passed = decision.promote and all(check.passed for check in checks)
    return replace(decision, promote=passed, checks=(*decision.checks, *checks))


def _check_judge_agreement(setup: Setup, benchmark: str, grader: JudgeGrader, gate: PromotionGate) -> GateCheck:
    known, bound = load_agreement(setup.workspace, grader, benchmark), gate.min_judge_agreement
    name = f"agreement of the judge of {benchmark}"
    if known is None:
        how = f"not measured for this judge and rubric: `podium data gold {setup.recipe.name}` measures it"
        return GateCheck(name, 0.0, bound, False, how)
    return GateCheck(name, known.lower_bound, bound, known.lower_bound >= bound, f"lower end: {known}")


def _find_new_scores(setup: Setup, champion: mlflow_store.RegisteredVersion) -> Rows | None:
    """Return the champion's scores on this pool and these questions if it has been evaluated on them since (the first
    step after a pool change); None: only the version's own scores exist."""
    policy = setup.workspace.runs / champion.tags.get("policy", "") / "policy"
    try:
        benchmarks = [name for name, own in read_evaluation_questions(setup.workspace, setup.recipe).items() if own]
        return read_policy_scores(setup, policy, CONDUCTOR, benchmarks)
    except DataError:
        return None


def _check_scores(setup: Setup, challenger: mlflow_store.RegisteredVersion, comparison: Comparison) -> None:
    """Check that the version has the judged scores, because later challengers are paired with them."""
    carried = select_grades(registry.load_scores(setup.workspace, challenger))
    judged = select_grades(comparison.conductor)
    if not carried.equals(judged):
        differing = len({*carried.iter_rows()} ^ {*judged.iter_rows()})
        remedy = "Materialize registered_model: it registers the policy with the current scores"
        raise ReleaseRefusedError(
            f"version {challenger.version}: scores.parquet: has other scores than the current evaluation ({differing} "
            "rows "
            f"differ). {remedy}"
        )


def explain_other_graders(champion: mlflow_store.RegisteredVersion, benchmarks: Sequence[str]) -> str:
    """Return one line that says why the champion's scores on these benchmarks are not compared, and which command
    helps."""
    seed = f" --seed {champion.tags['seed']}" if champion.tags.get("seed") else ""
    command = f"podium run {champion.tags.get('recipe', 'RECIPE')}{seed}"
    return (
        f"Another version of the grader judged champion version {champion.version} on {', '.join(benchmarks)}, so its "
        f"scores there are not compared. `{command}` grades its stored answers again"
    )


def label_lineage(registered: mlflow_store.RegisteredVersion) -> dict[str, str]:
    """Return the tags that state a version's origin, under the labels that a page shows."""
    return {name: registered.tags[tag] for tag, name in _LABEL_OF_TAG.items() if registered.tags.get(tag)}


def _champion_title(champion: mlflow_store.RegisteredVersion) -> str:
    return f"champion, version {champion.version}"


def _comparable_rows(champion: mlflow_store.RegisteredVersion, setup: Setup, comparison: Comparison) -> Rows:
    """Return the champion's rows at the pool's prices; rows of changed questions or graders pair with none."""
    rows = reprice_rows(registry.load_scores(setup.workspace, champion), setup.pool)
    return _mark_other_questions(rows, champion, comparison)


def _mark_other_questions(rows: Rows, champion: mlflow_store.RegisteredVersion, comparison: Comparison) -> Rows:
    """Rename the questions of benchmarks whose questions or graders have changed, so that they pair with none."""
    import polars as pl

    others = [*_changed_benchmarks(champion, comparison), *find_changed_graders(champion.tags, comparison.graders)]
    as_it_was = pl.when(pl.col("benchmark").is_in(others)).then(pl.lit(" (as it was)")).otherwise(pl.lit(""))
    return to_table(rows).with_columns(pl.col("problem_id") + as_it_was)


def _changed_benchmarks(champion: mlflow_store.RegisteredVersion, comparison: Comparison) -> list[str]:
    """Return the benchmarks whose questions have changed since the champion was scored."""
    then = read_question_keys(champion.tags)
    return [name for name, key in comparison.questions.items() if then.get(name, key) != key]


def _describe_caveats(
    champion: mlflow_store.RegisteredVersion, challenger: mlflow_store.RegisteredVersion, comparison: Comparison
) -> str:
    said = []
    if changed := _changed_benchmarks(champion, comparison):
        said.append(f"Scored on other questions of {', '.join(changed)}, which are not compared.")
    if others := find_changed_graders(champion.tags, comparison.graders):
        said.append(f"Judged by another version of the graders of {', '.join(others)}, which are not compared.")
    if champion.tags.get("pool_answers_key") != challenger.tags.get("pool_answers_key"):
        said.append("Scored with another pool: the difference is that of Conductor and pool together.")
    if not read_question_keys(champion.tags):
        said.append("It was registered before versions named their questions: that they are the same is not checked.")
    return " ".join(said)
