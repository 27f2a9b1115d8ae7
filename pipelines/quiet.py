"""Quiet tools, and a quick start, for commands that have no time for Dagster."""

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
    # Not telemetry: without it every import of LiteLLM tries to download its price table.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    # MLflow asks for git, and without it GitPython fills a page.
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Tools send no telemetry and print no banners. Variables that the user has set stay."""

UNUSED = ("sklearn", "scipy", "accelerate")
"""What transformers would import for assisted decoding, other models' losses, several devices: no Conductor does."""


def quiet() -> None:
    """Turn the telemetry of every tool off in this process and its children, and a known warning in this one."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message=r"Parameter `\w+` of .* is currently in beta")  # the UI needs them


def defer_gc() -> None:
    """Load a policy sooner: a process that imports a lot and makes little garbage meanwhile."""
    gc.disable()
    for name in UNUSED:
        sys.modules[name] = None  # type: ignore[assignment]


def restore_gc() -> None:
    """Undo `defer_gc`, for a process that runs on."""
    for name in UNUSED:
        if sys.modules.get(name, gc) is None:
            del sys.modules[name]
    gc.freeze()  # existing objects are permanent
    gc.enable()
