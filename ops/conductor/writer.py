"""Load a policy with its backend: this process, or a vLLM server; an untrained policy has none.

All backends use the same prompt tokens, stop tokens and sampling settings, from the policy's card.
"""

from __future__ import annotations

from pathlib import Path

from ops.conductor.policy import Conductor, PolicyCard, check_policy
from ops.conductor.scratch import ScratchConductor
from ops.conductor.served import ServedConductor
from ops.conductor.untrained import PromptedConductor, StaticConductor
from ops.config import TRANSFORMERS, VLLM, PromptedPolicy
from ops.core.workspace import Workspace

WRITER_VARIABLE = "PODIUM_WRITER"
"""The environment variable that names the writer while a champion is served; unset: transformers."""
LocalConductor = Conductor | ScratchConductor
AnyConductor = LocalConductor | ServedConductor | StaticConductor | PromptedConductor


def load_conductor(
    folder: Path,
    workspace: Workspace,
    writer: str = TRANSFORMERS,
    setting: str = "evaluation.writer",
    key: str | None = None,
) -> AnyConductor:
    """Load the policy in `folder` with the backend `writer`: `transformers` (see `load_in_process`), `vllm` (a server
    that Podium starts on the GPUs of this machine), or a server's URL.

    An untrained policy needs no writer. `key`: the policy's, where the folder's name is not. The caller closes the
    result. Raises `DataError`, and `ConfigError` that names `setting` for a writer that cannot write for this policy.
    """
    check_policy(folder)
    card = PolicyCard.read(folder)
    if card.untrained is not None:
        if isinstance(card.untrained, PromptedPolicy):
            return PromptedConductor(card, card.untrained)
        return StaticConductor(card, card.untrained)
    if writer == TRANSFORMERS:
        return _load_checked(folder, card)
    if writer == VLLM:
        return ServedConductor.start(folder, workspace, setting, key)
    return ServedConductor.load(folder, writer, setting, key)


def load_in_process(folder: Path, card: PolicyCard | None = None) -> LocalConductor:
    """Load the policy in `folder` to generate in this process: with NumPy if it was made from scratch, else with
    transformers; `card`: instead of the folder's own. Raises `DataError`, and `DamagedFile` for weights that are not
    those that were written."""
    check_policy(folder)
    return _load_checked(folder, card or PolicyCard.read(folder))


def _load_checked(folder: Path, card: PolicyCard) -> LocalConductor:
    return ScratchConductor.load(folder, card) or Conductor.load(folder, card)
