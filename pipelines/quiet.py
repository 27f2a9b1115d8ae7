"""Quiet tools and a fast start for commands that do not need Dagster."""

from __future__ import annotations

import gc
import os
import sys
import warnings

QUIET = {
    "DAGSTER_DISABLE_TELEMETRY": "yes",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "true",
    "GX_ANALYTICS_ENABLED": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    # Not telemetry: otherwise every import of LiteLLM tries to download its price table.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    # MLflow needs git; without git, GitPython prints a page of text.
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Variables that turn off telemetry and banners; variables set by the user are kept."""

UNUSED = ("sklearn", "scipy", "accelerate")
"""Modules that transformers would import for assisted decoding, other models' losses and several devices, which Podium
does not use."""


def quiet() -> None:
    """Turn off telemetry of all tools in this process and its children, and hide a known warning in this process."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message=r"Parameter `\w+` of .* is currently in beta")  # the UI needs them


def defer_gc() -> None:
    """Speed up loading a policy: the process imports many modules and makes little garbage meanwhile."""
    gc.disable()
    for name in UNUSED:
        sys.modules[name] = None  # type: ignore[assignment]


def restore_gc() -> None:
    """Undo `defer_gc` in a process that continues."""
    for name in UNUSED:
        if sys.modules.get(name, gc) is None:
            del sys.modules[name]
    gc.freeze()  # exempts existing objects from collection
    gc.enable()
