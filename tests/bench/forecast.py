"""Simulate `podium forecast` on workers whose true gain is known, written into docs/reference: `make forecast`."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from ops.core.documents import MEASUREMENTS, replace_marked_text
from ops.core.workspace import Workspace
from ops.planning.forecast import MIN_GAIN, Outlook, assess_outlook
from tests.bench.row import sized
from tests.unit.planning.test_forecast import WORLDS, World

MARK = "<!-- made by `make forecast` -->"
FORECASTS = sized(200, 3)
QUESTIONS, SAMPLES = (20, 100, 300), (1, 2)


class Row(NamedTuple):
    """What the forecasts of one kind of workers said."""

    world: str
    true: float
    """The true attainable gain, as a share."""
    questions: int
    samples: int
    said: Counter[Outlook]
    gain: float
    """The mean forecast gain."""
    hindsight: float
    """The mean gain of the best answer of each question, which the forecast took for the gain before."""

    @property
    def wrong(self) -> float:
        """The share of false forecasts: a gain where there is none, or less than `MIN_GAIN` where there is more."""
        false = self.said[Outlook.PAYS] * (self.true < 0.001) + self.said[Outlook.HARDLY_PAYS] * (self.true >= MIN_GAIN)
        return false / self.said.total()


def simulate(name: str, world: World, true: float, questions: int, samples: int) -> Row:
    """Forecast on `FORECASTS` draws of questions and answers."""
    rng = np.random.default_rng([questions, samples])
    rooms = [world.room(questions, samples, rng) for _ in range(FORECASTS)]
    said = Counter(assess_outlook(room, 1.0) for room in rooms)
    gains = float(np.mean([room.gain.mean for room in rooms])), float(np.mean([room.hindsight.mean for room in rooms]))
    return Row(name, true, questions, samples, said, *gains)


def rows() -> list[Row]:
    """Return the rows of the table."""
    made = []
    for name, world in WORLDS.items():
        true = max(0.0, world.gain())
        made += [simulate(name, world, true, questions, samples) for questions in QUESTIONS for samples in SAMPLES]
    return made


def table(made: list[Row]) -> str:
    """Return the table as Markdown."""
    head = (
        "| workers | true gain, points | questions | samples | may pay | would hardly pay | undecided | forecast gain "
        "| in hindsight | false |"
    )
    lines = [head, f"| --- |{' ---: |' * 9}"]
    for row in made:
        undecided = row.said[Outlook.ONE_SAMPLE] + row.said[Outlook.UNDECIDED]
        shares = (
            count / row.said.total() for count in (row.said[Outlook.PAYS], row.said[Outlook.HARDLY_PAYS], undecided)
        )
        lines.append(
            f"| {row.world} | {100 * row.true:.1f} | {row.questions} | {row.samples} | "
            f"{' | '.join(f'{share:.1%}' for share in shares)} | {100 * row.gain:+.1f} | {100 * row.hindsight:+.1f} | "
            f"{row.wrong:.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Simulate, and write the table."""
    text = table(rows())
    replace_marked_text(Workspace.find().root / MEASUREMENTS, MARK, text)
    print(text)


if __name__ == "__main__":
    main()
