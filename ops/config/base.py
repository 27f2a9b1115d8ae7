"""The base of every settings model, and the digest that keys are made of."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator

STORED = {"stored": True}
"""Validation context of what a checkout wrote itself: policies and runs outlive settings."""


class Settings(BaseModel):
    """Base of every model here: unknown keys are errors and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    BEFORE: ClassVar[frozenset[str]] = frozenset()
    """Keys of earlier checkouts: passed over in stored cards, plans and snapshots, an error in a person's file."""

    @model_validator(mode="before")
    @classmethod
    def _readable_for_ever(cls, values: Any, info: ValidationInfo) -> Any:
        if info.context is not STORED or not cls.BEFORE or not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if name not in cls.BEFORE}


def digest(value: object) -> str:
    """Twelve hex digits of the SHA-256 of `value`'s canonical JSON: content keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
