"""A pool's file: the workers, and variants of the pool that differ in some of their settings."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from ops.config.base import Name
from ops.config.pool import Pool, Worker

FIXED = ("name", "model", "api_key_env")
"""What a variant may not change: with another model it would be another worker."""


class PoolFile(Pool):
    """What `config/pools/NAME.yaml` holds; `resolve` gives the plain pool that everything else knows."""

    variants: dict[Name, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    """Variant → worker → the settings that differ there; `NAME:VARIANT` in a recipe chooses it."""

    @model_validator(mode="after")
    def _variants_are_pools(self) -> Self:
        for variant in self.variants:
            self.resolve(variant)
        return self

    def resolve(self, variant: str = "") -> Pool:
        """The pool itself, or that variant of it. Raises `ValueError` for settings that no worker can have."""
        if not variant:
            return Pool(name=self.name, description=self.description, workers=self.workers)
        changes = self.variants[variant]
        if unknown := sorted(changes.keys() - set(self.names)):
            raise ValueError(f"variants.{variant}: no worker {', '.join(unknown)} in this pool")
        return Pool(
            name=f"{self.name}:{variant}",
            description=self.description,
            workers=tuple(_changed(worker, changes.get(worker.name, {}), variant) for worker in self.workers),
        )


def _changed(worker: Worker, settings: dict[str, Any], variant: str) -> Worker:
    where = f"variants.{variant}.{worker.name}"
    if fixed := sorted(settings.keys() & set(FIXED)):
        raise ValueError(f"{where}: a variant may not change {', '.join(fixed)}")
    try:
        return Worker.of_file(worker.model_dump(mode="json") | settings)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}{'.' if field else ''}{field}: {problem}") from None
