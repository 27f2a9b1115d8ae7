"""Detect a worker that changed since precaching, with a sequential test on paired answers.

A probe consists of one question and three answers: the precached one, a later reference, and tonight's. If the worker
is unchanged, the reference and tonight's answer have the same distribution. Among the probes in which exactly one of
the two agrees with the precached answer, each is then equally likely to be the one that agrees: a fair coin, regardless
of the worker's noise and the question's difficulty. The test assumes nothing else.

Each night opens a bet that the coin is biased from then on, and all open bets are kept (Shiryaev 1963, Roberts 1966; as
e-detectors by Shin, Ramdas and Rinaldo, arXiv:2203.03532). Their sum R minus the number of nights t is a martingale. By
Doob's inequality, R reaches A within T nights with probability at most T / A, which bounds the false alarms of an
unchanged worker. The test detects a model that agrees with the precached answers less often than the worker did.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

YEAR = 365
"""Number of rounds over which the probability of a false alarm is stated."""
BIASES = (0.6, 0.7, 0.8, 0.9, 0.97)
"""Loss probabilities of a biased coin; the bets are equal on all of them."""


@dataclass(frozen=True)
class Detector:
    """The sums of all open bets, one sum per bias."""

    sums: tuple[float, ...] = (0.0,) * len(BIASES)

    def after(self, losses: int, gains: int) -> Detector:
        """The detector after another round.

        `losses`: probes in which only the reference agreed with the precached answer. `gains`: probes in which only
        tonight's answer agreed. Raises `ValueError` for negative counts.
        """
        if min(losses, gains) < 0:
            raise ValueError(f"a round has no {losses} losses and {gains} gains")
        factors = ((2 * bias) ** losses * (2 * (1 - bias)) ** gains for bias in BIASES)
        return Detector(tuple((before + 1) * factor for before, factor in zip(self.sums, factors, strict=True)))

    @property
    def evidence(self) -> float:
        """R: the mean of the sums, whose expectation is the number of rounds while the worker is unchanged."""
        return fmean(self.sums)

    def alarms(self, false_alarms: float) -> bool:
        """Whether to report the worker as changed.

        `false_alarms`: probability (0-1) that an unchanged worker is reported within a year of rounds.
        """
        return self.evidence >= threshold(false_alarms)


def threshold(false_alarms: float) -> float:
    """The evidence at which a worker is reported as changed. Raises `ValueError` unless 0 < `false_alarms` < 1."""
    if not 0 < false_alarms < 1:
        raise ValueError(f"a chance lies between 0 and 1, not {false_alarms}")
    return YEAR / false_alarms
