"""Maintain a store: list its contents, delete and check entries, and export responses as a table."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ops.core.atomic import replace_atomically
from ops.core.messages import Sample
from ops.core.sqlite import DamagedDatabaseError
from ops.store.entries import Backend, Entry, Kind, StoredValue, canonical_json, decode_response
from ops.store.sqlite_file import SqliteBackend

T = TypeVar("T")
_PAGE = 1000
UNKNOWN_MODEL = "(unknown)"
"""Shown as the model of a response whose request was damaged or not stored."""


class StoreContents(NamedTuple):
    """The stored entries of one kind; for responses, those of one worker identity (one model with the same
    settings)."""

    kind: str
    model: str
    """The worker's model; "" for entries that are not responses."""
    entries: int
    characters: int
    """The size of values and requests in bytes."""
    oldest: float
    newest: float
    """Time of the newest entry in seconds since the epoch; `oldest` is that of the oldest one."""


class VerificationResult(NamedTuple):
    """The number of entries that `verify_entries` has read, and the kind and key of each damaged one."""

    entries: int
    damaged: tuple[tuple[str, str], ...]


def list_contents(store: Backend) -> list[StoreContents]:
    """Return the contents of the store by kind and worker identity. Responses come first, and larger groups before
    smaller ones."""
    sums: dict[tuple[str, str], tuple[int, int, float, float]] = {}
    for entry in store.iterate_entries():
        group, size, created = (entry.kind, entry.worker), len(entry.body) + len(entry.material), entry.created
        entries, characters, oldest, newest = sums.get(group, (0, 0, created, created))
        sums[group] = entries + 1, characters + size, min(oldest, created), max(newest, created)
    listing = [
        StoreContents(kind, _read_model(worker) if kind == Kind.RESPONSE else "", *values)
        for (kind, worker), values in sums.items()
    ]
    return sorted(
        listing, key=lambda contents: (contents.kind != Kind.RESPONSE, -contents.entries, contents.kind, contents.model)
    )


def _read_model(worker: str) -> str:
    """Return the model in a worker's identity, which may be damaged."""
    try:
        return str(json.loads(worker)["model"])
    except (ValueError, KeyError, TypeError):
        return UNKNOWN_MODEL


def prune_entries(
    store: Backend,
    *,
    kinds: Collection[str] = (),
    keep: Iterable[Mapping[str, Any]] | None = None,
    older_than_days: float | None = None,
    dry_run: bool = False,
) -> int:
    """Delete entries and return their number. With `dry_run`, only count them.

    Deleted are the responses of all workers whose identity is not in `keep`, and all entries that are older than
    `older_than_days`. A criterion that is None does not apply. `kinds` restricts both to these kinds. Other running
    processes may keep deleted responses in memory until they end.
    """
    kept_workers = None if keep is None else set(map(canonical_json, keep))
    before = None if older_than_days is None else time.time() - 86_400 * older_than_days
    to_delete = (
        (entry.kind, entry.key)
        for entry in store.iterate_entries()
        if (not kinds or entry.kind in kinds)
        and (
            (kept_workers is not None and entry.kind == Kind.RESPONSE and entry.worker not in kept_workers)
            or (before is not None and entry.created < before)
        )
    )
    return _delete_entries(store, to_delete, dry_run=dry_run)


def verify_entries(store: Backend, *, repair: bool = False) -> VerificationResult:
    """Read every entry and compare its checksum. With `repair`, damaged entries are deleted, so that they are computed
    again.

    If the SQLite file itself is damaged, raises `DamagedDatabaseError`; with `repair`, every readable entry is copied
    into a new file instead.
    """
    if isinstance(store, SqliteBackend):
        try:
            store.check()
        except DamagedDatabaseError as error:
            if not repair:
                raise
            store.repair(error)
    entries, damaged = 0, []
    for entry in store.iterate_entries():
        entries += 1
        if not entry.is_sound:
            damaged.append((entry.kind, entry.key))
    if repair:
        _delete_entries(store, iter(damaged))
    return VerificationResult(entries, tuple(damaged))


def export_responses(store: Backend, file: Path, *, texts: bool = True) -> int:
    """Write the undamaged responses to a Parquet file and return their number. Without `texts`, prompts and answers are
    left out.

    Prompts contain the questions, so a file with texts of a confidential benchmark must not be published.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _response_schema(texts)
    written = 0
    responses = (entry for entry in store.iterate_entries() if entry.kind == Kind.RESPONSE)
    with replace_atomically(file) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for page in _split_into_pages(responses, _PAGE):
            rows = [values for entry in page if (values := _response_columns(entry)) is not None]
            exported_rows = [{name: values[name] for name in schema.names} for values in rows]
            writer.write_table(pa.Table.from_pylist(exported_rows, schema=schema))
            written += len(rows)
    return written


def find_entry(store: Backend, prefix: str) -> dict[str, Any] | None:
    """Return the entry whose key begins with `prefix`; None if there is none or it is damaged.

    A response has the columns of `export_responses`. An entry of another kind has its kind, key, value and time.
    """
    entry = store.find(prefix)
    if entry is None or entry.kind == Kind.RESPONSE:
        return None if entry is None else _response_columns(entry)
    if not entry.is_sound:
        return None
    return {"kind": entry.kind, "key": entry.key, "value": json.loads(entry.body), "created": entry.created}


def _response_columns(entry: Entry) -> dict[str, Any] | None:
    response = decode_response(entry.key, StoredValue(entry.body, entry.checksum))
    if response is None:
        return None
    try:
        call = json.loads(entry.material)
    except json.JSONDecodeError:
        call = {}
    worker, sample = call.get("worker", {}), Sample.from_json(call.get("sample", 0))
    return {
        "key": entry.key,
        "model": worker.get("model", UNKNOWN_MODEL),
        "worker": canonical_json(worker),
        "sample": sample.index,
        "repetition": sample.repetition,
        "namespace": sample.namespace.value,
        "messages": canonical_json(call.get("messages", [])),
        # A former lone surrogate in the answer is not a character that a table can hold.
        "text": response.text.encode(errors="replace").decode(),
        "prompt_tokens": response.prompt_tokens,
        "completion_tokens": response.completion_tokens,
        "cost_usd": response.cost_usd,
        "latency_s": response.latency_s,
        "finish_reason": response.finish_reason,
        "created": entry.created,
    }


def _response_schema(texts: bool) -> Any:
    import pyarrow as pa

    fields = {
        "key": pa.string(), "model": pa.string(), "worker": pa.string(), "sample": pa.int64(),
        "repetition": pa.int64(), "namespace": pa.string(),
        "messages": pa.string(), "text": pa.string(), "prompt_tokens": pa.int64(),
        "completion_tokens": pa.int64(), "cost_usd": pa.float64(), "latency_s": pa.float64(),
        "finish_reason": pa.string(), "created": pa.float64(),
    }  # fmt: skip
    return pa.schema([field for field in fields.items() if texts or field[0] not in ("messages", "text")])


def _delete_entries(store: Backend, to_delete: Iterator[tuple[str, str]], *, dry_run: bool = False) -> int:
    deleted = 0
    for page in _split_into_pages(to_delete, _PAGE):
        if not dry_run:
            for kind, entries in groupby(sorted(page), key=lambda entry: entry[0]):
                store.delete(kind, [key for _, key in entries])
        deleted += len(page)
    return deleted


def _split_into_pages(items: Iterator[T], size: int) -> Iterator[Sequence[T]]:
    while page := list(islice(items, size)):
        yield page
