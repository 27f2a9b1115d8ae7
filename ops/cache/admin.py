"""Maintain a cache: its contents, removal of entries, checks, and export as a table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ops.cache.backend import CacheRow, canonical, decode, fingerprint, is_sound
from ops.cache.front import ResponseCache
from ops.cache.local import LocalBackend
from ops.config import Pool
from ops.core.atomic import replacing
from ops.core.response import Sample
from ops.core.sqlite import Damaged

T = TypeVar("T")
_PAGE = 1000
UNKNOWN = "(unknown)"
"""The model of entries whose key's text was damaged or not stored."""


class Holding(NamedTuple):
    """The stored entries of one worker identity (the same settings under one model)."""

    model: str
    entries: int
    characters: int
    """Bytes of responses and prompts."""
    oldest: float
    newest: float
    """Time of the newest entry in seconds since the epoch."""


class Checked(NamedTuple):
    """The result of `verify`: number of entries read, and keys of the damaged ones."""

    entries: int
    damaged: tuple[str, ...]


def holdings(cache: ResponseCache) -> list[Holding]:
    """Return the cache's contents by worker identity, those with most entries first."""
    sums: dict[int, tuple[int, int, float, float]] = {}
    for _, worker, created, size in cache.backend.heads():
        entries, characters, oldest, newest = sums.get(worker, (0, 0, created, created))
        sums[worker] = entries + 1, characters + size, min(oldest, created), max(newest, created)
    models = {worker: json.loads(text).get("model", UNKNOWN) for worker, text in cache.backend.identities().items()}
    listing = [Holding(models.get(worker, UNKNOWN), *values) for worker, values in sums.items()]
    return sorted(listing, key=lambda holding: (-holding.entries, holding.model))


def prune(
    cache: ResponseCache,
    *,
    keep_pools: Iterable[Pool] | None = None,
    older_than_days: float | None = None,
    dry_run: bool = False,
) -> int:
    """Delete the entries that no worker of `keep_pools` uses, and those older than `older_than_days`.

    None: that bound does not apply. Returns their number; `dry_run` deletes none.
    """
    workers = None if keep_pools is None else {
        fingerprint(canonical(worker.identity)) for pool in keep_pools for worker in pool.workers
    }  # fmt: skip
    before = None if older_than_days is None else time.time() - 86_400 * older_than_days
    doomed = (
        head.key
        for head in cache.backend.heads()
        if (workers is not None and head.worker not in workers) or (before is not None and head.created < before)
    )
    return _delete(cache, doomed, dry_run=dry_run)


def verify(cache: ResponseCache, *, repair: bool = False) -> Checked:
    """Read every entry and compare its checksum; `repair` drops damaged ones, so that they are requested again.

    A damaged file raises `Damaged`; `repair` begins a new one with every sound entry of it.
    """
    if isinstance(cache.backend, LocalBackend):
        try:
            cache.backend.check()
        except Damaged as error:
            if not repair:
                raise
            cache.backend.repair(error)
    entries, damaged = 0, []
    for row in cache.backend.rows():
        entries += 1
        if not is_sound(row):
            damaged.append(row.key)
    if repair:
        _delete(cache, iter(damaged))
    return Checked(entries, tuple(damaged))


def export(cache: ResponseCache, file: Path, *, texts: bool = True) -> int:
    """Write the sound entries to a Parquet file and return how many; without `texts`, no prompt and no answer.

    Prompts hold the questions: a file with texts of a confidential benchmark is not to be published.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(texts)
    written = 0
    with replacing(file) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for page in _pages(cache.backend.rows(), _PAGE):
            entries = [entry for row in page if (entry := _entry(row)) is not None]
            chosen = [{name: entry[name] for name in schema.names} for entry in entries]
            writer.write_table(pa.Table.from_pylist(chosen, schema=schema))
            written += len(entries)
    return written


def find(cache: ResponseCache, prefix: str) -> dict[str, Any] | None:
    """Return one entry by its key or the beginning of it; None: no such entry, or a damaged one."""
    row = cache.backend.row(prefix)
    return None if row is None else _entry(row)


def _entry(row: CacheRow) -> dict[str, Any] | None:
    response = decode(row.body, row.checksum)
    if response is None:
        return None
    try:
        call = json.loads(row.material)
    except json.JSONDecodeError:
        call = {}
    worker, sample = call.get("worker", {}), Sample.from_json(call.get("sample", 0))
    return {
        "key": row.key,
        "model": worker.get("model", UNKNOWN),
        "worker": canonical(worker),
        "sample": sample.index,
        "repetition": sample.repetition,
        "namespace": sample.namespace.value,
        "messages": canonical(call.get("messages", [])),
        # A former lone surrogate in the answer is not a character that a table can hold.
        "text": response.text.encode(errors="replace").decode(),
        "prompt_tokens": response.prompt_tokens,
        "completion_tokens": response.completion_tokens,
        "cost_usd": response.cost_usd,
        "latency_s": response.latency_s,
        "finish_reason": response.finish_reason,
        "created": row.created,
    }


def _schema(texts: bool) -> Any:
    import pyarrow as pa

    fields = {
        "key": pa.string(), "model": pa.string(), "worker": pa.string(), "sample": pa.int64(),
        "repetition": pa.int64(), "namespace": pa.string(),
        "messages": pa.string(), "text": pa.string(), "prompt_tokens": pa.int64(),
        "completion_tokens": pa.int64(), "cost_usd": pa.float64(), "latency_s": pa.float64(),
        "finish_reason": pa.string(), "created": pa.float64(),
    }  # fmt: skip
    return pa.schema([field for field in fields.items() if texts or field[0] not in ("messages", "text")])


def _delete(cache: ResponseCache, keys: Iterator[str], *, dry_run: bool = False) -> int:
    deleted = 0
    for page in _pages(keys, _PAGE):
        if not dry_run:
            cache.delete(page)
        deleted += len(page)
    return deleted


def _pages(items: Iterator[T], size: int) -> Iterator[Sequence[T]]:
    while page := list(islice(items, size)):
        yield page
