"""The Hugging Face hub as a source: fetch a dataset's rows, cut one upstream split into ours.

What belongs here: the call to `datasets` and its errors. What does not: which
columns mean what (each benchmark's own file). Needs a network: what is written here
was checked against `datasets`' signature and its offline errors, not against the live hub.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ops.benchmarks.order import shuffled
from ops.benchmarks.rows import Row
from ops.errors import DataError
from ops.problem import Split


@dataclass(frozen=True)
class Part:
    """Where one of our splits lies upstream: configuration and split, and whether it is only a share of it.

    `first` and `count` cut a fixed, seedless shuffle of the rows, so that the held-out part of a
    benchmark with a single upstream split is the same for everyone and for ever. `count` None: all.
    """

    config: str | None
    split: str
    first: int = 0
    count: int | None = None


@dataclass(frozen=True)
class Hub:
    """A dataset on the hub: its id and where each of our splits lies."""

    id: str
    parts: Mapping[Split, Part]

    def rows(self, split: Split, revision: str | None) -> Iterator[Row]:
        """Rows of `split`, numbered from 1 in upstream order. Raises `DataError` if they cannot be had."""
        part = self.parts[split]
        table = _load(self.id, part, revision)
        numbered = [Row(f"{self.id} ({part.config or 'default'}/{part.split})", n, r) for n, r in enumerate(table, 1)]
        if part.count is None:
            yield from numbered
            return
        chosen = shuffled(numbered, [str(row.line) for row in numbered], seed=0)[part.first : part.first + part.count]
        yield from sorted(chosen, key=lambda row: row.line)


def _load(name: str, part: Part, revision: str | None) -> Any:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import httpx
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        return load_dataset(name, part.config, split=part.split, revision=revision)
    except (OSError, ValueError, httpx.HTTPError, DatasetsError) as error:
        remedy = (
            "Check the network; if it is gated, run `hf auth login` and accept the terms at "
            f"https://huggingface.co/datasets/{name}; or fetch the rows once and use source: file"
        )
        where = f"{part.config or 'default'}/{part.split}"
        raise DataError(f"hub dataset {name}", where, f"cannot be loaded ({error})", remedy) from error
