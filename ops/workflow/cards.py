"""Worker cards describe workers by measurements, which the Conductor's prompt may show beside the ordinals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from ops.config import Settings
from ops.core.errors import DataError
from ops.spending.bookings import format_usd

DOMAIN_WORDS = {"math": "mathematics", "mmlu": "multiple choice", "rlpr": "short answers", "code": "programming"}
"""The names of the domains in words, in the order in which a card lists them."""


class WorkerCard(Settings):
    """The measured accuracy and price of one worker, without its name."""

    accuracy: dict[str, float] = Field(min_length=1)
    """The share of correct answers (0 to 1) for each domain."""
    cost_usd: float = Field(ge=0)
    """The mean cost of a call in USD."""

    def describe(self) -> str:
        """Return the card in words, for example `mathematics 71 %, programming 5 %; $0.0021 a call`."""
        strengths = ", ".join(
            f"{DOMAIN_WORDS.get(name, name)} {share:.0%}" for name, share in self._ordered_accuracies()
        )
        return f"{strengths.replace('%', ' %')}; {format_usd(self.cost_usd)} a call"

    def describe_briefly(self) -> str:
        """Return the card in few tokens, for example `math 71 code 5 $0.0021`."""
        strengths = " ".join(f"{name} {100 * share:.0f}" for name, share in self._ordered_accuracies())
        return f"{strengths} {format_usd(self.cost_usd)}"

    def _ordered_accuracies(self) -> list[tuple[str, float]]:
        known = [name for name in DOMAIN_WORDS if name in self.accuracy]
        return [(name, self.accuracy[name]) for name in (*known, *sorted(set(self.accuracy) - set(known)))]


def load_cards(data: Path, offered: Sequence[str]) -> tuple[WorkerCard, ...]:
    """Load the cards of the `offered` workers, in their order, from `profiles.json` in the folder `data`.

    Raises `DataError` if the file is missing or a worker was not measured.
    """
    file = data / "profiles.json"
    remedy = "Materialize worker_profiles first, or set prompting.cards to false"
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["workers"]
        measured = {row["worker"]: row for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(file, "workers", f"cannot be read ({error})", remedy) from None
    if missing := [name for name in offered if name not in measured]:
        raise DataError(file, "workers", f"has no profile of {', '.join(missing)}", remedy)
    return tuple(_parse_card(measured[name], file, remedy) for name in offered)


def _parse_card(row: dict[str, object], file: Path, remedy: str) -> WorkerCard:
    try:
        by_domain = row["by_domain"]
        accuracy = {name: score["accuracy"] for name, score in by_domain.items()}  # type: ignore[attr-defined]
        return WorkerCard.model_validate({"accuracy": accuracy, "cost_usd": row["cost_usd"]})
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        raise DataError(file, f"worker {row.get('worker')}", f"is not a profile ({error})", remedy) from None
