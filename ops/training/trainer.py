"""TRL's GRPO trainer, set up from a run's plan."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig

from ops.benchmarks.store import read_problems
from ops.conductor.policy import PolicyCard, chat_tokens, context_tokens, end_of_turn, load_model
from ops.config import Grpo
from ops.core.errors import DataError
from ops.core.problem import Problem
from ops.core.response import Message
from ops.grading import configure
from ops.precaching.opening import open_client
from ops.training.checkpoints import CHECKPOINTS, last_checkpoint, remove_half_written, step_of
from ops.training.divergence import DivergenceGuard
from ops.training.duplicates import AVERAGED, without_duplicates
from ops.training.generation import write
from ops.training.lost_signal import SignalStop
from ops.training.order import Order, expected_variances
from ops.training.outage import Outage, Patience
from ops.training.packing import pack, score
from ops.training.plan import CURVE, RESULT, RunPlan, RunResult
from ops.training.refill import DEAD, DEAD_LEFT, REFILLS, Asking, AskingTrainer, Row
from ops.training.reward import IMPATIENT, StepStatistics, following, merged, reward_function
from ops.training.rounds import RoundRewards, chosen
from ops.training.rounds_trainer import InRounds
from ops.training.stop_request import Stopped, StopRequest
from ops.training.subsets import drawn, epochs
from ops.training.tracking import Tracking
from ops.workers.client import Counts
from ops.workflow.controls import plain_messages
from ops.workflow.prompt import check_length
from ops.workflow.recursion import Fits
from ops.workflow.team import Team

Report = Callable[[int, int, str], None]
FULL = {"full_attention"}
WINDOW = 5
"""Steps with a reward over which "reward before" and "reward after" are means."""
_NO_REWARD = (
    "no rollout of the run had a reward, so that nothing was learnt: no worker was reached, or a rehearsal has none of "
    "the responses. Remove the run's folder to train again"
)


class Landed(NamedTuple):
    """What a step's rollouts showed, and how long it waited for them (seconds, this process)."""

    statistics: StepStatistics
    waiting_seconds: float


class TimedTrainer(AskingTrainer):
    """GRPO that says how long generation took (seconds, this process), and updates on each distinct rollout once."""

    generation_seconds = 0.0
    landed: Landed | None = None
    """This step's rollouts, where they were not waited for from their start."""
    guard: DivergenceGuard

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        if self.merges and "old_per_token_logps" not in inputs:
            inputs = without_duplicates(inputs)
        return self.guard.loss(super()._compute_loss(model, inputs), self.state.global_step + 1)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # The first rank writes trainer_state.json next, which says that the checkpoint is whole: all ranks' files.
        self.accelerator.wait_for_everyone()

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **others: Any
    ) -> Any:
        given = {name for name, value in others.items() if value is not None and value is not False}
        if self.packs and given <= {"batch_size", "compute_entropy"}:
            packed = pack(input_ids, attention_mask, logits_to_keep)
            if packed is not None:
                return *score(model, packed), None
        return super()._get_per_token_logps_and_entropies(model, input_ids, attention_mask, logits_to_keep, **others)

    @property
    def packs(self) -> bool:
        """Whether a group is read and written as one sequence: on CPUs, in one process (GPUs were not at hand to try it
        on), by a model whose attention takes a mask of its own and is full in every layer."""
        config = self.model.config
        full = set(getattr(config, "layer_types", None) or FULL) == FULL and config._attn_implementation == "sdpa"
        return full and self.accelerator.num_processes == 1 and self.accelerator.device.type == "cpu"

    @property
    def samples_plainly(self) -> bool:
        """Whether completions are drawn from the distribution as it is at the temperature, by transformers."""
        drawn = self.args
        others = drawn.generation_kwargs or drawn.cache_implementation or drawn.gradient_checkpointing
        whole = drawn.top_p == 1.0 and not drawn.top_k and not drawn.min_p and drawn.repetition_penalty == 1.0
        return whole and not (others or self.use_vllm or self.use_transformers_continuous_batching)

    @property
    def merges(self) -> bool:
        """Whether the gradient is linear in the advantages and the rows of this process are all that there are."""
        plain = self.beta == 0 and not self._entropy_bonus_enabled and not self.use_vllm
        return plain and self.loss_type in AVERAGED and self.accelerator.num_processes == 1

    def _generate_single_turn(
        self, prompt_ids: Sequence[list[int]], images: Any, fields: Any, num_generations: int, **others: Any
    ) -> Any:
        started = time.perf_counter()
        with self.guard.drawing(self.state.global_step + 1):
            if self.packs and self.samples_plainly and images is None and not fields:
                prompts = prompt_ids[::num_generations]
                result = self._write(prompts, num_generations), None
            else:
                result = super()._generate_single_turn(prompt_ids, images, fields, num_generations, **others)
        self.generation_seconds += time.perf_counter() - started
        return result

    def _write(self, prompts: Sequence[list[int]], rollouts: int) -> list[list[int]]:
        # Around the whole: inside of it the weights' bfloat16 copies are kept from token to token.
        with self.accelerator.autocast():
            return write(
                self.accelerator.unwrap_model(self.model_wrapped),
                prompts, rollouts, self.max_completion_length, self.eos_token_ids, self.temperature,
            )  # fmt: skip


class RoundsTrainer(InRounds, TimedTrainer):
    """The trainer of the recursive stage."""


def configuration(plan: RunPlan, folder: Path, ends: Sequence[int] = ()) -> GRPOConfig:
    """TRL's configuration: one optimizer step per batch of rollouts, group-normalised advantages.

    `ends`: ids of the tokens at which vLLM stops, beside those that the model's files declare.
    """
    grpo = plan.recipe.grpo
    bf16 = getattr(plan.recipe.policy, "dtype", "float32") == "bfloat16"
    arguments = GRPOConfig(
        output_dir=str(folder / CHECKPOINTS),
        run_name=folder.name,
        report_to=[],  # `ops.training.tracking` does
        seed=plan.recipe.seed,
        max_steps=grpo.steps,
        per_device_train_batch_size=grpo.micro_batch,
        gradient_accumulation_steps=grpo.rollouts_per_step // (grpo.micro_batch * grpo.processes),
        num_generations=grpo.rollouts_per_question,
        max_completion_length=grpo.max_completion_tokens,
        temperature=grpo.temperature,
        **plan.recipe.generation.model_dump(),
        learning_rate=grpo.learning_rate,
        lr_scheduler_type=grpo.schedule,
        warmup_steps=round(grpo.warmup_ratio * grpo.steps),
        adam_beta1=grpo.adam_beta1,
        adam_beta2=grpo.adam_beta2,
        max_grad_norm=grpo.max_grad_norm,
        beta=grpo.kl,
        entropy_coef=grpo.entropy,
        epsilon=grpo.clip,
        epsilon_high=grpo.clip_high,
        loss_type=grpo.loss,
        scale_rewards="group",
        shuffle_dataset=grpo.length_window == 1 and plan.adaptive is None,
        **_machine(grpo, ends),
        bf16=bf16 and (torch.cuda.is_available() or grpo.deepspeed is None),
        gradient_checkpointing=grpo.gradient_checkpointing,
        logging_steps=1,
        save_steps=grpo.checkpoint_every,
        save_total_limit=grpo.keep_checkpoints,
        ddp_timeout=math.ceil(grpo.collective_timeout_s),
        disable_tqdm=True,
        log_completions=False,
    )
    # Only now for DeepSpeed on CPUs: transformers allows it there beside `use_cpu` alone, which disengages DeepSpeed.
    arguments.bf16 = bf16
    return arguments


def _machine(grpo: Grpo, ends: Sequence[int]) -> dict[str, Any]:
    """Generation and devices. Under DeepSpeed on CPUs neither `use_cpu` nor a `deepspeed` argument may be
    given: with either, DeepSpeed is not engaged."""
    chosen: dict[str, Any] = {"use_vllm": grpo.vllm}
    if grpo.vllm:
        chosen |= {
            "vllm_mode": grpo.vllm_mode,
            "vllm_server_base_url": grpo.vllm_server_url,
            "vllm_gpu_memory_utilization": grpo.vllm_memory,
            "vllm_max_model_length": grpo.vllm_max_model_length,
            "vllm_enable_sleep_mode": grpo.vllm_sleep,
            "vllm_tensor_parallel_size": grpo.vllm_tensor_parallel,
            "vllm_importance_sampling_correction": grpo.vllm_correction != "none",
            "vllm_importance_sampling_clip_max": grpo.vllm_correction_max,
            "generation_kwargs": {"stop_token_ids": list(ends)},
        }
        if grpo.vllm_correction != "none":
            chosen["vllm_importance_sampling_mode"] = grpo.vllm_correction
    if not torch.cuda.is_available():
        chosen |= {"ddp_backend": "gloo"} if grpo.deepspeed else {"use_cpu": True}
    return chosen


def run(plan: RunPlan, folder: Path, report: Report, callbacks: Sequence[TrainerCallback] = ()) -> RunResult | None:
    """Train to the end, from the last whole checkpoint if there is one; the policy lies in `folder/policy`.

    Returns None on ranks other than the first. Raises `OverBudget` at the cap (run again with a larger one to
    go on), `Outage` when workers stay away, `Divergence` for numbers that are not finite, and
    `Stopped` after SIGTERM or SIGINT.
    """
    configure(plan.recipe.grading, plan.root)
    card, grpo = PolicyCard.read(plan.base_policy), plan.recipe.grpo
    mix = read_problems(plan.problems)
    if plan.recursive is not None:
        mix = chosen(mix, plan.recursive, plan.recipe.seed)
    problems = {problem.key: problem for problem in mix}
    client = open_client(plan.setup, "training")
    curve = Curve(folder / CURVE, report)
    model, tokenizer = load_model(plan.base_policy, card)
    precision = model.dtype
    if grpo.deepspeed is None:
        # A step of 1e-6 vanishes in bfloat16 weights. DeepSpeed keeps a copy in float32 itself.
        model.float()
    # TRL ends completions and their masks at what the model declares, and the policy is saved with it.
    model.generation_config.eos_token_id = ends = end_of_turn(model.generation_config, tokenizer)
    team = card.team(plan.pool, plan.few_shots, plan.recipe.execution, client)
    room = longest_sequence(grpo, model)
    asking = questions(plan, mix, row_maker(plan, team, tokenizer, room))
    guard, request = DivergenceGuard(grpo), StopRequest()
    stop = SignalStop(grpo.stop_without_signal, lambda: curve.rows) if grpo.stop_without_signal else None
    fits = partial(_fits, tokenizer, room, grpo.max_completion_tokens)
    make = _trainer(plan, problems, team, curve, ends, fits, replace(patience(plan), sleep=request.sleep))
    trainer = make(
        model=model,
        args=configuration(plan, folder, ends),
        train_dataset=dataset(plan, mix, team, tokenizer, room),
        processing_class=tokenizer,
        callbacks=[guard, curve, *filter(None, (asking, stop)), request, *callbacks],
    )
    trainer.asking, trainer.guard = asking, guard
    trainer.remove_callback(PrinterCallback)
    curve.trainer = trainer
    checkpoint = last_checkpoint(folder / CHECKPOINTS)
    if trainer.is_world_process_zero():
        remove_half_written(folder / CHECKPOINTS)
        curve.start(step_of(checkpoint) if checkpoint else 0)
    with ExitStack() as attempt:
        if trainer.is_world_process_zero() and plan.mlflow_uri:
            curve.tracking = attempt.enter_context(Tracking(plan, folder, trainer.args.to_sanitized_dict()))
        with request.heard():
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if request.stopped and trainer.is_world_process_zero():
            raise Stopped(request.stopped)
    if request.stopped:
        return None
    model.to(precision)
    trainer.save_model(str(folder / "policy"))
    counts: list[Counts] = gather_object([client.counts])
    if not trainer.is_world_process_zero():
        return None
    tokenizer.save_pretrained(folder / "policy")
    trained = {
        "pretrained": None,
        "trained_steps": card.trained_steps + trainer.state.global_step,
        "generation": plan.recipe.generation,
        "rounds": card.rounds if plan.recursive is None else plan.recursive.limits,
    }
    card.model_copy(update=trained).write(folder / "policy")
    result = curve.result(counts, stop.reason if stop else "")
    unfinished = folder / f"{RESULT}.partial"
    unfinished.write_text(result.model_dump_json(indent=1), encoding="utf-8")
    unfinished.rename(folder / RESULT)
    return result


def _trainer(
    plan: RunPlan, problems: dict[str, Problem], team: Team, curve: Curve, ends: Sequence[int], fits: Fits,
    waiting: Patience,
) -> Callable[..., TimedTrainer]:  # fmt: skip
    """The trainer of the plan's stage, which lacks what every trainer takes."""
    grpo = plan.recipe.grpo
    if plan.recursive is not None:
        rounds = RoundRewards(
            problems, team, plan.recursive, curve.batch, weights=grpo.reward_terms,
            worker_samples=grpo.worker_samples, ends=ends, patience=waiting, fits=fits,
        )  # fmt: skip
        return partial(RoundsTrainer, rounds=rounds)
    reward = reward_function(
        problems, team, curve.batch, grpo.reward_terms, grpo.worker_samples, ends, waiting,
        renumbered=plan.adaptive is not None and plan.adaptive.reshuffle,
    )  # fmt: skip
    return partial(trainer_class(grpo), reward_funcs=reward)


def _fits(tokenizer: Any, longest: int | None, completion: int, messages: Sequence[Message]) -> bool:
    return longest is None or chat_tokens(tokenizer, messages) <= longest - completion


def trainer_class(grpo: Grpo) -> type[TimedTrainer]:
    """Who trains: one step after another, or with the next step's rollouts in the air."""
    if not grpo.staleness:
        return TimedTrainer
    from ops.training.overlap import OverlappedTrainer

    return OverlappedTrainer


def patience(plan: RunPlan) -> Patience:
    """How long a step waits for workers that are away. In a rehearsal nobody comes back."""
    grpo = plan.recipe.grpo
    return Patience(grpo.max_unscorable, grpo.outage_s) if plan.recipe.asks_workers else IMPATIENT


def longest_sequence(grpo: Grpo, model: Any) -> int | None:
    """Prompt and completion together (tokens): what the model was made for, or the less that vLLM keeps room for."""
    limits = [context_tokens(model.config), grpo.vllm_max_model_length if grpo.vllm else None]
    return min((limit for limit in limits if limit is not None), default=None)


def questions(plan: RunPlan, problems: Sequence[Problem], row: Callable[[Problem, int], Row]) -> Asking | None:
    """What asks others than the data set's questions; None where the recipe wants nothing of the kind."""
    grpo, chosen = plan.recipe.grpo, plan.recipe.grpo.sampling == "signal"
    if not (chosen or grpo.refills_per_step):
        return None
    expected = expected_variances(plan.setup, problems) if chosen else None
    return Asking(Order(problems, plan.recipe.seed, expected), chosen, grpo.refills_per_step, row)


def dataset(
    plan: RunPlan, problems: Sequence[Problem], team: Team, tokenizer: Any, context: int | None = None
) -> Dataset:
    """One row a problem: its prompt in chat form, and its key for the reward.

    In the adaptive stage a row a question of the whole training, in its order, with the ordinals that its prompt
    offers and its epoch: what is offered differs from epoch to epoch. Raises `PromptTooLongError` for a prompt that
    leaves no room for a completion in `context` tokens, `DataError` for fewer problems than a step asks.
    """
    grpo, seed, row = plan.recipe.grpo, plan.recipe.seed, row_maker(plan, team, tokenizer, context)
    stage = "recursive" if plan.recursive else "adaptive"
    if (plan.adaptive or plan.recursive) and len(problems) < grpo.questions_per_step:
        size = f"holds {len(problems)} problems for the stage, and a step asks {grpo.questions_per_step}"
        raise DataError(plan.problems, "(file)", size, f"Ask fewer at a step ({stage}.questions_per_step)")
    if plan.adaptive is None:
        rows = [row(problem, 0) for problem in problems]
        if grpo.length_window > 1:
            rows = by_length(rows, grpo.questions_per_step, grpo.length_window, seed)
        return Dataset.from_list(rows)
    asked: list[dict[str, Any]] = []
    for epoch, steps in epochs(len(problems), grpo.questions_per_step, grpo.steps):
        rows = [row(problem, epoch) for problem in problems]
        ordered = by_length(rows, grpo.questions_per_step, grpo.length_window, seed + epoch)
        asked += ordered[: steps * grpo.questions_per_step]
    return Dataset.from_list(asked)


def row_maker(plan: RunPlan, team: Team, tokenizer: Any, context: int | None) -> Callable[[Problem, int], Row]:
    """What makes a problem's row in an epoch, which only the adaptive stage knows; raises as `dataset` does."""
    grpo, adaptive = plan.recipe.grpo, plan.adaptive

    def row(problem: Problem, epoch: int) -> Row:
        shown, more = team, {}
        if adaptive is not None:
            ordinals = drawn(adaptive, len(team.workers), plan.recipe.seed, problem.key, epoch)
            shown = team.offering(ordinals, renumbered=adaptive.reshuffle)
            more = {"offered": list(ordinals), "epoch": epoch}
        messages = shown.messages(problem)
        if context is not None:
            check_length(messages, problem, partial(chat_tokens, tokenizer), context - grpo.max_completion_tokens)
        return {"prompt": plain_messages(tokenizer, messages), "problem": problem.key, **more}

    return row


def by_length(rows: Sequence[dict[str, Any]], step: int, window: int, seed: int) -> list[dict[str, Any]]:
    """The rows in an order in which each `step` of them have prompts of like length, those of `window` steps being
    sorted together; windows and steps are random."""
    random = Random(seed)
    shuffled = random.sample(list(rows), len(rows))
    steps = []
    for start in range(0, len(shuffled), step * window):
        part = sorted(shuffled[start : start + step * window], key=_length)
        steps += [part[first : first + step] for first in range(0, len(part), step)]
    whole = [part for part in steps if len(part) == step]
    random.shuffle(whole)
    return [row for part in (*whole, *(part for part in steps if len(part) < step)) for row in part]


def _length(row: dict[str, Any]) -> int:
    return sum(len(message["content"]) for message in row["prompt"])


class Curve(TrainerCallback):  # type: ignore[misc]
    """One JSON line a step, of all ranks together: reward, losses, outcome rates, worker use, where the time went."""

    trainer: TimedTrainer
    tracking: Tracking | None = None

    def __init__(self, file: Path, report: Report) -> None:
        self._file, self._report = file, report
        self._statistics = StepStatistics()
        self.rows: list[dict[str, Any]] = []
        self._began = 0.0

    def start(self, step: int) -> None:
        """Keep the lines up to the checkpoint's step: the steps after it are done again. The first rank's to do."""
        if self._file.is_file():
            text = self._file.read_text(encoding="utf-8")
            lines = text[: text.rfind("\n") + 1].splitlines()  # a kill may have cut the last line short
            self.rows = [row for line in lines if (row := json.loads(line))["step"] <= step]
        self._file.write_text("".join(json.dumps(row) + "\n" for row in self.rows), encoding="utf-8")

    def batch(self, statistics: StepStatistics) -> None:
        """What this rank's reward function saw: once in a step, or in each of its rounds."""
        self._statistics = following(self._statistics, statistics)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter()
        self._statistics = StepStatistics()
        self.trainer.generation_seconds = 0.0

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if not logs or "reward" not in logs:
            return
        # On every rank: TRL has gathered `logs` over them, but not what the reward function saw.
        landed = self.trainer.landed
        own, waited = landed or (self._statistics, self._statistics.seconds)
        parts: list[tuple[StepStatistics, float, float]] = gather_object([
            (own, self.trainer.generation_seconds, waited)
        ])  # fmt: skip
        if not state.is_world_process_zero:
            return
        statistics = merged([part for part, _, _ in parts])
        seconds = time.perf_counter() - self._began
        # Ranks wait for the slowest of them before they update.
        generation, workers = max(((writing, waiting) for _, writing, waiting in parts), key=sum)
        row = {
            "step": state.global_step,
            "reward": logs["reward"],
            "loss": logs.get("loss"),
            "entropy": logs.get("entropy"),
            "zero_variance_groups": logs.get(DEAD),
            **({"zero_variance_groups/left": logs[DEAD_LEFT], "refills": logs[REFILLS]} if DEAD_LEFT in logs else {}),
            "completion_tokens": logs.get("completions/mean_length"),
            **statistics.values,
            "seconds": seconds,
            "seconds/workers": workers,
            **({"seconds/hidden": max(0.0, statistics.seconds - workers)} if landed else {}),
            "seconds/generation": generation,
            "seconds/update": seconds - generation - workers,
            "use": statistics.use,
            "outcomes": statistics.outcomes,
            "top_patterns": statistics.patterns,
            "sample": statistics.sample,
        }
        self.rows.append(row)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self.tracking is not None:
            self.tracking.step(logs, row)
        reward = "none" if row["reward"] is None else f"{row['reward']:.3f}"
        note = f"reward {reward} right {row['share/right']:.2f} steps {row['steps']:.2f} {seconds:.1f} s"
        self._report(state.global_step, state.max_steps, note)

    def result(self, counts: Sequence[Counts], stopped: str = "") -> RunResult:
        """The run in numbers, all attempts together; `counts` of each rank's client are the last attempt's.

        Raises `Outage` where no step had a reward.
        """
        rewards = [row["reward"] for row in self.rows if row["reward"] is not None]
        if not rewards:
            raise Outage(_NO_REWARD)
        window = min(WINDOW, len(rewards))
        return RunResult(
            steps=len(self.rows),
            reward_before=sum(rewards[:window]) / window,
            reward_after=sum(rewards[-window:]) / window,
            window=window,
            stopped=stopped,
            rollouts=sum(row["rollouts"] for row in self.rows),
            live_calls=sum(count.live for count in counts),
            cached_calls=sum(count.cached for count in counts),
            replayed_calls=sum(count.replayed for count in counts),
            spent_usd=sum(count.usd for count in counts),
            cost_usd=sum(row["cost_usd"] for row in self.rows),
            seconds=sum(row["seconds"] for row in self.rows),
        )
