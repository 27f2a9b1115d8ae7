"""The measured accuracy and price of each worker, by which a fallback is chosen if there is no workflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from ops.config import Price, Worker
from ops.core.usage import Usage

SelectionBasis = Literal["profile", "price"]


@dataclass(frozen=True)
class WorkerStrengths:
    """What precaching has measured of each worker: `accuracy` (0-1) by domain, and the cost of a call in USD."""

    accuracy: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cost_usd: Mapping[str, float] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    """The prices of workers that were not measured, by name."""

    @classmethod
    def load(cls, data: Path) -> WorkerStrengths:
        """Read `profiles.json` in a checkout's data. The result is empty if the file is missing or cannot be read."""
        try:
            rows = json.loads((data / "profiles.json").read_text(encoding="utf-8"))["workers"]
            return cls(
                {row["worker"]: {name: score["accuracy"] for name, score in row["by_domain"].items()} for row in rows},
                {row["worker"]: row["cost_usd"] for row in rows},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> WorkerStrengths:
        """Restore the strengths from the values that `as_dict` returned."""
        return cls(values.get("accuracy", {}), values.get("cost_usd", {}))

    def as_dict(self) -> dict[str, Any]:
        """Return the strengths as values for JSON, which a model version stores."""
        return {"accuracy": dict(self.accuracy), "cost_usd": dict(self.cost_usd)}

    def choose_best(self, workers: Sequence[Worker], domain: str) -> tuple[Worker, SelectionBasis]:
        """Return the worker with the highest measured accuracy in the domain, and the basis of the choice. Of equally
        accurate workers it is the cheaper one. Without measurements it is the most expensive worker, and the basis says
        that this is a guess."""
        measured = [worker for worker in workers if worker.name in self.accuracy]
        if not measured:
            return max(workers, key=self.estimate_usd), "price"
        return max(
            measured, key=lambda worker: (self._find_accuracy(worker.name, domain), -self.estimate_usd(worker))
        ), "profile"

    def select_cheaper_half(self, workers: Sequence[Worker]) -> list[Worker]:
        """Return the cheaper half of the workers in their order. If their number is odd, the middle one is included."""
        kept = sorted(workers, key=self.estimate_usd)[: (len(workers) + 1) // 2]
        return [worker for worker in workers if worker in kept]

    def estimate_usd(self, worker: Worker) -> float:
        """Return the cost of a call in USD: the measured one, otherwise that of a thousand prompt and a thousand
        completion tokens."""
        if worker.name in self.cost_usd:
            return self.cost_usd[worker.name]
        price = self.prices.get(worker.name)
        return 0.0 if price is None else price.compute_usd(Usage(1_000, 1_000))

    def _find_accuracy(self, name: str, domain: str) -> float:
        by_domain = self.accuracy[name]
        return by_domain[domain] if domain in by_domain else fmean(by_domain.values() or (0.0,))
