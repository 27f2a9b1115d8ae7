"""Quiet libraries: no telemetry, no progress bars, no advice on stderr."""

from __future__ import annotations

import logging
import os
import warnings

OFF = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "VLLM_NO_USAGE_STATS": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


def silence() -> None:
    """Set the variables that are not set; call before importing torch or transformers."""
    for name, value in OFF.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*deprecated", category=FutureWarning)
    for noisy in ("transformers", "trl", "LiteLLM", "alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
