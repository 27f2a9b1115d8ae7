"""The decisions that MasRouter makes for a question: mode of collaboration, number of agents, roles and workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from ops.evaluation.baselines._collaboration import MODES, ROLES, AgentRole, Mode, build_workflow, list_mode_sizes
from ops.evaluation.baselines._embedding import Vectors
from ops.workflow.grammar import Workflow

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Exploration(NamedTuple):
    """The random decisions during learning; `uniform_share` of the probability is spread evenly over all choices."""

    generator: Generator
    uniform_share: float = 0.0


class SampledWorkflow(NamedTuple):
    """A workflow, and the log-probability of its decisions given the mode."""

    workflow: Workflow
    log_probability: Tensor


class Controller(NamedTuple):
    """One linear softmax head per decision, over a question's vector; all heads start with equal probabilities.

    A worker's logit is the sum of a part that all roles share and a part for its role, so that learning about a worker
    in one role carries over to the others.
    """

    heads: Mapping[str, Tensor]
    workers: Sequence[int]
    """The ordinals of the workers that may be chosen."""
    modes: tuple[Mode, ...]
    max_steps: int
    """The largest number of steps of a workflow."""

    @classmethod
    def with_zero_weights(cls, dimensions: int, workers: Sequence[int], max_steps: int) -> Self:
        """Return a controller with zero weights; `dimensions` is the width of the vectors from `convert_to_tensor`."""
        import torch

        modes = tuple(mode for mode in MODES if list_mode_sizes(mode, max_steps))
        choices = {"mode": len(modes), "worker": len(workers)}
        choices |= {f"steps {mode}": len(list_mode_sizes(mode, max_steps)) for mode in modes}
        choices |= {f"worker {role}": len(workers) for role in ROLES}
        for mode in modes:
            for positions in list_mode_sizes(mode, max_steps).values():
                choices |= {_role_head(mode, index): len(position.roles) for index, position in enumerate(positions)}
        zeros = {name: torch.zeros(count, dimensions, dtype=torch.float64) for name, count in choices.items()}
        return cls({name: head.requires_grad_() for name, head in zeros.items()}, workers, modes, max_steps)

    def mode_logits(self, vectors: Tensor) -> Tensor:
        """Return the logits of the modes, of shape questions × modes."""
        return vectors @ self.heads["mode"].T

    def worker_logits(self, vectors: Tensor, role: str) -> Tensor:
        """Return the logits of the workers for a role, of shape … × workers."""
        return vectors @ (self.heads["worker"] + self.heads[f"worker {role}"]).T

    def choose_best(self, vector: Tensor) -> tuple[Mode, Workflow]:
        """Return the mode and the workflow that result from the most probable decision at each level."""
        mode = self.modes[int(self.mode_logits(vector).argmax())]
        return mode, self.decide_workflow(vector, mode).workflow

    def decide_workflow(self, vector: Tensor, mode: Mode, exploration: Exploration | None = None) -> SampledWorkflow:
        """Decide on a workflow of this mode: at random with `exploration`, otherwise the most probable one."""
        import torch

        total = torch.zeros((), dtype=vector.dtype)
        roles: list[str] = []
        taken: list[int] = []

        def decide(logits: Tensor) -> int:
            nonlocal total
            if exploration is None:
                return int(logits.argmax())
            chances = (1 - exploration.uniform_share) * logits.softmax(0) + exploration.uniform_share / len(logits)
            chosen = int(torch.multinomial(chances, 1, generator=exploration.generator))
            total = total + chances[chosen].log()
            return chosen

        shapes = list(list_mode_sizes(mode, self.max_steps).values())
        positions: tuple[AgentRole, ...] = shapes[decide(self.heads[f"steps {mode}"] @ vector)]
        for index, position in enumerate(positions):
            roles.append(position.roles[decide(self.heads[_role_head(mode, index)] @ vector)])
            again = position.same_worker_as
            taken.append(taken[again] if again is not None else decide(self.worker_logits(vector, roles[-1])))
        return SampledWorkflow(build_workflow(positions, roles, [self.workers[worker] for worker in taken]), total)


def convert_to_tensor(embedded: Vectors) -> Tensor:
    """Return the vectors as a tensor of shape questions × dimensions, with a last column of ones as the bias."""
    import torch

    return torch.from_numpy(np.hstack([embedded, np.ones((len(embedded), 1))]))


def _role_head(mode: Mode, position: int) -> str:
    return f"role {mode} {position}"
