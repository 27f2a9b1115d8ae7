"""End a training whose numbers are not finite, before they reach a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from transformers import TrainerCallback

from ops.config import Grpo
from ops.core.errors import PodiumError

_INVALID_PROBABILITIES = "probability tensor contains either"


class Divergence(PodiumError):
    """Raised if loss, gradient or weights are NaN or infinite; the message has the step and the remedy."""

    def __init__(self, what: str, step: int, grpo: Grpo) -> None:
        super().__init__(
            f"{what} not finite in step {step}, of which nothing is kept. The same command goes on from the last "
            "checkpoint. Where it ends at this step again, the settings are the cause: a "
            f"smaller grpo.learning_rate (now {grpo.learning_rate:g}) or grpo.max_grad_norm (now "
            f"{grpo.max_grad_norm:g}), or policy.dtype float32; changed settings are a run of their own"
        )


class DivergenceGuard(TrainerCallback):  # type: ignore[misc]
    """Raises `Divergence` before a non-finite gradient changes the weights, or non-finite weights reach a checkpoint.

    DeepSpeed makes its optimizer step within the backward pass and skips a non-finite gradient there. In this case the
    logged norm of the gradient is checked.
    """

    def __init__(self, grpo: Grpo) -> None:
        self._grpo = grpo

    def check_loss(self, loss: torch.Tensor, step: int) -> torch.Tensor:
        """Return the loss of a step, or raise `Divergence` if it is not finite. It is called before the backward
        pass."""
        self._check("the loss is", [loss], step)
        return loss

    @contextmanager
    def explain_sampling_errors(self, step: int) -> Iterator[None]:
        """Inside the block, turn torch's refusal to sample from invalid probabilities into `Divergence`."""
        try:
            yield
        except RuntimeError as error:
            if _INVALID_PROBABILITIES not in str(error):
                raise
            raise Divergence("the policy's probabilities are", step, self._grpo) from error

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: torch.nn.Module, **_: Any) -> None:
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        self._check("the gradient is", gradients, state.global_step + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, model: torch.nn.Module, **_: Any) -> None:
        # Under ZeRO-3 each rank checks its own part of the weights.
        weights = [getattr(parameter, "ds_tensor", parameter) for parameter in model.parameters()]
        self._check("the weights are", weights, state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        if not math.isfinite((logs or {}).get("grad_norm", 0.0)):
            raise Divergence("the gradient is", state.global_step, self._grpo)

    def _check(self, what: str, tensors: Iterable[torch.Tensor], step: int) -> None:
        if not all(bool(tensor.detach().isfinite().all()) for tensor in tensors):
            raise Divergence(what, step, self._grpo)
