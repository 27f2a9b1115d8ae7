"""When a worker's model is switched off, as the pool or LiteLLM's own map says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from ops.config import Worker
from ops.workers.litellm_private import models
from ops.workers.providers import is_remote

_CATALOGUED = ("anthropic", "gemini", "openai")
"""Providers all of whose models LiteLLM's map is meant to list."""


def retirement(worker: Worker) -> date | None:
    """The day on which the model ends or ended; None where neither pool nor map states one."""
    if worker.retired is not None:
        return worker.retired
    ends = (_entry(worker) or {}).get("deprecation_date")
    try:
        return date.fromisoformat(ends) if ends else None
    except ValueError:  # the map's own remarks
        return None


def is_unknown(worker: Worker) -> bool:
    """Whether the map lists this provider's models and not this one: it may be retired, or newer than the map."""
    provider = worker.model.partition("/")[0]
    return worker.api_base is None and provider in _CATALOGUED and bool(models()) and _entry(worker) is None


def _entry(worker: Worker) -> Mapping[str, Any] | None:
    """By its whole name; by the bare one only where that is of the same provider, whose date is its own."""
    if not is_remote(worker) or worker.api_base is not None:
        return None
    provider, _, bare = worker.model.partition("/")
    entry = models().get(worker.model)
    if entry is None and str((named := models().get(bare, {})).get("litellm_provider", "")) == provider:
        entry = named or None
    return entry
