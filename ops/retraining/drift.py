"""Whether a worker is still the one that was precached: a sequential test on paired answers.

A probe is one question, three answers: the precached one, a reference that was asked for later, and tonight's. Were
the worker unchanged, reference and tonight's answer would come from one distribution, so that of the probes in which
just one of the two agrees with the precached answer, tonight's is the one that disagrees in half: a fair coin,
however noisy the worker, however hard the question. That is all that is assumed.

Each night a bet is opened that from now on the coin is biased, and all open bets are kept (Shiryaev 1963, Roberts 1966;
as e-detectors by Shin, Ramdas and Rinaldo, arXiv:2203.03532). Their sum R less the number of nights t is a martingale,
so by Doob's inequality R reaches A within T nights with a chance of at most T / A: the false alarms of an unchanged
worker. What is detected is a model that agrees with the worker's precached answers less often than the worker did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

YEAR = 365
"""Rounds over which the chance of a false alarm is stated."""
BIASES = (0.6, 0.7, 0.8, 0.9, 0.97)
"""Chances of a loss, of a coin that is no longer fair, that are bet on: on each as much."""


@dataclass(frozen=True)
class Detector:
    """The sums of all open bets, one a bias."""

    sums: tuple[float, ...] = (0.0,) * len(BIASES)

    def after(self, losses: int, gains: int) -> Detector:
        """Another round: `losses` are probes in which the reference alone agreed with the precached answer, `gains`
        those in which tonight's answer alone did. Raises `ValueError` for negative counts."""
        if min(losses, gains) < 0:
            raise ValueError(f"a round has no {losses} losses and {gains} gains")
        factors = ((2 * bias) ** losses * (2 * (1 - bias)) ** gains for bias in BIASES)
        return Detector(tuple((before + 1) * factor for before, factor in zip(self.sums, factors, strict=True)))

    @property
    def evidence(self) -> float:
        """R: the mean of the sums, 1 a round in the mean while nothing has changed."""
        return fmean(self.sums)

    def alarms(self, false_alarms: float) -> bool:
        """Whether the worker is called changed, where an unchanged one may be with a chance of `false_alarms` (0-1)
        in a year of rounds."""
        return self.evidence >= threshold(false_alarms)


def threshold(false_alarms: float) -> float:
    """The evidence at which a worker is called changed. Raises `ValueError` outside of 0 … 1."""
    if not 0 < false_alarms < 1:
        raise ValueError(f"a chance lies between 0 and 1, not {false_alarms}")
    return YEAR / false_alarms


def rounds_until_alarm(rounds: Sequence[tuple[int, int]], false_alarms: float) -> int | None:
    """After how many of these rounds of (losses, gains) the alarm comes; None: after none."""
    detector = Detector()
    for number, (losses, gains) in enumerate(rounds, start=1):
        detector = detector.after(losses, gains)
        if detector.alarms(false_alarms):
            return number
    return None
