"""The recipe as a whole, and the combinations of its parts that are impossible."""

from __future__ import annotations

from typing import Self

from pydantic import Field, ValidationError, field_validator, model_validator

from ops.config.adaptive import Adaptive
from ops.config.base import Name, PoolName, Seed, Settings
from ops.config.data import BenchmarkSource, Curation, Grading, Versions
from ops.config.evaluation import Evaluation
from ops.config.guards import Guards
from ops.config.recursive import Recursive
from ops.config.spending import Budget, Precaching, Replay
from ops.config.stage import Stage
from ops.config.training import ColdStart, Grpo, PretrainedPolicy, ScratchPolicy
from ops.config.workflow import Execution, Generation, Prompting
from ops.core.registry import check_names


class Recipe(Settings):
    """A named training or evaluation configuration."""

    name: Name
    description: str = ""
    trained_as: Name | None = None
    """For a recipe that only evaluates differently: the recipe whose policies it uses. None: its own."""
    seed: Seed = 0
    pool: PoolName
    """A file in config/pools, without `.yaml`; `NAME:VARIANT` for one of its variants."""
    benchmarks: dict[str, BenchmarkSource]
    curation: Curation = Curation()
    precaching: Precaching = Precaching()
    replay: Replay | None = None
    """Answer every call from recorded responses, at no cost. None: call the workers."""
    prompting: Prompting = Prompting()
    execution: Execution = Execution()
    policy: ScratchPolicy | PretrainedPolicy = Field(discriminator="kind")
    cold_start: ColdStart | None = None
    """None: the base model already writes the grammar (a pretrained one with few-shot examples)."""
    generation: Generation = Generation()
    grpo: Grpo = Grpo()
    adaptive: Adaptive | None = None
    """A stage of GRPO on random subsets of the pool. None: the whole pool is always offered."""
    recursive: Recursive | None = None
    """A stage of GRPO with second rounds. None: one workflow per question."""
    fine_tune: Stage = Stage()
    """The last training stage once more, from the champion, after the pool has changed."""
    guards: Guards = Guards()
    evaluation: Evaluation = Evaluation()
    grading: Grading = Grading()
    budget: Budget = Budget()
    versions: Versions = Versions()

    @property
    def policy_name(self) -> str:
        """What the names of its policies and runs begin with."""
        return self.trained_as or self.name

    @property
    def asks_workers(self) -> bool:
        """Whether any worker may be called: not in a rehearsal that leaves out what was never recorded."""
        return self.replay is None or self.replay.on_miss == "live"

    @field_validator("benchmarks")
    @classmethod
    def _known(cls, sources: dict[str, BenchmarkSource]) -> dict[str, BenchmarkSource]:
        check_names("benchmark", "ops.benchmarks.catalogue", sources)
        return sources

    @model_validator(mode="after")
    def _scratch_needs_a_cold_start(self) -> Self:
        if self.policy.kind == "scratch" and self.cold_start is None:
            raise ValueError("a policy made from scratch needs a cold_start section")
        return self

    @model_validator(mode="after")
    def _completions_fit(self) -> Self:
        if self.policy.kind == "scratch" and self.grpo.max_completion_tokens >= self.policy.max_tokens:
            raise ValueError(
                f"policy.max_tokens = {self.policy.max_tokens} leaves no room for a prompt beside "
                f"grpo.max_completion_tokens = {self.grpo.max_completion_tokens}"
            )
        return self

    @model_validator(mode="after")
    def _lora_needs_weights(self) -> Self:
        if self.policy.kind == "scratch" and self.cold_start is not None and self.cold_start.lora is not None:
            raise ValueError("cold_start.lora adds to weights that are pretrained: a policy made from scratch has none")
        return self

    @model_validator(mode="after")
    def _subsets_can_be_told_apart(self) -> Self:
        if self.adaptive is None:
            if self.cold_start is not None and self.cold_start.parts_share:
                raise ValueError("cold_start.parts_share needs an adaptive section, which says how a part is drawn")
            return self
        if self.adaptive.reshuffle and not self.prompting.cards:
            raise ValueError(
                "adaptive.reshuffle needs prompting.cards: nothing else says who Model 0 is. Or leave it false, "
                "and workers keep their ordinals"
            )
        try:
            self.adaptive.grpo(self.grpo)
        except ValidationError as error:
            raise ValueError(f"adaptive over grpo: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
        return self

    @model_validator(mode="after")
    def _rounds_can_be_trained(self) -> Self:
        if self.recursive is None:
            return self
        if absent := sorted(set(self.recursive.benchmarks or ()) - set(self.benchmarks)):
            raise ValueError(f"recursive.benchmarks names {', '.join(absent)}, not among the recipe's benchmarks")
        try:
            self.recursive.grpo(self.grpo)
        except ValidationError as error:
            raise ValueError(f"recursive over grpo: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
        except ValueError as error:
            raise ValueError(f"recursive over grpo: {error}") from None
        return self
