"""The curve of a run, which has one JSON line per step, and the run's result, which summarizes the curve."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerCallback

from ops.core.atomic import name_file_in_errors, write_text
from ops.core.digests import DIGEST_SUFFIX, replace_with_digest
from ops.training.rewards.outage import Outage
from ops.training.rewards.reward import StepStatistics, add_round, merge_ranks
from ops.training.run.checkpoints import CheckpointDigests
from ops.training.run.tracking import MlflowTracking
from ops.training.run.training_run import RunResult
from ops.training.step.timed_trainer import TimedTrainer
from ops.workers.client import CallCounts

ReportProgress = Callable[[int, int, str], None]
"""A callback that receives the number of a step, the number of the last step, and the step's results in words."""
REWARD_WINDOW = 5
"""The number of steps over which a run's rewards "before" and "after" are averaged; steps without a reward do not
count."""
_NO_REWARD = (
    "no rollout of the run had a reward, so that nothing was learnt: no worker was reached, or a rehearsal has none of "
    "the responses. Remove the run's folder to train again"
)


class TrainingCurve(TrainerCallback):  # type: ignore[misc]
    """Writes one JSON line per step with the results of all ranks: reward, losses, outcomes, worker use and times
    (seconds)."""

    trainer: TimedTrainer
    """The trainer whose times and rollouts the curve reads."""
    tracking: MlflowTracking | None = None
    """The MLflow tracking that also receives each line. None means that MLflow is not used."""

    def __init__(self, file: Path, report: ReportProgress) -> None:
        self._file, self._report = file, report
        self._statistics = StepStatistics()
        self.rows: list[dict[str, Any]] = []
        self._began = 0.0
        self._digests = CheckpointDigests()

    def start(self, checkpoint: Path | None) -> None:
        """Begin the curve with the lines that `checkpoint` holds, because the later steps are repeated.

        The curve begins empty if `checkpoint` is None. Only the first rank calls this.
        """
        if checkpoint is not None and (copy := checkpoint / self._file.name).is_file():
            self.rows = [json.loads(line) for line in copy.read_text(encoding="utf-8").splitlines()]
        self._file.with_name(f"{self._file.name}{DIGEST_SUFFIX}").unlink(missing_ok=True)
        write_text(self._file, self._as_text())

    def finish(self) -> None:
        """Write the digests of the last checkpoint and of the curve."""
        self._digests.wait()
        with replace_with_digest(self._file) as temporary:
            temporary.write_text(self._as_text(), encoding="utf-8")

    def _as_text(self) -> str:
        return "".join(json.dumps(row) + "\n" for row in self.rows)

    def add_batch(self, statistics: StepStatistics) -> None:
        """Add the statistics of one call of this rank's reward function, which is called once per step or once per
        round."""
        self._statistics = add_round(self._statistics, statistics)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter()
        self._statistics = StepStatistics()
        self.trainer.generation_seconds = 0.0

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if control is not None and control.should_save:
            self._digests.wait()  # the save may remove the checkpoint whose digests are being written
        if not logs or "reward" not in logs:
            return
        # Every rank runs this: TRL has gathered `logs` over the ranks, but not the reward function's statistics.
        landed = self.trainer.finished_rollouts
        own, waited = landed or (self._statistics, self._statistics.seconds)
        parts: list[tuple[StepStatistics, float, float]] = gather_object([
            (own, self.trainer.generation_seconds, waited)
        ])  # fmt: skip
        if not state.is_world_process_zero:
            return
        statistics = merge_ranks([part for part, _, _ in parts])
        seconds = time.perf_counter() - self._began
        # The ranks wait for the slowest of them before they update, so its times are those of the step.
        generation, workers = max(((writing, waiting) for _, writing, waiting in parts), key=sum)
        row = {
            "step": state.global_step,
            "reward": logs["reward"],
            "loss": logs.get("loss"),
            "entropy": logs.get("entropy"),
            "zero_variance_groups": logs.get("frac_reward_zero_std"),
            "completion_tokens": logs.get("completions/mean_length"),
            **statistics.metrics,
            "seconds": seconds,
            "seconds/workers": workers,
            **({"seconds/hidden": max(0.0, statistics.seconds - workers)} if landed else {}),
            "seconds/generation": generation,
            "seconds/update": seconds - generation - workers,
            "use": statistics.worker_use,
            "outcomes": statistics.outcomes,
            "top_patterns": statistics.top_patterns,
            "every_pattern": dict(statistics.every_pattern.most_common()),
            "sample": statistics.sample,
        }
        self.rows.append(row)
        with name_file_in_errors(self._file), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self.tracking is not None:
            self.tracking.log_step(logs, row)
        reward = "none" if row["reward"] is None else f"{row['reward']:.3f}"
        note = f"reward {reward} right {row['share/right']:.2f} steps {row['steps']:.2f} {seconds:.1f} s"
        self._report(state.global_step, state.max_steps, note)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_text(checkpoint / self._file.name, self._as_text())
            self._digests.start_writing(checkpoint)
        if self.tracking is not None:
            self.tracking.log_checkpoint(state.global_step)

    def build_result(self, counts: Sequence[CallCounts], stopped: str = "") -> RunResult:
        """Return the run's result over all attempts. `counts` holds the calls of each rank's client in the last
        attempt.

        Raises `Outage` if no step had a reward.
        """
        rewards = [row["reward"] for row in self.rows if row["reward"] is not None]
        if not rewards:
            raise Outage(_NO_REWARD)
        window = min(REWARD_WINDOW, len(rewards))
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
            rollouts_usd=sum(row["cost_usd"] for row in self.rows),
            seconds=sum(row["seconds"] for row in self.rows),
        )
