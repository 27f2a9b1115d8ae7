"""The first step of fine-tuning a champion: stopped before workers are paid where it writes no workflows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from ops.conductor.rollout import CUT_OFF
from ops.core.errors import PodiumError
from ops.training.run.ending import INVALID_FIRST_STEP
from ops.workflow.team import Team


class InvalidFirstStep(PodiumError):
    """Most completions of the first step are no workflows: says which share, why, and what to do."""


class FirstStep:
    """Judges the first batch of completions that it is given, and no later one; of several ranks each its own part.

    A champion writes workflows. Where it does not in the first step of fine-tuning, its prompt shows something that
    it has not learned (a worker that is new to it, another style), and the steps would teach it the format again at
    the price of what it could do. `max_invalid`: the share (0-1) that is allowed.
    """

    def __init__(self, max_invalid: float, recipe: str, seed: int) -> None:
        self._max_invalid, self._anew = max_invalid, f"podium run {recipe} --seed {seed}"
        self._judged = False

    def check(self, texts: Sequence[str], teams: Sequence[Team], cut_off: Collection[int] = ()) -> None:
        """Read every completion as it would be executed. Raises `InvalidFirstStep` where too many are invalid."""
        if self._judged:
            return
        self._judged = True
        written = enumerate(zip(texts, teams, strict=True))
        parsed = [CUT_OFF if i in cut_off else team.read(text) for i, (text, team) in written]
        failures = Counter(str(reading.failure) for reading in parsed if reading.failure)
        share = failures.total() / max(1, len(parsed))
        if share > self._max_invalid:
            causes = ", ".join(f"{name} {count}" for name, count in failures.most_common(3))
            raise InvalidFirstStep(
                f"{INVALID_FIRST_STEP}, before a worker was asked: {failures.total()} of its {len(parsed)} "
                f"completions ({share:.0%}) are no workflow ({causes}), and "
                f"guards.max_invalid_first_step allows {self._max_invalid:.0%}. The champion that it starts from "
                f"does not understand this prompt. Train from the start: `{self._anew}`"
            )
