"""The retirement dates of the workers' models, from the pool or from LiteLLM's model map."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from ops.config import Worker
from ops.workers.litellm_private import read_model_table
from ops.workers.providers import is_remote

_CATALOGUED = ("anthropic", "gemini", "openai")
"""The providers for which LiteLLM's map aims to list every model."""


def retirement_date(worker: Worker) -> date | None:
    """Return the day on which a worker's model is retired, or None if neither the pool nor the map states it."""
    if worker.retired is not None:
        return worker.retired
    ends = (_find_entry(worker) or {}).get("deprecation_date")
    try:
        return date.fromisoformat(ends) if ends else None
    except ValueError:  # some entries of the map hold a remark instead of a date
        return None


def is_unlisted(worker: Worker) -> bool:
    """Return True if the map lists the provider's models but not this one, which may be retired or newer than the
    map."""
    provider = worker.model.partition("/")[0]
    return (
        worker.api_base is None and provider in _CATALOGUED and bool(read_model_table()) and _find_entry(worker) is None
    )


def _find_entry(worker: Worker) -> Mapping[str, Any] | None:
    """Return the map's entry by the full model name, or by the bare name if that entry is of the same provider.

    The retirement dates of one model differ between its providers.
    """
    if not is_remote(worker) or worker.api_base is not None:
        return None
    provider, _, bare = worker.model.partition("/")
    entry = read_model_table().get(worker.model)
    if entry is None and str((named := read_model_table().get(bare, {})).get("litellm_provider", "")) == provider:
        entry = named or None
    return entry
