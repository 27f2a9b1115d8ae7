"""Studies of a trained policy, which execute changed versions of its workflows or read the records of its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

from ops.benchmarks.problem_files import read_problems
from ops.conductor.policy import PolicyCard
from ops.conductor.stored_writer import policy_id
from ops.conductor.writer import load_in_process
from ops.config import Setup, digest, group_by_setup
from ops.config.studies import UNCHANGED
from ops.core.async_run import run_async
from ops.core.errors import DataError, PodiumError
from ops.core.problem import Problem
from ops.evaluation.arms import Arm, Findings
from ops.evaluation.runner import evaluate
from ops.evaluation.stored_baselines import read_training_responses
from ops.evaluation.stored_scores import CONDUCTOR, read_policy_scores, scores_key, with_execution_code
from ops.evaluation.stored_studies import StudyInputs
from ops.evaluation.study import (
    ChangedCompletions,
    FormatCompliance,
    Intervention,
    Observation,
    TrainingRecord,
    WorkflowStatistics,
    WrittenCompletion,
    apply_change,
    parse_workflows,
)
from ops.precaching.profiles import find_best_worker
from ops.results.outcome_rows import OutcomeRow
from ops.results.table import iterate_records, reprice_rows
from ops.stages.evaluation import open_writer_and_team
from ops.stages.study_context import StudyContext, make_rows_once
from ops.training.cold_start.validation import held_out_problems, measure_validity
from ops.training.run.training_run import read_curve
from ops.workers.client import WorkerClient
from ops.workflow.trace import QuestionTrace

VALIDATION_PROBLEMS = 100
"""The number of problems that validate a cold start if the recipe holds none out."""


def run_intervention(entry: Intervention, inputs: StudyInputs, context: StudyContext) -> list[Arm]:
    """Make the arms of an intervention: the unchanged policy, and one arm for each change to its workflows.

    Starts from the policy's stored scores and calls workers through the shared cache. Raises `DataError` if the policy
    has no scores, `PodiumError` for a policy that runs in rounds, and the client's `OverBudget` and `ConfigError`.
    """
    setup, policy, asked = inputs.setup, inputs.policy_after(entry.after), inputs.questions
    card = PolicyCard.read(policy)
    if card.rounds is not None:
        raise PodiumError(
            f"{policy}: this policy goes on from its own answers. A changed workflow changes the answer, and what it "
            f"would write next was never written: {entry.name} cannot be run on it. Run it on the policy before the "
            "recursive stage (a recipe without a `recursive` section)"
        )
    if setup.recipe.evaluation.has_vote:
        raise PodiumError(
            f"several workflows vote on a question in recipe {setup.recipe.name}: {entry.name} changes a single one. "
            "Run it on a recipe without `evaluation.vote`"
        )
    team = card.build_team(setup.pool, setup.workspace.texts, setup.recipe.execution)
    base = _read_unchanged_rows(inputs, policy, context, entry.name)
    problems = {problem.key: problem for questions in asked.values() for problem in questions}
    written = [WrittenCompletion(problems[row.problem_key], row.repeat, row.completion) for row in base]
    mix = read_problems(setup.workspace.data / "training_mix.jsonl")
    best = team.names.index(find_best_worker(read_training_responses(mix, setup)).worker)
    changes = entry.list_changes(WorkflowStatistics.from_workflows(parse_workflows(written, team), team.names, best))
    scored = digest([scores_key(setup.for_benchmark(name), policy, own) for name, own in asked.items()])
    arms = [Arm(UNCHANGED, [base])]
    for place, change in enumerate(changes):
        other = apply_change(written, change, team, setup.recipe.seed)
        key = {"arm": change.name, "seed": str(setup.recipe.seed), "scored": scored}

        def count(done: int, place: int = place, name: str = change.name) -> None:
            context.report(place * len(written) + done, len(changes) * len(written), name)

        def make(other: ChangedCompletions = other, count: Callable[[int], None] = count) -> list[OutcomeRow]:
            return _execute_completions(
                setup, card, context.open_client(setup.with_account(entry.name), "experiment"), other.completions, count
            )

        rows = make_rows_once(setup, entry.name, with_execution_code(key, f"ops.evaluation.studies.{entry.name}"), make)
        facts = {"changed, %": f"{100 * other.changed_share:.0f}"}
        arms.append(Arm(change.name, [rows], {f"minus {UNCHANGED}": UNCHANGED}, facts))
    return arms


def _execute_completions(
    setup: Setup,
    card: PolicyCard,
    client: WorkerClient,
    written: Sequence[WrittenCompletion],
    count: Callable[[int], None],
) -> list[OutcomeRow]:
    """Execute the workflows of these completions with the evaluation's workers for each benchmark; return the rows."""
    rows: list[OutcomeRow] = []
    done = 0

    def counted(more: Sequence[OutcomeRow], _: Sequence[QuestionTrace]) -> None:
        nonlocal done
        done += len(more)
        count(done)

    for asked, names in group_by_setup(setup, dict.fromkeys(each.problem.benchmark for each in written)):
        own = [each for each in written if each.problem.benchmark in names]
        team = card.build_team(asked.pool, asked.workspace.texts, asked.recipe.execution, client)
        problems = list(dict.fromkeys(each.problem for each in own))
        completions = {(each.problem.key, each.repeat): each.text for each in own}
        rows += run_async(evaluate(completions, problems, team, asked.recipe.evaluation, on_executed=counted))
    return rows


def _read_unchanged_rows(lab: StudyInputs, policy: Path, making: StudyContext, name: str) -> list[OutcomeRow]:
    """Return the policy's stored rows with its completions.

    The completions of a confidential benchmark are not stored, so they are generated again. With greedy decoding this
    makes no worker call.
    """
    setup = lab.setup
    rows = list(iterate_records(read_policy_scores(setup, policy, CONDUCTOR, list(lab.questions))))
    veiled = {row.benchmark for row in rows if row.format_ok and not row.completion}
    if not veiled:
        return rows
    again = answer_with_texts(lab, policy, making, name, [name for name in lab.questions if name in veiled])
    return [*(row for row in rows if row.benchmark not in veiled), *again]


def answer_with_texts(
    inputs: StudyInputs, policy: Path, context: StudyContext, name: str, benchmarks: Sequence[str], **settings: object
) -> list[OutcomeRow]:
    """Let the policy answer these benchmarks again in memory, because files hold no text of a confidential benchmark.

    `settings` replace settings of the recipe's evaluation. Completions and responses come from the caches where they
    are stored.
    """
    from ops.conductor.writer import load_conductor

    setup, made = inputs.setup, list[OutcomeRow]()
    client, weights = context.open_client(setup.with_account(name), "experiment"), policy_id(policy)
    with closing(load_conductor(policy, setup.workspace, setup.recipe.evaluation.writer)) as conductor:
        for asked, names in group_by_setup(setup, benchmarks):
            questions = [question for benchmark in names for question in inputs.questions[benchmark]]
            evaluation = asked.recipe.evaluation.model_copy(update=settings)
            own = replace(asked, recipe=asked.recipe.model_copy(update={"evaluation": evaluation}))
            rows: list[OutcomeRow] = []
            with open_writer_and_team(conductor, weights, own, client) as (writer, team):
                answering = evaluate(
                    writer, questions, team, evaluation,
                    seed=own.recipe.seed, limits=conductor.card.rounds, has_room=conductor.has_room,
                    add_rows=rows.extend,
                )  # fmt: skip
                run_async(answering)
            made += iterate_records(reprice_rows(rows, asked.pool))
    return made


def run_observation(entry: Observation, inputs: StudyInputs) -> Findings:
    """Return the findings of an observation from the records of a training. Raises `DataError` if the records are
    missing."""
    setup, policy = inputs.setup, inputs.policy_after(entry.after)
    grpo, curve = setup.recipe.grpo, read_curve(policy.parent)
    if entry.after == "conductor" and not curve:
        raise DataError(policy.parent, "curve.jsonl", "holds no step of a training", "Materialize conductor first")

    def compliance(temperature: float) -> FormatCompliance:
        conductor = load_in_process(policy)
        team = conductor.card.build_team(setup.pool, setup.workspace.texts, setup.recipe.execution)
        drawn = setup.recipe.model_copy(update={"grpo": grpo.model_copy(update={"temperature": temperature})})
        seen = measure_validity(conductor, read_untaught_problems(setup), team, drawn)
        return FormatCompliance(seen.problems, seen.failures)

    return entry.observe(TrainingRecord(curve, grpo.temperature, compliance))


def read_untaught_problems(setup: Setup) -> Sequence[Problem]:
    """Return problems that the cold start was not taught: those that the recipe holds out, or the shortlist without the
    mix.

    Raises `DataError` if there are none.
    """
    data = setup.workspace.data
    mix = data / "training_mix.jsonl"
    if kept := held_out_problems(mix, setup.recipe):
        return kept
    taught = {problem.key for problem in read_problems(mix)}
    left = [problem for problem in read_problems(data / "shortlist.jsonl") if problem.key not in taught]
    if not left:
        remedy = "Hold some out (cold_start.validation), or raise curation.shortlist_factor"
        raise DataError(data / "shortlist.jsonl", "", "has no problem outside the training mix", remedy)
    return Random(setup.recipe.seed).sample(left, min(VALIDATION_PROBLEMS, len(left)))
