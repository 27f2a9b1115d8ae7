"""The evaluation of a recipe: who writes and who answers, how many questions, how often."""

from __future__ import annotations

import math
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from ops.config.base import PoolName, Settings
from ops.config.secret import find_in_url
from ops.core.registry import check_names

TRANSFORMERS, VLLM = "transformers", "vllm"
"""Writers that are no server's URL: transformers in this process, a vLLM server that Podium starts."""
WORST_VARIANCE = 0.25
"""Of right or wrong: p (1 - p) at p = ½."""


class Asked(Settings):
    """How one benchmark is asked, where it is not asked as the others are; None: as they are."""

    repeats: int | None = Field(default=None, ge=1)
    questions: int | None = Field(default=None, ge=1)
    target_error: float | None = Field(default=None, gt=0, lt=0.5)
    pool: PoolName | None = None


class Evaluation(Settings):
    pool: PoolName | None = None
    """Another pool or variant with the same workers' names that answers (trained with short answers, evaluated with
    long ones). None: the recipe's. In no policy's key."""
    repeats: int = Field(default=1, ge=1)
    """Workflows written and executed per question (sample indices 0 … repeats-1)."""
    questions: int | None = Field(default=None, ge=1)
    """Maximum number of questions per benchmark, the same for every system and seed; a larger number contains a smaller
    one's questions. None: all."""
    target_error: float | None = Field(default=None, gt=0, lt=0.5)
    """Standard error to reach per benchmark: 0.25 ÷ target_error² questions, within `questions` and what exists. None:
    no target."""
    benchmarks: dict[str, Asked] = Field(default_factory=dict)
    """Benchmark → settings that differ there (`aime25: {repeats: 16}`)."""
    temperature: float = Field(default=0.0, ge=0)
    """0: greedy."""
    batch: int = Field(default=128, ge=1)
    """Workflows written at once; workers answer one batch while the next is written."""
    writer: str = TRANSFORMERS
    """What writes them: `transformers`; `vllm`, a server that Podium starts with one replica on each GPU (the `gpu`
    extra); or a vLLM server's URL, `http://HOST:PORT`, which serves the policy under its key. In no content key: the
    scores are the policy's, whatever wrote."""
    baselines: tuple[str, ...] | None = None
    """Files in `ops/evaluation/baselines` to compare with, in the table's order (docs/reference/baselines.md). None:
    best worker, random worker and oracle, which cost nothing more."""

    @field_validator("writer")
    @classmethod
    def _can_write(cls, writer: str) -> str:
        if writer in (TRANSFORMERS, VLLM):
            return writer
        if urlsplit(writer).scheme not in ("http", "https") or not urlsplit(writer).hostname:
            raise ValueError(f"{writer!r} is neither {TRANSFORMERS} nor {VLLM} nor a server's URL (http://HOST:PORT)")
        if secret := find_in_url(writer):
            raise ValueError(secret)
        return writer

    @property
    def server(self) -> str | None:
        """The server's URL, where one writes."""
        return None if self.writer in (TRANSFORMERS, VLLM) else self.writer

    @field_validator("baselines")
    @classmethod
    def _known(cls, baselines: tuple[str, ...] | None) -> tuple[str, ...] | None:
        check_names("baseline", "ops.evaluation.baselines", baselines or ())
        return baselines

    @field_validator("benchmarks")
    @classmethod
    def _known_benchmarks(cls, benchmarks: dict[str, Asked]) -> dict[str, Asked]:
        check_names("benchmark", "ops.benchmarks.catalogue", benchmarks)
        return benchmarks

    def of(self, benchmark: str) -> Self:
        """The settings on one benchmark: its own over everybody's."""
        own = self.benchmarks.get(benchmark, Asked()).model_dump(exclude_none=True)
        return self.model_copy(update={**own, "benchmarks": {}})

    @property
    def most_questions(self) -> int | None:
        """Of one benchmark (`of`); None: all that there are."""
        wanted = None if self.target_error is None else math.ceil(WORST_VARIANCE / self.target_error**2)
        limits = [limit for limit in (self.questions, wanted) if limit is not None]
        return min(limits, default=None)

    @property
    def pools(self) -> tuple[str, ...]:
        """The pools that are named, each once."""
        named = (self.pool, *(each.pool for each in self.benchmarks.values()))
        return tuple(dict.fromkeys(name for name in named if name is not None))
