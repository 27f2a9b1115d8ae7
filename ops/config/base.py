"""The base of every settings model, and the digest used in keys."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}"
"""Regular expression of names that may become part of a file name."""
Name = Annotated[str, Field(pattern=f"^{NAME}$")]
PoolName = Annotated[str, Field(pattern=f"^{NAME}(:{NAME})?$")]
"""`NAME` of a file in config/pools, or `NAME:VARIANT`."""
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Settings(BaseModel):
    """Base of every model here: unknown keys are errors and values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def of_file(cls, values: Any) -> Self:
        """Validate settings written by a person.

        A text or a truth value is not accepted as a number, nor a number as a text. Raises `ValidationError`.
        """
        return cls.model_validate_json(json.dumps(values), strict=True)


def digest(value: object) -> str:
    """Return twelve hex digits of the SHA-256 of `value`'s canonical JSON, for content keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
