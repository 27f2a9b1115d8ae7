"""The base of every settings model, and the digest that keys are made of."""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of every model here: unknown keys are errors and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def digest(value: object) -> str:
    """Twelve hex digits of the SHA-256 of `value`'s canonical JSON: content keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
