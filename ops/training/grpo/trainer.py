"""Run GRPO as a plan says, from the run's last checkpoint, if there is one, to its policy."""

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
from ops.conductor.policy import PolicyCard, check_policy, count_chat_tokens, find_end_tokens, load_model
from ops.config import Grpo
from ops.core.digests import write_digest
from ops.core.messages import Message
from ops.core.problem import Problem
from ops.grading.hidden_tests import check_hidden_tests
from ops.precaching.client_setup import open_client
from ops.training.grpo.configuration import build_outage_policy, build_trl_config, max_sequence_tokens
from ops.training.grpo.curve import ReportProgress, TrainingCurve
from ops.training.grpo.dataset import build_dataset, build_row_maker
from ops.training.grpo.lost_signal import LostSignalStop
from ops.training.rewards.outage import FirstStepCheck, OutagePolicy
from ops.training.rewards.reward import WorkerSamples, build_reward_function
from ops.training.run.allocator import reuse_freed_memory
from ops.training.run.checkpoints import CHECKPOINTS, find_last_checkpoint, remove_half_written
from ops.training.run.stop_request import StopRequest, TrainingStopped
from ops.training.run.tracking import MlflowTracking
from ops.training.run.training_run import CURVE_FILE, RunPlan, RunResult
from ops.training.stages.rounds import RoundRewards, select_problems
from ops.training.stages.rounds_trainer import RoundsMixin
from ops.training.step.divergence import DivergenceGuard
from ops.training.step.overlap import OverlappedTrainer
from ops.training.step.problem_sampling import WeightedRoundRobin, forecast_variances
from ops.training.step.questions import Row, StepQuestions
from ops.training.step.timed_trainer import TimedTrainer
from ops.workers.client import CallCounts
from ops.workflow.answer_rounds import HasRoom
from ops.workflow.team import Team


class RoundsTrainer(RoundsMixin, TimedTrainer):
    """The trainer of the recursive stage, which asks every question in two rounds."""


def run_training(
    plan: RunPlan, folder: Path, report: ReportProgress, callbacks: Sequence[TrainerCallback] = ()
) -> RunResult | None:
    """Train a run to its end and write the policy to `folder/policy`.

    Training continues from the last complete checkpoint if there is one. Returns the result on the first rank and None
    on the others.

    Raises `OverBudget` at the budget's cap (a run with a larger cap continues there), `Outage` if workers stay
    unreachable, `Divergence` for non-finite numbers, `InvalidFirstStep` for a champion that no longer writes valid
    workflows, and `TrainingStopped` after SIGTERM or SIGINT.
    """
    configure_grading(plan.recipe, plan.root, plan.setup.workspace.cache)
    check_policy(plan.base_policy)
    card, grpo = PolicyCard.read(plan.base_policy), plan.recipe.grpo
    mix = read_problems(plan.problems)
    check_hidden_tests(mix)
    if plan.recursive is not None:
        mix = select_problems(mix, plan.recursive, plan.recipe.seed)
    problems = {problem.key: problem for problem in mix}
    client = open_client(plan.setup, "training")
    curve = TrainingCurve(folder / CURVE_FILE, report)
    model, tokenizer = load_model(plan.base_policy, card)
    precision = model.dtype
    if grpo.deepspeed is None:
        # An update of 1e-6 would be rounded to nothing in bfloat16 weights. DeepSpeed keeps its own copy in float32.
        model.float()
    # TRL ends completions and masks at the end tokens of this configuration, and saves the policy with it.
    model.generation_config.eos_token_id = ends = find_end_tokens(model.generation_config.eos_token_id, tokenizer)
    team = card.build_team(plan.pool, plan.few_shots, plan.recipe.execution, client)
    room = max_sequence_tokens(grpo, model)
    row = build_row_maker(plan, team, tokenizer, room)
    asking = build_step_questions(plan, mix, row)
    guard, request = DivergenceGuard(grpo), StopRequest()
    stop = LostSignalStop(grpo.stop_without_signal, lambda: curve.rows) if grpo.stop_without_signal else None
    fits = partial(_has_room, tokenizer, room, grpo.max_completion_tokens)
    checkpoint = find_last_checkpoint(folder / CHECKPOINTS)
    first = None
    if plan.from_champion and checkpoint is None:
        first = FirstStepCheck(plan.recipe.guards.max_invalid_first_step, plan.recipe.name, plan.recipe.seed)
    make = _choose_trainer(
        plan, problems, team, curve, ends, fits, replace(build_outage_policy(plan), sleep=request.sleep), first
    )
    trainer = make(
        model=model,
        args=build_trl_config(plan, folder, ends),
        train_dataset=build_dataset(plan, mix, row),
        processing_class=tokenizer,
        callbacks=[guard, curve, *filter(None, (asking, stop)), request, *callbacks],
    )
    trainer.step_questions, trainer.guard = asking, guard
    trainer.remove_callback(PrinterCallback)
    curve.trainer = trainer
    if trainer.is_world_process_zero():
        remove_half_written(folder / CHECKPOINTS)
        curve.start(checkpoint)
    with ExitStack() as attempt:
        if trainer.is_world_process_zero() and plan.mlflow_uri:
            curve.tracking = attempt.enter_context(MlflowTracking(plan, folder, trainer.args.to_sanitized_dict()))
        with reuse_freed_memory(), request.handle_signals():
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if request.message and trainer.is_world_process_zero():
            raise TrainingStopped(request.message)
    if request.message:
        return None
    model.to(precision)
    trainer.save_model(str(folder / "policy"))
    if trainer.is_world_process_zero():  # this pickle contains paths of this machine
        (folder / "policy" / "training_args.bin").unlink(missing_ok=True)
    counts: list[CallCounts] = gather_object([client.counts])
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
    result = curve.build_result(counts, stop.reason if stop else "")
    curve.finish()
    result.write(folder)
    return result


def _choose_trainer(
    plan: RunPlan, problems: dict[str, Problem], team: Team, curve: TrainingCurve, ends: Sequence[int],
    has_room: HasRoom, outage_policy: OutagePolicy, first: FirstStepCheck | None,
) -> Callable[..., TimedTrainer]:  # fmt: skip
    """Return a constructor of the trainer for the plan's stage, to which the arguments that all stages share are
    given."""
    grpo = plan.recipe.grpo
    if plan.recursive is not None:
        rounds = RoundRewards(
            problems, team, plan.recursive, curve.add_batch, weights=grpo.reward_terms,
            worker_samples=WorkerSamples.from_settings(grpo), ends=ends, outage_policy=outage_policy, has_room=has_room,
            first_step=first,
        )  # fmt: skip
        return partial(RoundsTrainer, rounds=rounds)
    reward = build_reward_function(
        problems, team, curve.add_batch, grpo.reward_terms, WorkerSamples.from_settings(grpo), ends, outage_policy,
        renumbered=plan.adaptive is not None and plan.adaptive.reshuffle, first_step=first,
    )  # fmt: skip
    overlap = {"staleness": grpo.staleness} if grpo.staleness else {}
    return partial(select_trainer_class(grpo), reward_funcs=reward, **overlap)


def _has_room(tokenizer: Any, longest: int | None, completion: int, messages: Sequence[Message]) -> bool:
    """Return True if `completion` tokens fit after these messages in a sequence of at most `longest` tokens."""
    return longest is None or count_chat_tokens(tokenizer, messages) <= longest - completion


def select_trainer_class(grpo: Grpo) -> type[TimedTrainer]:
    """Return the trainer class for a stage of first rounds: with overlapping steps if `grpo.staleness` is set."""
    if not grpo.staleness:
        return TimedTrainer
    return OverlappedTrainer


def build_step_questions(
    plan: RunPlan, problems: Sequence[Problem], build_row: Callable[[Problem, int], Row]
) -> StepQuestions | None:
    """Return the object that chooses the questions of each step, or None if the recipe uses the data set's order."""
    if plan.recipe.grpo.sampling == "epochs":
        return None
    return StepQuestions(
        WeightedRoundRobin(problems, plan.recipe.seed, forecast_variances(plan.setup, problems)), build_row
    )
