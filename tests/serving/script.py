"""A writer that says what it is told, and a version made of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ops.conductor.policy import PolicyCard
from ops.config import Pool, Prompting, RoundLimits, Serving
from ops.core.response import Message
from ops.core.workspace import Workspace
from ops.serving.in_thread import EngineThread
from ops.serving.loaded import Loaded
from ops.serving.strengths import Strengths


class Scripted:
    """Writes its completions one after the other, and the last one for ever; `by_offer` goes before: what it writes
    for those prompts that end with these ordinals."""

    def __init__(self, *completions: str, seconds: float = 0.0, by_offer: Mapping[str, str] | None = None) -> None:
        self.completions, self.seconds, self.by_offer = list(completions), seconds, by_offer or {}
        self.temperatures: list[float] = []
        self.batches: list[int] = []
        self.prompts: list[str] = []
        self._lock = threading.Lock()

    def write(self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        with self._lock:
            self.batches.append(len(prompts))
            self.temperatures.append(temperature)
            self.prompts += [prompt[-1]["content"] for prompt in prompts]
            written = [self._next(prompt[-1]["content"]) for prompt in prompts]
        time.sleep(self.seconds)
        return written

    def _next(self, prompt: str) -> str:
        told = self.by_offer.get(prompt.rpartition("Models: ")[2])
        if told is not None:
            return told
        return self.completions.pop(0) if len(self.completions) > 1 else self.completions[0]


def card_of(pool: Pool, *offered: str, rounds: RoundLimits | None = None) -> PolicyCard:
    return PolicyCard(
        recipe="test",
        pool=pool,
        offered=offered or pool.names,
        prompting=Prompting(style="compact", few_shots="none"),
        max_completion_tokens=64,
        rounds=rounds,
    )


def engine_of(
    folder: Path, pool: Pool, writer: Scripted, *offered: str, rounds: RoundLimits | None = None,
    strengths: Strengths | None = None, trained_on: Pool | None = None, **settings: object,
) -> EngineThread:  # fmt: skip
    """An engine with one version of that writer; to be closed."""
    chosen = Serving.model_validate(settings)
    card = card_of(trained_on or pool, *offered, rounds=rounds)
    loaded = Loaded.of("1", writer, card, pool, chosen, strengths=strengths)
    return EngineThread.of(loaded, Workspace(folder), chosen)
