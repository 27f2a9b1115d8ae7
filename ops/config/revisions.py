"""`config/revisions.yaml`: models that were found to have changed behind their names, and since when.

What the drift test writes, and a person may take back. The revision becomes part of every cache key of the model's
workers, in every pool: old answers stay where they are, and nobody asks for them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError

from ops.config.base import Settings
from ops.config.pool import Pool, Worker
from ops.core.atomic import write_text
from ops.core.errors import ConfigError
from ops.core.settings_files import read_yaml

FILE = "revisions.yaml"
_HEAD = """\
# Models that changed behind their names, found by `podium probe` (docs/release.md). The revision is part of every
# cache key of the model's workers: answers of before are kept, and none is mixed with those of after. Remove a line to
# take the old answers back.
"""


class Revisions(Settings):
    """Model, or `model @ endpoint` → the revision that its answers have from then on."""

    models: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def read(cls, config: Path) -> Self:
        """What the file in `config` says; nothing where there is none. Raises `ConfigError`."""
        file = config / FILE
        if not os.path.lexists(file):
            return cls()
        models = read_yaml(file)
        try:
            return cls.of_file({"models": models or {}})
        except ValidationError as error:
            remedy = "Write lines of `\"provider/model\": revision`, or delete the file"
            raise ConfigError(file, "(file)", f"is no table of revisions ({error})", remedy) from None

    def noting(self, worker: Worker, revision: str) -> Self:
        """The same with that worker's model at a new revision."""
        return type(self)(models={**self.models, model_of(worker): revision})

    def write(self, config: Path) -> Path:
        """Replace the file, whole or not at all."""
        lines = (f"{json.dumps(model)}: {json.dumps(noted)}\n" for model, noted in sorted(self.models.items()))
        write_text(config / FILE, _HEAD + "".join(lines))
        return config / FILE

    def of(self, pool: Pool) -> Pool:
        """The pool with every noted revision beside what its own file says."""
        if not any(model_of(worker) in self.models for worker in pool.workers):
            return pool
        return pool.model_copy(update={"workers": tuple(map(self._of, pool.workers))})

    def _of(self, worker: Worker) -> Worker:
        noted = self.models.get(model_of(worker))
        if noted is None:
            return worker
        return worker.model_copy(update={"revision": f"{worker.revision}+{noted}" if worker.revision else noted})


def model_of(worker: Worker) -> str:
    """What a worker's provider could swap: the model, at its endpoint."""
    return f"{worker.model} @ {worker.api_base}" if worker.api_base else worker.model
