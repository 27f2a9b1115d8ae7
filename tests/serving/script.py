"""A writer with scripted completions, a version made of it, and a question to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ops.conductor.policy import Completion, PolicyCard
from ops.config import Execution, Pool, Prompting, RoundLimits, Serving, load_pool
from ops.core.messages import Message
from ops.core.workspace import Workspace
from ops.serving.answer import Answer
from ops.serving.in_thread import EngineThread
from ops.serving.loaded_version import LoadedVersion
from ops.serving.request_options import RequestOptions, make_problem
from ops.serving.worker_strengths import WorkerStrengths

POOL = load_pool(Path(__file__).parents[2] / "config", "quickstart")
SIX_BY_SEVEN = r"What is $6 \cdot 7$?"


class Scripted:
    """Writes its completions one after the other, then the last one again; `by_offer` has priority: completions by the
    ordinals that a prompt ends with. A batch takes `seconds`. A prompt with the word POISON fails its batch.
    `prompt_limit` counts characters."""

    def __init__(
        self, *completions: str, seconds: float = 0.0, by_offer: Mapping[str, str] | None = None,
        prompt_limit: int | None = None,
    ) -> None:  # fmt: skip
        self.completions, self.seconds, self.by_offer = list(completions), seconds, by_offer or {}
        self.prompt_limit = prompt_limit
        self.temperatures: list[float] = []
        self.batches: list[int] = []
        self.prompts: list[str] = []
        self._lock = threading.Lock()

    def complete(
        self, prompts: Sequence[Sequence[Message]], *, temperature: float = 0.0, seed: int = 0
    ) -> list[Completion]:
        for prompt in prompts:
            prompt[-1]["content"].encode()  # as a tokenizer does
        if any("POISON" in prompt[-1]["content"] for prompt in prompts):
            raise RuntimeError("poisoned")
        with self._lock:
            self.batches.append(len(prompts))
            self.temperatures.append(temperature)
            self.prompts += [prompt[-1]["content"] for prompt in prompts]
            written = [self._next(prompt[-1]["content"]) for prompt in prompts]
        time.sleep(self.seconds)
        return [Completion(text, True, 100, len(text)) for text in written]

    def has_room(self, prompt: Sequence[Message]) -> bool:
        return self.prompt_limit is None or len(prompt[-1]["content"]) <= self.prompt_limit

    def close(self) -> None:
        pass

    def _next(self, prompt: str) -> str:
        offered = self.by_offer.get(prompt.rpartition("Models: ")[2])
        if offered is not None:
            return offered
        return self.completions.pop(0) if len(self.completions) > 1 else self.completions[0]


def card_of(
    pool: Pool, *offered: str, rounds: RoundLimits | None = None, execution: Execution | None = None
) -> PolicyCard:
    return PolicyCard(
        recipe="test",
        pool=pool,
        offered=offered or pool.names,
        prompting=Prompting(style="compact", few_shots="none"),
        max_completion_tokens=64,
        rounds=rounds,
        execution=execution or Execution(),
    )


def engine_of(
    folder: Path, pool: Pool, writer: Scripted, *offered: str, rounds: RoundLimits | None = None,
    execution: Execution | None = None,
    strengths: WorkerStrengths | None = None, trained_on: Pool | None = None, **settings: object,
) -> EngineThread:  # fmt: skip
    """An engine with one version of that writer; to be closed."""
    chosen = Serving.model_validate(settings)
    card = card_of(trained_on or pool, *offered, rounds=rounds, execution=execution)
    loaded = LoadedVersion.from_parts("1", writer, card, pool, chosen, strengths=strengths)
    return EngineThread.from_loaded(loaded, Workspace(folder), chosen)


def ask(engine: EngineThread, text: str = SIX_BY_SEVEN, **options: Any) -> Answer:
    """Ask one question with these options."""
    chosen = RequestOptions(**options)
    return engine.answer_question(make_problem(text, chosen), chosen)
