"""An experiment on one policy of a recipe: run it, or find what it came to before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

from ops.benchmarks.raw import evaluation_questions
from ops.benchmarks.store import read_problems
from ops.conductor.policy import Conductor, PolicyCard
from ops.config import Setup, asked_alike
from ops.core.errors import DataError, PodiumError
from ops.core.problem import Problem
from ops.evaluation.changed import Written, carry_out, changed, workflows
from ops.evaluation.experiment import Compliance, Experiment, Findings, Habits, Intervention, Observation, Training
from ops.evaluation.experiment_report import AS_IT_IS, ArmRows
from ops.evaluation.rows import ScoreRow
from ops.evaluation.runner import evaluate
from ops.evaluation.scores import at_prices
from ops.evaluation.stored import CONDUCTOR, stored_scores
from ops.evaluation.stored_baselines import answers_to
from ops.evaluation.stored_experiments import ArmShelf, FindingsShelf, Questions, stored_findings
from ops.precaching.profiles import best_single
from ops.training.cold_start.validation import held_out, validate
from ops.training.run.plan import read_curve
from ops.workers.client import WorkerClient

OnProgress = Callable[[int, int, str], None]
VALIDATED = 100
"""Problems that a cold start is validated on, where the recipe holds none out."""


def run_experiment(
    setup: Setup, policy: Path, entry: Experiment, client: WorkerClient, on_progress: OnProgress | None = None
) -> Findings:
    """What the experiment comes to on the policy in folder `policy`; run now unless that is stored.

    An intervention starts from the policy's stored scores and asks workers through the shared cache; every arm is kept
    once it is whole, so that a run that was cut short goes on. Raises `DataError` where the policy was not scored or
    its records are missing, `PodiumError` for a policy that works in rounds, `OverBudget` and `ConfigError` as the
    client does.
    """
    questions_of = asked(setup)
    try:
        return stored_findings(setup, policy, entry, questions_of)
    except DataError:  # none yet, or of something else
        pass
    if isinstance(entry, Intervention):
        _intervene(ArmShelf(setup, policy, entry), entry, client, questions_of, on_progress)
    elif isinstance(entry, Observation):
        FindingsShelf(setup, policy, entry).keep(entry.observe(_training(setup, policy, entry)))
    return stored_findings(setup, policy, entry, questions_of)


def asked(setup: Setup) -> dict[str, list[Problem]]:
    """Benchmark → its questions, for those that have some."""
    every = evaluation_questions(setup.workspace, setup.recipe)
    return {name: questions for name, questions in every.items() if questions}


def _intervene(
    shelf: ArmShelf, entry: Intervention, client: WorkerClient, questions_of: Questions, on_progress: OnProgress | None
) -> None:
    setup = shelf.setup
    card = PolicyCard.read(shelf.policy)
    if card.rounds is not None:
        raise PodiumError(
            f"{shelf.policy}: this policy goes on from its own answers. A changed workflow changes the answer, and "
            f"what it would write next was never written: {entry.name} cannot be run on it. Run it on the policy "
            "before the recursive stage (a recipe without a `recursive` section)"
        )
    team = card.team(setup.pool, setup.workspace.texts, setup.recipe.execution)
    base = _as_it_is(setup, shelf.policy, card, client, questions_of)
    shelf.keep(0, AS_IT_IS, base, questions_of)
    problems = {problem.key: problem for questions in questions_of.values() for problem in questions}
    written = [Written(problems[row.problem_key], row.repeat, row.completion) for row in base]
    mix = read_problems(setup.workspace.data / "training_mix.jsonl")
    best = team.names.index(best_single(answers_to(mix, setup)).worker)
    arms = entry.arms(Habits.of(workflows(written, team), team.names, best))
    made = []
    for place, arm in enumerate(arms):
        other = changed(written, arm, team, setup.recipe.seed)

        def count(done: int, place: int = place, name: str = arm.name) -> None:
            if on_progress is not None:
                on_progress(place * len(written) + done, len(arms) * len(written), name)

        try:
            rows = shelf.kept(place + 1, arm.name, questions_of)
        except DataError:
            rows = _carried_out(setup, card, client, other.written, count)
            shelf.keep(place + 1, arm.name, rows, questions_of)
        made.append(ArmRows(arm.name, other.share, rows))
    shelf.close(made)


def _carried_out(
    setup: Setup, card: PolicyCard, client: WorkerClient, written: Sequence[Written], count: Callable[[int], None]
) -> list[ScoreRow]:
    """Each benchmark by the workers that the evaluation asks on it."""
    rows: list[ScoreRow] = []
    for asked, names in asked_alike(setup, dict.fromkeys(each.problem.benchmark for each in written)):
        own = [each for each in written if each.problem.benchmark in names]
        team = card.team(asked.pool, asked.workspace.texts, asked.recipe.execution, client)
        before = len(rows)

        def counted(done: int, before: int = before) -> None:
            count(before + done)

        rows += asyncio.run(carry_out(own, team, asked.recipe.evaluation.batch, counted))
    return rows


def _as_it_is(
    setup: Setup, policy: Path, card: PolicyCard, client: WorkerClient, questions_of: Questions
) -> list[ScoreRow]:
    """The policy's stored rows, with what it wrote. Of a confidential benchmark no completion is kept: it is written
    again, which asks nobody anew where it is written greedily."""
    rows = stored_scores(setup, policy, CONDUCTOR, list(questions_of))
    veiled = {row.benchmark for row in rows if row.format_ok and not row.completion}
    if not veiled:
        return rows
    from ops.conductor.writer import load_conductor

    again: list[ScoreRow] = []
    with closing(load_conductor(policy, setup.workspace, setup.recipe.evaluation.writer)) as conductor:
        for asked, names in asked_alike(setup, [name for name in questions_of if name in veiled]):
            questions = [question for name in names for question in questions_of[name]]
            recipe = asked.recipe
            team = card.team(asked.pool, asked.workspace.texts, recipe.execution, client)
            made = asyncio.run(evaluate(conductor, questions, team, recipe.evaluation, seed=recipe.seed))
            again += at_prices(made, asked.pool)
    return [*(row for row in rows if row.benchmark not in veiled), *again]


def _training(setup: Setup, policy: Path, entry: Observation) -> Training:
    grpo, curve = setup.recipe.grpo, read_curve(policy.parent)
    if entry.of == "conductor" and not curve:
        raise DataError(policy.parent, "curve.jsonl", "holds no step of a training", "Materialize conductor first")

    def compliance(temperature: float) -> Compliance:
        conductor = Conductor.load(policy)
        team = conductor.card.team(setup.pool, setup.workspace.texts, setup.recipe.execution)
        drawn = setup.recipe.model_copy(update={"grpo": grpo.model_copy(update={"temperature": temperature})})
        seen = validate(conductor, not_taught(setup), team, drawn)
        return Compliance(seen.problems, seen.failures)

    return Training(curve, grpo.temperature, compliance)


def not_taught(setup: Setup) -> Sequence[Problem]:
    """The problems that the recipe holds out of its cold start, or else some of the shortlist that the mix left out.

    Raises `DataError` where there are none.
    """
    data = setup.workspace.data
    mix = data / "training_mix.jsonl"
    if kept := held_out(mix, setup.recipe):
        return kept
    taught = {problem.key for problem in read_problems(mix)}
    left = [problem for problem in read_problems(data / "shortlist.jsonl") if problem.key not in taught]
    if not left:
        remedy = "Hold some out (cold_start.validation), or raise curation.shortlist_factor"
        raise DataError(data / "shortlist.jsonl", "(file)", "holds no problem that is not in the mix", remedy)
    return Random(setup.recipe.seed).sample(left, min(VALIDATED, len(left)))
