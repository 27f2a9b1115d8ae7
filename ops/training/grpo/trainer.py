"""GRPO from a run's plan, from its last checkpoint to its policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from transformers import PrinterCallback, TrainerCallback

from ops.benchmarks.graded import configure_grading
from ops.benchmarks.problem_files import read_problems
from ops.conductor.policy import PolicyCard, chat_tokens, check_policy, end_of_turn, load_model
from ops.config import Grpo
from ops.core.digests import write_digest
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.grading.hidden_tests import check_hidden_tests
from ops.precaching.opening import open_client
from ops.training.grpo.configuration import configuration, longest_sequence, patience
from ops.training.grpo.curve import Curve, Report
from ops.training.grpo.dataset import dataset, row_maker
from ops.training.grpo.lost_signal import SignalStop
from ops.training.rewards.outage import FirstStep, Patience
from ops.training.rewards.reward import WorkerSamples, reward_function
from ops.training.run.allocator import reused_memory
from ops.training.run.checkpoints import CHECKPOINTS, last_checkpoint, remove_half_written
from ops.training.run.stop_request import Stopped, StopRequest
from ops.training.run.tracking import Tracking
from ops.training.run.training_run import CURVE, RunPlan, RunResult
from ops.training.stages.rounds import RoundRewards, chosen
from ops.training.stages.rounds_trainer import InRounds
from ops.training.step.divergence import DivergenceGuard
from ops.training.step.order import Order, expected_variances
from ops.training.step.overlap import OverlappedTrainer
from ops.training.step.questions import Row, StepQuestions
from ops.training.step.timed_trainer import TimedTrainer
from ops.workers.client import Counts
from ops.workflow.play import HasRoom
from ops.workflow.team import Team


class RoundsTrainer(InRounds, TimedTrainer):
    """The trainer of the recursive stage."""


def run(plan: RunPlan, folder: Path, report: Report, callbacks: Sequence[TrainerCallback] = ()) -> RunResult | None:
    """Train to the end, from the last complete checkpoint if there is one; the policy is written to `folder/policy`.

    Returns None on ranks other than the first. Raises `OverBudget` at the cap (run again with a larger one to
    continue), `Outage` if workers stay unreachable, `Divergence` for non-finite numbers, `InvalidFirstStep` for a
    champion that no longer writes valid workflows, and `Stopped` after SIGTERM or SIGINT.
    """
    configure_grading(plan.recipe, plan.root, plan.setup.workspace.cache)
    check_policy(plan.base_policy)
    card, grpo = PolicyCard.read(plan.base_policy), plan.recipe.grpo
    mix = read_problems(plan.problems)
    check_hidden_tests(mix)
    if plan.recursive is not None:
        mix = chosen(mix, plan.recursive, plan.recipe.seed)
    problems = {problem.key: problem for problem in mix}
    client = open_client(plan.setup, "training")
    curve = Curve(folder / CURVE, report)
    model, tokenizer = load_model(plan.base_policy, card)
    precision = model.dtype
    if grpo.deepspeed is None:
        # A step of 1e-6 would be rounded away in bfloat16 weights; DeepSpeed keeps its own copy in float32.
        model.float()
    # TRL ends completions and masks at the tokens that the model declares, and saves the policy with them.
    model.generation_config.eos_token_id = ends = end_of_turn(model.generation_config.eos_token_id, tokenizer)
    team = card.team(plan.pool, plan.few_shots, plan.recipe.execution, client)
    room = longest_sequence(grpo, model)
    row = row_maker(plan, team, tokenizer, room)
    asking = questions(plan, mix, row)
    guard, request = DivergenceGuard(grpo), StopRequest()
    stop = SignalStop(grpo.stop_without_signal, lambda: curve.rows) if grpo.stop_without_signal else None
    fits = partial(_fits, tokenizer, room, grpo.max_completion_tokens)
    checkpoint = last_checkpoint(folder / CHECKPOINTS)
    first = None
    if plan.from_champion and checkpoint is None:
        first = FirstStep(plan.recipe.guards.max_invalid_first_step, plan.recipe.name, plan.recipe.seed)
    make = _trainer(plan, problems, team, curve, ends, fits, replace(patience(plan), sleep=request.sleep), first)
    trainer = make(
        model=model,
        args=configuration(plan, folder, ends),
        train_dataset=dataset(plan, mix, row),
        processing_class=tokenizer,
        callbacks=[guard, curve, *filter(None, (asking, stop)), request, *callbacks],
    )
    trainer.asking, trainer.guard = asking, guard
    trainer.remove_callback(PrinterCallback)
    curve.trainer = trainer
    if trainer.is_world_process_zero():
        remove_half_written(folder / CHECKPOINTS)
        curve.start(checkpoint)
    with ExitStack() as attempt:
        if trainer.is_world_process_zero() and plan.mlflow_uri:
            curve.tracking = attempt.enter_context(Tracking(plan, folder, trainer.args.to_sanitized_dict()))
        with reused_memory(), request.heard():
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if request.stopped and trainer.is_world_process_zero():
            raise Stopped(request.stopped)
    if request.stopped:
        return None
    model.to(precision)
    trainer.save_model(str(folder / "policy"))
    if trainer.is_world_process_zero():  # a pickle that contains paths of this machine
        (folder / "policy" / "training_args.bin").unlink(missing_ok=True)
    counts: list[Counts] = gather_object([client.counts])
    if not trainer.is_world_process_zero():
        return None
    tokenizer.save_pretrained(folder / "policy")
    trained = {
        "pretrained": None,
        "trained_steps": card.trained_steps + trainer.state.global_step,
        "generation": plan.recipe.generation,
        "renumbered": card.renumbered or (plan.adaptive is not None and plan.adaptive.reshuffle),
        "rounds": card.rounds if plan.recursive is None else plan.recursive.limits,
    }
    card.model_copy(update=trained).write(folder / "policy")
    write_digest(folder / "policy")
    result = curve.result(counts, stop.reason if stop else "")
    curve.finish()
    result.write(folder)
    return result


def _trainer(
    plan: RunPlan, problems: dict[str, Problem], team: Team, curve: Curve, ends: Sequence[int], fits: HasRoom,
    waiting: Patience, first: FirstStep | None,
) -> Callable[..., TimedTrainer]:  # fmt: skip
    """Make the trainer of the plan's stage with the arguments that all stages share."""
    grpo = plan.recipe.grpo
    if plan.recursive is not None:
        rounds = RoundRewards(
            problems, team, plan.recursive, curve.batch, weights=grpo.reward_terms,
            worker_samples=WorkerSamples.wanted(grpo), ends=ends, patience=waiting, fits=fits,
            first_step=first,
        )  # fmt: skip
        return partial(RoundsTrainer, rounds=rounds)
    reward = reward_function(
        problems, team, curve.batch, grpo.reward_terms, WorkerSamples.wanted(grpo), ends, waiting,
        renumbered=plan.adaptive is not None and plan.adaptive.reshuffle, first_step=first,
    )  # fmt: skip
    overlap = {"staleness": grpo.staleness} if grpo.staleness else {}
    return partial(trainer_class(grpo), reward_funcs=reward, **overlap)


def _fits(tokenizer: Any, longest: int | None, completion: int, messages: Sequence[Message]) -> bool:
    return longest is None or chat_tokens(tokenizer, messages) <= longest - completion


def trainer_class(grpo: Grpo) -> type[TimedTrainer]:
    """Return the trainer class: one step after another, or with overlapping rollouts."""
    if not grpo.staleness:
        return TimedTrainer
    return OverlappedTrainer


def questions(plan: RunPlan, problems: Sequence[Problem], row: Callable[[Problem, int], Row]) -> StepQuestions | None:
    """Return the chooser of questions; None if the recipe uses the data set's order."""
    if plan.recipe.grpo.sampling == "epochs":
        return None
    return StepQuestions(Order(problems, plan.recipe.seed, expected_variances(plan.setup, problems)), row)
