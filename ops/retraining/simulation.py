"""Drift in a simulated clock: how soon a swapped model is found, and how seldom a healthy one is accused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.config import Probing
from ops.retraining.drift import YEAR, rounds_until_alarm

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OTHERS = 20
"""Answers that a model gives beside its usual one, each as likely."""


@dataclass(frozen=True)
class Provider:
    """A worker as its answers go: to every question it has a usual answer, given in `steadiness` of the cases.

    `outages`: share of probes without an answer. `swapped_at`: the round (from 1) before which another model takes
    its place, as steady, whose usual answer is another one on `differs` of the questions; None: never.
    """

    name: str
    steadiness: float
    outages: float = 0.0
    swapped_at: int | None = None
    differs: float = 0.0


@dataclass(frozen=True)
class Found:
    """What became of the simulations of one provider: the shares of false alarms and of found swaps, and the rounds
    that it took."""

    provider: Provider
    simulations: int
    false_alarms: float
    found: float
    delays: tuple[int, ...]

    def delay(self, share: float) -> int | None:
        """Rounds within which this share of all simulations' swaps were found; None: that share never was."""
        place = -(-share * self.simulations // 1)
        return sorted(self.delays)[int(place) - 1] if place <= len(self.delays) else None


def simulate(
    provider: Provider, probing: Probing, *, rounds: int = YEAR, simulations: int = 500, seed: int = 0
) -> Found:
    """Probe such a provider for a number of rounds, each time anew.

    A question's three answers are drawn as the test is asked to take them: the precached one before everything, the
    reference in the round of the question's last use, the probe tonight.
    """
    rounds_of = _rounds(provider, probing, rounds, simulations, seed)
    alarms = [rounds_until_alarm(each, probing.false_alarms) for each in rounds_of]
    swap = provider.swapped_at or rounds + 1
    early = sum(alarm is not None and alarm < swap for alarm in alarms)
    delays = tuple(alarm - swap + 1 for alarm in alarms if alarm is not None and alarm >= swap)
    return Found(provider, simulations, early / simulations, len(delays) / simulations, delays)


def _rounds(
    provider: Provider, probing: Probing, rounds: int, simulations: int, seed: int
) -> list[list[tuple[int, int]]]:
    """(losses, gains) of each round of each simulation."""
    import numpy as np

    rng = np.random.default_rng(seed)
    cycle = max(1, probing.reference // probing.questions)  # rounds between two uses of a question
    shape = (cycle, simulations, probing.questions)
    moved = rng.random(shape) < provider.differs
    precached = _answers(provider, np.zeros(shape, bool), rng)
    references = _answers(provider, np.zeros(shape, bool), rng)  # all of them when probing begins
    losses, gains = [], []
    for number in range(1, rounds + 1):
        swapped = provider.swapped_at is not None and number >= provider.swapped_at
        place = (number - 1) % cycle
        usual = moved[place] & swapped
        tonight = _answers(provider, usual, rng)
        reached = rng.random(tonight.shape) >= provider.outages
        before, now = references[place] == precached[place], tonight == precached[place]
        losses.append((before & ~now & reached).sum(axis=1).tolist())
        gains.append((now & ~before & reached).sum(axis=1).tolist())
        references[place] = _answers(provider, usual, rng)  # for its next use
    by_simulation = zip(zip(*losses, strict=True), zip(*gains, strict=True), strict=True)
    return [list(zip(*each, strict=True)) for each in by_simulation]


def _answers(provider: Provider, other: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Answers by number: 0 is the usual one, 1 the other model's."""
    import numpy as np

    steady = rng.random(other.shape) < provider.steadiness
    stray = rng.integers(2, 2 + OTHERS, size=other.shape)
    answers: NDArray[np.int64] = np.where(steady, np.where(other, 1, 0), stray)
    return answers


def scenarios(swapped_at: int = 120) -> tuple[Provider, ...]:
    """The simulated providers of docs/reference/measurements.md."""
    return (
        Provider("healthy, steady", 0.98),
        Provider("healthy, noisy", 0.6),
        Provider("healthy, noisy, often away", 0.6, outages=0.2),
        Provider("swapped: other answers to 15 %", 0.9, swapped_at=swapped_at, differs=0.15),
        Provider("swapped: other answers to 25 %", 0.9, swapped_at=swapped_at, differs=0.25),
        Provider("swapped: other answers to 50 %", 0.9, swapped_at=swapped_at, differs=0.5),
        Provider("noisy and swapped: 50 %", 0.6, swapped_at=swapped_at, differs=0.5),
    )
