"""Load a policy with its backend: transformers in this process, or a vLLM server.

Both use the same prompt tokens, stop tokens and sampling settings, from the policy's card.
"""

from __future__ import annotations

from pathlib import Path

from ops.conductor.policy import Conductor
from ops.conductor.served import ServedConductor
from ops.config import TRANSFORMERS, VLLM
from ops.core.workspace import Workspace

ENV = "PODIUM_WRITER"
"""The environment variable with the writer of a served champion; default: transformers."""
AnyConductor = Conductor | ServedConductor


def load_conductor(
    folder: Path,
    workspace: Workspace,
    writer: str = TRANSFORMERS,
    setting: str = "evaluation.writer",
    key: str | None = None,
) -> AnyConductor:
    """Load the policy in `folder` with the backend `writer`: `transformers`, `vllm` (a server that Podium starts on the
    GPUs of this machine), or a server's URL.

    `key`: the policy's, if it is not the folder's name. The caller closes the result. Raises `DataError`, and
    `ConfigError` that names `setting` for a writer that cannot serve this policy.
    """
    if writer == TRANSFORMERS:
        return Conductor.load(folder)
    if writer == VLLM:
        return ServedConductor.start(folder, workspace, setting, key)
    return ServedConductor.load(folder, writer, setting, key)
