"""Simulate the drift test, written into docs/reference: `make drift`.

The table has the delay until a swapped model is detected, and the rate of false alarms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ops.config import Probing, load_retraining
from ops.core.documents import MEASUREMENTS, markdown_table, write_between
from ops.core.workspace import Workspace
from ops.retraining.drift import YEAR, Detector
from tests.bench.row import sized

MARK = "<!-- made by `make drift` -->"
SIMULATIONS = sized(500, 5)
"""Number of years for each provider."""
OTHERS = 20
"""Number of equally likely answers that a model gives besides its usual one."""


def rounds_until_alarm(rounds: Sequence[tuple[int, int]], false_alarms: float) -> int | None:
    """The number of rounds of (losses, gains) until the alarm; None: no alarm."""
    detector = Detector()
    for number, (losses, gains) in enumerate(rounds, start=1):
        detector = detector.after(losses, gains)
        if detector.alarms(false_alarms):
            return number
    return None


@dataclass(frozen=True)
class Provider:
    """A simulated worker that gives its usual answer to a question with probability `steadiness`.

    `outages`: share of probes without an answer. `swapped_at`: the round (from 1) before which another model replaces
    it; None: never. The new model has the same steadiness and another usual answer on a share `differs` of questions.
    """

    name: str
    steadiness: float
    outages: float = 0.0
    swapped_at: int | None = None
    differs: float = 0.0


@dataclass(frozen=True)
class Found:
    """Results of the simulations of one provider: shares of false alarms and detected swaps, and delays in rounds."""

    provider: Provider
    simulations: int
    false_alarms: float
    found: float
    delays: tuple[int, ...]

    def delay(self, share: float) -> int | None:
        """Rounds within which the swaps of this share (0-1) of simulations were detected; None: fewer were detected."""
        place = -(-share * self.simulations // 1)
        return sorted(self.delays)[int(place) - 1] if place <= len(self.delays) else None


def simulate(
    provider: Provider, probing: Probing, *, rounds: int = YEAR, simulations: int = SIMULATIONS, seed: int = 0
) -> Found:
    """Simulate probes of a provider for `rounds` rounds in independent simulations.

    A question's three answers are drawn as in real probing: the precached one before the first round, the reference in
    the round of the question's previous use, and the probe tonight.
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
    """For each simulation, the (losses, gains) of each round."""
    rng = np.random.default_rng(seed)
    cycle = max(1, probing.reference // probing.questions)  # rounds between two uses of a question
    shape = (cycle, simulations, probing.questions)
    moved = rng.random(shape) < provider.differs
    precached = _answers(provider, np.zeros(shape, bool), rng)
    references = _answers(provider, np.zeros(shape, bool), rng)  # all references are drawn when probing begins
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
        references[place] = _answers(provider, usual, rng)  # the reference for the question's next use
    by_simulation = zip(zip(*losses, strict=True), zip(*gains, strict=True), strict=True)
    return [list(zip(*each, strict=True)) for each in by_simulation]


def _answers(provider: Provider, other: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Answers as numbers: 0 is the usual answer, 1 the other model's usual answer, the rest are stray answers."""
    steady = rng.random(other.shape) < provider.steadiness
    stray = rng.integers(2, 2 + OTHERS, size=other.shape)
    answers: NDArray[np.int64] = np.where(steady, np.where(other, 1, 0), stray)
    return answers


def scenarios(swapped_at: int = 120) -> tuple[Provider, ...]:
    """Return the simulated providers of the table."""
    return (
        Provider("healthy, steady", 0.98),
        Provider("healthy, noisy", 0.6),
        Provider("healthy, noisy, often away", 0.6, outages=0.2),
        Provider("swapped: other answers to 15 %", 0.9, swapped_at=swapped_at, differs=0.15),
        Provider("swapped: other answers to 25 %", 0.9, swapped_at=swapped_at, differs=0.25),
        Provider("swapped: other answers to 50 %", 0.9, swapped_at=swapped_at, differs=0.5),
        Provider("noisy and swapped: 50 %", 0.6, swapped_at=swapped_at, differs=0.5),
    )


def table(probing: Probing) -> str:
    """Return the table as Markdown."""
    rows = []
    for provider in scenarios():
        found = simulate(provider, probing)
        swapped = provider.swapped_at is not None
        delays = [str(found.delay(share) or "–") if swapped else "" for share in (0.5, 0.95)]
        rows.append((
            provider.name,
            f"{provider.steadiness:.0%}",
            f"{found.false_alarms:.1%}",
            f"{found.found:.1%}" if swapped else "",
            *delays,
        ))  # fmt: skip
    head = ("a worker", "gives its usual answer", "false alarms", "found", "half within (rounds)", "95 % within")
    return markdown_table(head, rows)


def main() -> None:
    """Simulate, and write the table."""
    workspace = Workspace.find()
    text = table(load_retraining(workspace.config).probing)
    write_between(workspace.root / MEASUREMENTS, MARK, text)
    print(text)


if __name__ == "__main__":
    main()
