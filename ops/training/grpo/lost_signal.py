"""Stop a run whose groups have no different rewards any more, and explain why.

GRPO learns nothing from a group in which all rollouts have the same reward.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

SILENT_SHARE = 0.05
"""A step counts as silent if at most this share (0-1) of its groups have different rewards."""
_CAUSE_SHARE = 0.5
"""An outcome is named as the cause in a domain if it makes up at least this share (0-1) of the domain's rollouts."""
_REMEDIES = {
    "right": "where nearly all is right there is nothing left to learn: keep this policy, or offer harder problems "
    "(curation.shortlist_factor, curation.selector)",
    "wrong": "where nearly all is wrong no workflow reaches the answer: other workers in the pool, easier problems, or "
    "a cold start that explores more (cold_start.attempts)",
    "invalid": "where most is invalid the grammar was not learnt, or was lost: more cold_start.steps, a larger "
    "grpo.max_completion_tokens, or a smaller grpo.learning_rate",
    "unscorable": "where most has no reward the workers were not reached: trainer.log says which",
}
_VARIETY = "where questions are always right or always wrong: larger groups (grpo.rollouts_per_question), a higher \
grpo.temperature or more grpo.entropy"
Row = Mapping[str, Any]
"""A line of `curve.jsonl`."""


def count_silent_steps(rows: Sequence[Row]) -> int:
    """Return how many steps in a row, counted back from the last one, were silent (`SILENT_SHARE`)."""
    count = 0
    for row in reversed(rows):
        dead = row["zero_variance_groups"]
        if dead is None or dead < 1 - SILENT_SHARE:
            break
        count += 1
    return count


def diagnose_lost_signal(rows: Sequence[Row], planned: int) -> str:
    """Return one line that says which outcomes the given last steps had in each domain, and what to do.

    `planned` is the number of steps that the run was to have.
    """
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for domain, counts in row["outcomes"].items():
            outcomes[domain].update(counts)
    said = "; ".join(f"{domain} {_format_shares(counts)}" for domain, counts in sorted(outcomes.items()))
    remedies = dict.fromkeys(_choose_remedy(counts) for counts in outcomes.values())
    return (
        f"ended after step {rows[-1]['step']} of {planned}, for want of a signal: in the last {len(rows)} steps at "
        f"most {SILENT_SHARE:.0%} of a step's groups had rewards that differ, and the others teach nothing. "
        f"Rollouts by domain: {said}. What to do: {'; '.join(remedies)}"
    )


def _format_shares(counts: Counter[str]) -> str:
    return ", ".join(f"{count / counts.total():.0%} {name}" for name, count in counts.most_common() if count)


def _choose_remedy(counts: Counter[str]) -> str:
    """Return the remedy for the most frequent outcome of a domain, or the one for a lack of variety if outcomes are
    mixed."""
    [(name, count)] = counts.most_common(1)
    mixed = name in ("right", "wrong") and count < (1 - SILENT_SHARE) * counts.total()
    return _VARIETY if mixed or count < _CAUSE_SHARE * counts.total() else _REMEDIES[name]


class LostSignalStop(TrainerCallback):  # type: ignore[misc]
    """Ends a training after `steps` silent steps in a row, as if it had reached its last step.

    The first rank has the curve and decides for all ranks. `reason` is empty until then, and always on the other ranks.
    """

    def __init__(self, steps: int, rows: Callable[[], Sequence[Row]]) -> None:
        self._steps, self._rows = steps, rows
        self.reason = ""

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        if not logs or "reward" not in logs:
            return
        rows = self._rows()
        ends = [state.is_world_process_zero and count_silent_steps(rows) >= self._steps]
        broadcast_object_list(ends)
        if ends[0]:
            control.should_training_stop = True
            if state.is_world_process_zero:
                self.reason = diagnose_lost_signal(rows[-self._steps :], state.max_steps)
