"""Level, length and form of the answer (`ops.curation.proxies`), before any worker was asked."""

from __future__ import annotations

from collections.abc import Sequence

from ops.core.problem import Problem
from ops.curation.cover import COVERED, choose
from ops.curation.proxies import STATED, proxy_weights
from ops.curation.selector import Evidence, Weighing, selector

EXPLAINED = (
    "The mean of these proxies, each from 0.2 to 1 and compared within its benchmark. They are guesses:\n\n"
    + "\n".join(f"- {name}: preferred is {preferred}." for name, preferred in STATED)
)
PROXIES = Weighing("Proxies", lambda evidence: EXPLAINED, lambda problems, evidence: proxy_weights(problems))


@selector(
    "**Nothing here was measured**: no worker has answered. Preferred are problems that by proxies should "
    f"divide workers. Beside it, {COVERED}",
    weighing=PROXIES,
)
def proxy(offered: Sequence[Problem], places: int, evidence: Evidence) -> list[Problem]:
    """The proxies, and what the questions cover (`cover`)."""
    return choose(offered, proxy_weights(offered), places, evidence.seed)
