"""Measure the effect of rounds: the policies before and after the recursive stage, with 0 to N further rounds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ops.conductor.writer import load_conductor
from ops.config import RoundLimits, Setup, digest
from ops.config.studies import Rounds
from ops.core.async_run import run_async
from ops.core.errors import PodiumError
from ops.evaluation.arms import Arm
from ops.evaluation.runner import evaluate
from ops.evaluation.stored_scores import scores_key, with_execution_code
from ops.evaluation.stored_studies import StudyInputs, read_all_questions, sample_questions
from ops.results.outcome_rows import OutcomeRow
from ops.results.summary import count_values
from ops.stages.study_context import StudyContext, find_finished_run, make_rows_once


def check_recipe(setup: Setup) -> None:
    """Raise `PodiumError` for a recipe without a recursive stage."""
    if setup.recipe.recursive is None:
        raise PodiumError(f"recipe {setup.recipe.name!r} has no recursive section: there is nothing to compare")


def make_arms(name: str, entry: Rounds, inputs: StudyInputs, context: StudyContext) -> list[Arm]:
    """Make one arm for each policy and number of rounds, within the recipe's other limits.

    Each arm is compared with the same policy without a further round.
    """
    setup, recipe = inputs.setup, inputs.setup.recipe
    stage = recipe.recursive
    asked = sample_questions(read_all_questions(setup), entry.questions, recipe.seed)
    policies = {
        "before": find_finished_run(inputs, "adaptive_conductor") / "policy",
        "after": find_finished_run(inputs, "recursive_conductor") / "policy",
    }
    made: list[Arm] = []
    for when, policy in policies.items():
        none = f"{when} the stage, no further round"
        for depth in range(entry.deepest + 1):
            label = none if depth == 0 else f"{when} the stage, {depth} more"
            context.report(len(made), len(policies) * (entry.deepest + 1), label)
            limits = (stage.limits if stage else RoundLimits()).model_copy(update={"rounds": depth})

            def make(policy: Path = policy, limits: RoundLimits = limits) -> list[OutcomeRow]:
                client = context.open_client(setup.with_account(name), "experiment")
                with closing(load_conductor(policy, setup.workspace, recipe.evaluation.writer)) as conductor:
                    team = conductor.card.build_team(setup.pool, setup.workspace.texts, recipe.execution, client)
                    rows = evaluate(
                        conductor,
                        asked,
                        team,
                        recipe.evaluation,
                        seed=recipe.seed,
                        limits=limits,
                        has_room=conductor.has_room,
                    )
                    return run_async(rows)

            key = {**scores_key(setup, policy, asked), "limits": digest(limits.model_dump())}
            rows = make_rows_once(setup, name, with_execution_code(key), make)
            ends = count_values(rows, "stop")
            listed = ", ".join(f"{end} {100 * count / ends.total():.1f}" for end, count in ends.items())
            facts = {"kept, %": f"{100 * ends['kept'] / ends.total():.1f}", "the rounds end by, %": listed}
            made.append(Arm(label, [rows], {"minus no further round": none} if depth else {}, facts))
    return made
