"""Load a policy together with the backend that generates its completions.

The backend is this process or a vLLM server. All backends use the same prompt tokens, the same stop tokens and the
sampling settings of the policy's card. An untrained policy needs no backend.
"""

from __future__ import annotations

from pathlib import Path

from ops.conductor.from_scratch import ScratchConductor
from ops.conductor.policy import Conductor, PolicyCard, check_policy
from ops.conductor.untrained import PromptedConductor, StaticConductor
from ops.conductor.vllm_conductor import ServedConductor
from ops.config import TRANSFORMERS, VLLM, PromptedPolicy
from ops.core.workspace import Workspace

WRITER_VARIABLE = "PODIUM_WRITER"
"""The environment variable that names the writer while a champion is served. If it is not set, transformers is used."""
LocalConductor = Conductor | ScratchConductor
"""A Conductor that generates in this process."""
AnyConductor = LocalConductor | ServedConductor | StaticConductor | PromptedConductor
"""A Conductor of any kind."""


def load_conductor(
    folder: Path,
    workspace: Workspace,
    writer: str = TRANSFORMERS,
    setting: str = "evaluation.writer",
    key: str | None = None,
) -> AnyConductor:
    """Load the policy in `folder` with a backend. The caller must close the returned Conductor.

    `writer` selects the backend: `transformers` generates in this process (see `load_in_process`), `vllm` starts a vLLM
    server on the GPUs of this machine, and a URL names a running vLLM server. An untrained policy ignores it. `key` is
    the policy's key if it differs from the name of the folder. Raises `DataError` if the policy cannot be read, and
    `ConfigError`, which names `setting`, if the backend cannot generate with this policy.
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
    """Load the policy in `folder` to generate in this process.

    A small policy made from scratch generates with NumPy, and every other policy with transformers. `card` replaces the
    card in the folder. Raises `DataError` if the policy cannot be read, and `DamagedFile` if a file has changed since
    it was written.
    """
    check_policy(folder)
    return _load_checked(folder, card or PolicyCard.read(folder))


def _load_checked(folder: Path, card: PolicyCard) -> LocalConductor:
    return ScratchConductor.load(folder, card) or Conductor.load(folder, card)
