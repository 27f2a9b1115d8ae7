"""Quiet tools, and a fast start for commands that end soon."""

from __future__ import annotations

import gc
import os
import sys
import warnings

QUIET_VARIABLES = {
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

_LOADING = ("sklearn", "scipy", "accelerate")
_READING = ("sklearn", "scipy", "pandas", "pyarrow")
UNUSED_LIBRARIES = {
    "ask": _LOADING, "serve": _LOADING, "status": _READING, "verdict": _READING, "runs": (), "plan": (), "config": (),
}  # fmt: skip
"""Command that loads a policy or only reads → optional libraries that transformers and MLflow would import and that the
command does not use."""


def silence_tools() -> None:
    """Turn off telemetry of all tools in this process and its children, and hide a known warning in this process."""
    for name, value in QUIET_VARIABLES.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message=r"Parameter `\w+` of .* is currently in beta")  # the UI needs them
    # Dagster's own call, in a run whose earlier steps were unchanged.
    warnings.filterwarnings("ignore", message=r"Function `PipesMessageReader\.\w+` is currently in preview")


def defer_garbage_collection(command: str) -> None:
    """Speed up one of the commands of `UNUSED_LIBRARIES`: it imports many modules and makes little garbage."""
    gc.disable()
    for name in UNUSED_LIBRARIES[command]:
        sys.modules[name] = None  # type: ignore[assignment]


def restore_garbage_collection() -> None:
    """Undo `defer_garbage_collection` in a process that continues."""
    for name in _LOADING:
        if sys.modules.get(name, gc) is None:
            del sys.modules[name]
    gc.freeze()  # exempts existing objects from collection
    gc.enable()
