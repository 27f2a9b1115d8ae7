"""Who writes for a policy: transformers in this process, vLLM in this process, or a vLLM server somewhere.

All read the same tokens, stop at the same ones and draw as the policy's card says.
"""

from __future__ import annotations

from pathlib import Path

from ops.conductor.in_vllm import VllmConductor
from ops.conductor.policy import Conductor
from ops.conductor.served import ServedConductor
from ops.config import TRANSFORMERS, VLLM

ENV = "PODIUM_WRITER"
"""The environment variable that names who writes while a champion is served; unset: transformers."""
AnyConductor = Conductor | VllmConductor | ServedConductor


def load_conductor(
    folder: Path, writer: str = TRANSFORMERS, setting: str = "evaluation.writer", key: str | None = None
) -> AnyConductor:
    """The policy in `folder`, written for as `writer` says: `transformers`, `vllm`, or a server's URL.

    `key`: the policy's, where the folder's name is not. To be closed by whoever has done with it. Raises `DataError`,
    and `ConfigError` that names `setting` for a writer that cannot write for this policy.
    """
    if writer == TRANSFORMERS:
        return Conductor.load(folder)
    if writer == VLLM:
        return VllmConductor.load(folder, setting)
    return ServedConductor.load(folder, writer, setting, key)
