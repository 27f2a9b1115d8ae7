"""Load datasets from the Hugging Face hub at a pinned revision, and divide upstream splits into Podium's splits.

Tested against local folders and a stand-in server on loopback; not tried against the live hub.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ops.benchmarks.source_rows import Row, shuffle_by_hash
from ops.core.errors import DataError
from ops.core.problem import Split

Item = TypeVar("Item")


class HubUnreachable(DataError):
    """The hub did not answer, and the pinned revision is not in the local cache."""


class HubRefused(DataError):
    """The hub answered that the dataset or its revision is gated, absent or private."""


class HubChanged(DataError):
    """The dataset was found without the configuration, split, columns or rows that are needed."""


@dataclass(frozen=True)
class UpstreamSplit:
    """The upstream source of one split: its configuration and split, and the share of it that is used.

    `first` and `count` select rows from a fixed shuffle without a seed, so that the held-out part of a benchmark with a
    single upstream split is the same for everyone. `count` None selects all rows. `rows` is the number of problems that
    the split is published with.
    """

    config: str | None
    split: str
    first: int = 0
    count: int | None = None
    rows: int | None = None

    def select(self, items: Sequence[Item], place: str) -> list[Item]:
        """Return this split's share of all upstream `items`, in their order. Raises `HubChanged` if there are too
        few."""
        if self.count is None:
            return list(items)
        if len(items) < self.first + self.count:
            problem = f"holds {len(items):,} rows; rows {self.first:,} to {self.first + self.count:,} are cut from it"
            remedy = "Name one file for each split, or pin a revision with all rows"
            raise HubChanged(place, self.split, problem, remedy)
        numbered = list(enumerate(items, start=1))
        chosen = shuffle_by_hash(numbered, [str(number) for number, _ in numbered], seed=0)
        return [item for _, item in sorted(chosen[self.first : self.first + self.count], key=lambda pair: pair[0])]


@dataclass(frozen=True)
class HubDataset:
    """A dataset on the hub: its id, the upstream source of each split, and the columns that are read.

    `documented_by` names the source from which id and columns were taken, since they were not tried against the hub.
    For a confidential benchmark no error names columns, because the columns of a file without a header are a row.
    """

    id: str
    splits: Mapping[Split, UpstreamSplit]
    columns: tuple[str, ...]
    documented_by: str
    is_confidential: bool = False
    is_gated: bool = False
    """True if the hub provides the dataset only to accounts that have accepted its terms."""

    def load_rows(self, split: Split, revision: str | None, config: str | None = None) -> Iterator[Row]:
        """Load the rows of `split`, numbered from 1 in upstream order; `config` replaces the split's configuration.

        Raises `HubUnreachable`, `HubRefused` or `HubChanged`. Nothing is written except the hub's own cache.
        """
        part = self.splits[split]
        where = self._place(split, config)
        with _translate_errors(self.id, where, revision):
            builder = _load_builder(self.id, config or part.config, where, revision)
            builder.download_and_prepare()
            table = builder.as_dataset(split=part.split)
        if missing := [column for column in self.columns if column not in table.column_names]:
            names = f"{len(table.column_names)} others" if self.is_confidential else ", ".join(table.column_names)
            problem = f"lacks {', '.join(missing)}; it has {names}"
            remedy = f"Pin a revision with the columns {', '.join(self.columns)}, or use source: file"
            raise HubChanged(f"hub dataset {self.id}", where, problem, remedy)
        place = f"{self.id} ({where})"
        name = config or part.split
        numbered = [Row(place, n, r, source_name=name, number=n, unit="row") for n, r in enumerate(table, 1)]
        if not numbered:
            raise HubChanged(f"hub dataset {self.id}", where, "holds no rows", "Pin another revision")
        yield from part.select(numbered, place)

    def check_split(self, split: Split, revision: str | None, config: str | None = None) -> None:
        """Ask the hub, or its local cache, for the description of `split` without loading a row.

        Raises the errors of `load_rows` that are known before rows are loaded.
        """
        where = self._place(split, config)
        with _translate_errors(self.id, where, revision):
            _load_builder(self.id, config or self.splits[split].config, where, revision)

    def _place(self, split: Split, config: str | None) -> str:
        part = self.splits[split]
        return f"{config or part.config or 'default'}/{part.split}"


def _load_builder(name: str, config: str | None, where: str, revision: str | None) -> Any:
    """Return the dataset's builder at this revision. Raises `HubUnreachable`, and the library's errors."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from datasets import load_dataset_builder

    builder = load_dataset_builder(name, config, revision=revision)
    # If the hub fails, `datasets` uses any cached version, also of another revision.
    if not Path(name).is_dir() and builder.hash != revision:
        problem = f"cannot be reached, and revision {revision} is not in the local cache"
        raise HubUnreachable(f"hub dataset {name}", where, problem, _OFFLINE)
    return builder


@contextmanager
def _translate_errors(name: str, where: str, revision: str | None) -> Iterator[None]:
    """Turn the library's errors inside the block into `HubUnreachable`, `HubRefused` or `HubChanged`."""
    import httpx
    from datasets.exceptions import DatasetsError

    try:
        yield
    except (OSError, RuntimeError, ValueError, httpx.HTTPError, DatasetsError) as error:
        _raise_hub_error(error, f"hub dataset {name}", where, revision)


_OFFLINE = (
    "Check the network (and HF_HUB_OFFLINE, HF_ENDPOINT) and try again, or fetch the rows once and use source: file. "
    "What was loaded before is unchanged"
)


def _raise_hub_error(error: Exception, place: str, where: str, revision: str | None) -> NoReturn:
    """Raise the kind of failure that the library's error means. Only types are named, because Arrow's messages can
    quote rows."""
    from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

    text = str(error)
    if isinstance(error, DatasetNotFoundError):
        _raise_refused(text, place, where, revision)
    if isinstance(error, DatasetGenerationError):
        cause = type(error.__cause__).__name__ if error.__cause__ else "no cause given"
        problem = f"cannot be read as one table ({cause})"
        raise HubChanged(place, where, problem, "Pin a revision whose files agree, or use source: file") from None
    if isinstance(error, ValueError):  # unknown configuration or split, no data files, sizes that do not agree
        reason = " ".join(text.split())[:300]
        remedy = "Pin a revision that has it, or use source: file"
        raise HubChanged(place, where, f"is not as it was ({type(error).__name__}: {reason})", remedy) from None
    # A failed download is first reported as "no such local folder"; the hub's own error follows.
    reason = (text.rpartition(" either: ")[2].splitlines() or ["no reason given"])[0][:200]
    problem = f"cannot be reached ({type(error).__name__}: {reason})"
    raise HubUnreachable(place, where, problem, _OFFLINE) from None


def _raise_refused(text: str, place: str, where: str, revision: str | None) -> NoReturn:
    name = place.removeprefix("hub dataset ")
    page = f"https://huggingface.co/datasets/{name}"
    if "gated" in text:
        remedy = f"Accept its terms at {page} and set HF_TOKEN (or run `hf auth login`)"
        raise HubRefused(place, where, "is gated", remedy) from None
    if "Revision" in text:
        remedy = f"`git ls-remote {page} HEAD` prints the newest revision"
        raise HubRefused(place, where, f"has no revision {revision}", remedy) from None
    remedy = f"Check {page}; a private one needs HF_TOKEN"
    raise HubRefused(place, where, "does not exist or is private", remedy) from None
