"""Which workers each question offers in the adaptive stage.

Section 3.2 of arXiv:2512.04388: a random part of the pool for each question, and the prompt lists only those.
"""

from __future__ import annotations

from random import Random

from ops.config import Adaptive


def drawn(adaptive: Adaptive, workers: int, seed: int, problem: str, epoch: int) -> tuple[int, ...]:
    """The ordinals of `workers` that the problem of this key offers in this epoch: the same whenever it is asked.

    How many are offered is drawn first, every size alike. In order, or shuffled where the stage reshuffles.
    """
    random = Random(f"{seed} {epoch} {problem}")
    ordinals = random.sample(range(workers), random.randint(adaptive.smallest, adaptive.largest or workers))
    return tuple(ordinals if adaptive.reshuffle else sorted(ordinals))
