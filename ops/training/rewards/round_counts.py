"""What the rounds of one training step did: the numbers by which a curve tells first from recursive rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ops.conductor.rollout import Rollout

FIRST, SECOND = "round_1", "round_2"


def counted(rollouts: Sequence[Rollout]) -> Counter[str]:
    """First and recursive rounds (`round_1`, `round_2`), the right ones of each, and what the recursive ones did.

    `kept`: three empty lists. `loops`: the same workflow once more. `to_right` and `to_wrong`: another answer than the
    round before, graded otherwise.
    """
    counts = Counter[str]()
    for rollout in rollouts:
        before, name = rollout.after, FIRST if rollout.after is None else SECOND
        counts[name] += 1
        counts[f"{name}/right"] += rollout.outcome == "right"
        if before is None:
            continue
        workflow = rollout.parsed.workflow
        kept = workflow is not None and workflow.is_empty
        counts[f"{name}/kept"] += kept
        counts[f"{name}/loops"] += rollout.keeps and not kept
        counts[f"{name}/to_right"] += (before.outcome, rollout.outcome) == ("wrong", "right")
        counts[f"{name}/to_wrong"] += (before.outcome, rollout.outcome) == ("right", "wrong")
    return counts


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Each as a share of its round's rollouts, and how many recursive rounds there were; nothing without rounds."""
    if not counts:
        return {}
    of_rounds = {name: count / counts[name.partition("/")[0]] for name, count in counts.items() if "/" in name}
    return {f"{SECOND}/rollouts": counts.get(SECOND, 0), **of_rounds}
