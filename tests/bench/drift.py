"""Simulate the drift test, written into docs/reference: `make drift`.

The table has the delay until a swapped model is detected, and the rate of false alarms.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from ops.config import Drift, load_retraining
from ops.core.documents import MEASUREMENTS, format_markdown_table, replace_marked_text
from ops.core.workspace import Workspace
from ops.retraining.drift import ROUNDS_PER_YEAR, AnswerPair, DriftRecord
from tests.bench.row import sized

MARK = "<!-- made by `make drift` -->"
SIMULATIONS = sized(40, 3)
"""Number of years for each provider."""
BANK = 960
"""Questions with a stored answer. After the last one the first is asked again."""


@dataclass(frozen=True)
class Provider:
    """A simulated worker, which gives its usual answer to a question with probability `steadiness`, else a wrong one.

    `accuracy`: share of questions whose usual answer is right. `outages`: share of questions without an answer.
    `swapped_at`: the round (from 1) before which another model replaces it; None: never. The new model has the same
    steadiness; its usual answer is wrong where the old model's was right on a share `lost` of all questions, and right
    where that was wrong on a share `gained`.
    """

    name: str
    steadiness: float
    accuracy: float = 0.7
    outages: float = 0.0
    swapped_at: int | None = None
    lost: float = 0.0
    gained: float = 0.0


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
    provider: Provider, settings: Drift, *, rounds: int = ROUNDS_PER_YEAR, simulations: int = SIMULATIONS, seed: int = 0
) -> Found:
    """Simulate rounds of a provider in independent simulations, each until the first alarm."""
    rng = np.random.default_rng(seed)
    alarms = [_first_alarm(provider, settings, rounds, rng) for _ in range(simulations)]
    swap = provider.swapped_at or rounds + 1
    early = sum(alarm is not None and alarm < swap for alarm in alarms)
    delays = tuple(alarm - swap + 1 for alarm in alarms if alarm is not None and alarm >= swap)
    return Found(provider, simulations, early / simulations, len(delays) / simulations, delays)


def _first_alarm(provider: Provider, settings: Drift, rounds: int, rng: np.random.Generator) -> int | None:
    """Return the round (from 1) of the first alarm; None: no alarm. Stored answers are drawn once, before round 1."""
    place = rng.random(BANK)
    usual = place < provider.accuracy
    lost = place < provider.lost
    gained = place >= 1 - provider.gained
    stored = usual & (rng.random(BANK) < provider.steadiness)
    record = DriftRecord(system="simulated", identity="")
    for number in range(1, rounds + 1):
        swapped = provider.swapped_at is not None and number >= provider.swapped_at
        right = (usual & ~lost) | gained if swapped else usual
        on = date(2026, 1, 1) + timedelta(number)
        pairs = []
        for asked in range(number * settings.questions, (number + 1) * settings.questions):
            question = asked % BANK
            if rng.random() < provider.outages:
                continue
            now = right[question] and rng.random() < provider.steadiness
            key = f"benchmark/{question}"
            pairs.append(AnswerPair(key, on, float(stored[question]), float(now)))
        record = record.add_round(pairs, on)
        if record.is_changed(settings.false_alarms):
            return number
    return None


def scenarios(swapped_at: int = 120) -> tuple[Provider, ...]:
    """Return the simulated providers of the table."""
    return (
        Provider("unchanged", 0.98),
        Provider("unchanged", 0.6),
        Provider("unchanged, unreachable for 20 % of the questions", 0.6, outages=0.2),
        Provider("replaced by a model that is 10 points worse", 0.9, swapped_at=swapped_at, lost=0.15, gained=0.05),
        Provider("replaced by a model that is 15 points worse", 0.9, swapped_at=swapped_at, lost=0.2, gained=0.05),
        Provider("replaced by a model that is 30 points worse", 0.9, swapped_at=swapped_at, lost=0.4, gained=0.1),
        Provider("replaced by a model that is 15 points better", 0.9, swapped_at=swapped_at, lost=0.05, gained=0.2),
        Provider(
            "replaced by an equally accurate model: 10 % of the questions become wrong, and another 10 % right",
            0.9,
            swapped_at=swapped_at,
            lost=0.1,
            gained=0.1,
        ),
        Provider("replaced by a model that is 30 points worse", 0.6, swapped_at=swapped_at, lost=0.4, gained=0.1),
    )


def table(settings: Drift) -> str:
    """Return the table as Markdown."""
    rows = []
    for provider in scenarios():
        found = simulate(provider, settings)
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
    return format_markdown_table(head, rows)


def main() -> None:
    """Simulate, and write the table."""
    workspace = Workspace.find()
    text = table(load_retraining(workspace.config).drift)
    replace_marked_text(workspace.root / MEASUREMENTS, MARK, text)
    print(text)


if __name__ == "__main__":
    main()
