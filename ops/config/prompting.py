"""The part of a recipe that says what the Conductor is shown."""

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
