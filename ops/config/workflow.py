"""The parts of a recipe that say what the Conductor is shown, how it writes, and how its workflows are executed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ops.config.base import Settings


class Prompting(Settings):
    """What the Conductor is shown."""

    style: Literal["full", "compact"] = "full"
    """"full" explains the task and the grammar; "compact" shows only the problem and the workers'
    ordinals, for a policy that learned the grammar in its cold start."""
    few_shots: Literal["none", "out_of_distribution", "in_distribution", "mixed"] = "out_of_distribution"
    max_steps: int = Field(default=5, ge=1)
    access: Literal["binary", "fine_grained"] = "binary"
    subtasks: bool = True
    """Whether workers receive the Conductor's subtasks; false: every subtask is "Solve the problem." (an ablation of
    arXiv:2512.04388)."""
    shuffle_ordinals: bool = True
    """Whether the seed decides which worker is "Model 0", so that a worker's position carries no prior."""
    cards: bool = False
    """Whether each worker's measured accuracy by domain and its price are shown beside its ordinal."""


class Generation(Settings):
    """How the Conductor's tokens are drawn, beside the temperature: in training, evaluation and serving alike.

    What a model's own `generation_config.json` says counts nowhere (Qwen2.5-7B-Instruct's: top-p 0.8, top-k 20,
    repetition penalty 1.05), but for the tokens that end a text.
    """

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Share of the probability that is drawn from, likeliest tokens first; 1: all of it."""
    top_k: int = Field(default=0, ge=0)
    """How many tokens are drawn from, likeliest first; 0: all of them."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Tokens below this share of the likeliest one's probability are not drawn; None: all may be."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Above 1, tokens that stand in the prompt or the text become less likely, in greedy texts too; 1: they do not."""


class Execution(Settings):
    """How a workflow is run."""

    deadline_s: float | None = Field(default=None, gt=0)
    """Maximum seconds of a workflow's own work along its longest chain, without waits for limits. Longer: timed out,
    which is unscorable."""
    carried_tokens: int | None = Field(default=None, ge=16)
    """Maximum tokens of a response that later steps see; longer ones lose their middle. None: whole."""
    traces: int = Field(default=2, ge=0)
    """Executions per benchmark whose traces an evaluation exports to MLflow."""

    @property
    def what_answers_depend_on(self) -> dict[str, object]:
        """The settings that can change an answer: a part of a training run's content key."""
        changed = {"deadline_s": self.deadline_s, "carried_tokens": self.carried_tokens}
        return {name: value for name, value in changed.items() if value is not None}
