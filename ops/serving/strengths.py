"""Measured accuracy and price of each worker: the choice of a fallback when there is no workflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from ops.config import Price, Worker
from ops.core.usage import Usage

Source = Literal["profile", "price"]


@dataclass(frozen=True)
class Strengths:
    """What precaching measured, by worker: `accuracy` (0-1) by domain, and USD a call."""

    accuracy: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cost_usd: Mapping[str, float] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    """By worker, for those that were not measured."""

    @classmethod
    def read(cls, data: Path) -> Strengths:
        """From `profiles.json` in a checkout's data; nothing where there is none, or it cannot be read."""
        try:
            rows = json.loads((data / "profiles.json").read_text(encoding="utf-8"))["workers"]
            return cls(
                {row["worker"]: {name: score["accuracy"] for name, score in row["by_domain"].items()} for row in rows},
                {row["worker"]: row["cost_usd"] for row in rows},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Strengths:
        """What `as_dict` gave."""
        return cls(values.get("accuracy", {}), values.get("cost_usd", {}))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready: what a model version carries."""
        return {"accuracy": dict(self.accuracy), "cost_usd": dict(self.cost_usd)}

    def best(self, workers: Sequence[Worker], domain: str) -> tuple[Worker, Source]:
        """The worker with the best measured accuracy on the domain, the cheaper of equals; without measurements the
        most expensive by price, which is marked as a guess."""
        measured = [worker for worker in workers if worker.name in self.accuracy]
        if not measured:
            return max(workers, key=self.usd), "price"
        return max(measured, key=lambda worker: (self._accuracy(worker.name, domain), -self.usd(worker))), "profile"

    def cheaper_half(self, workers: Sequence[Worker]) -> list[Worker]:
        """The cheaper half of the workers, the middle one of an odd number with it, in their order."""
        kept = sorted(workers, key=self.usd)[: (len(workers) + 1) // 2]
        return [worker for worker in workers if worker in kept]

    def usd(self, worker: Worker) -> float:
        """USD of a call: as measured, else of a thousand tokens on either side."""
        if worker.name in self.cost_usd:
            return self.cost_usd[worker.name]
        price = self.prices.get(worker.name)
        return 0.0 if price is None else price.usd(Usage(1_000, 1_000))

    def _accuracy(self, name: str, domain: str) -> float:
        by_domain = self.accuracy[name]
        return by_domain[domain] if domain in by_domain else fmean(by_domain.values() or (0.0,))
