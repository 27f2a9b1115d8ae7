"""Values in the store that are computed rather than paid for: a policy's completions and verdicts on programs."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from ops.core.errors import format_count
from ops.store.entries import Backend, Entry, Kind, compute_checksum

log = logging.getLogger(__name__)
T = TypeVar("T")

_FIRST_POLL_S, _LONGEST_POLL_S = 0.01, 0.25


class ComputedValue(NamedTuple, Generic[T]):
    """A value that was computed, and the JSON value that is stored for it; None if it is not to be stored."""

    value: T
    json_value: Any


class ValueStore(Generic[T]):
    """The values of one kind in a store, for any number of processes and threads.

    `read` converts a stored JSON value, and returns None if it is not valid. An entry that is damaged or not valid
    counts as missing and is computed again. Every method may raise the exceptions of `ResponseCache`.
    """

    def __init__(self, backend: Backend, kind: Kind, read: Callable[[Any], T | None]) -> None:
        self.backend, self._kind, self._read = backend, kind, read

    def get(self, keys: Sequence[str]) -> dict[str, T]:
        """Return the stored values of those keys that have an undamaged entry."""
        values, damaged = dict[str, T](), 0
        for key, entry in self.backend.select(self._kind, keys).items():
            value = self._read_value(key, *entry)
            if value is None:
                damaged += 1
            else:
                values[key] = value
        if damaged:
            damaged_count = format_count(damaged, f"stored {self._kind} is", f"stored {self._kind}s are")
            log.warning("%s: %s damaged, and made again", self.backend.name, damaged_count)
        return values

    def put(self, values: Mapping[str, Any]) -> None:
        """Store the JSON values of these keys in one transaction. Existing ones are replaced."""
        now = time.time()
        if values:
            self.backend.insert([Entry.from_value(self._kind, key, value, now) for key, value in values.items()])

    def get_or_compute(
        self, keys: Iterable[str], compute: Callable[[list[str]], Mapping[str, ComputedValue[T]]]
    ) -> dict[str, T]:
        """Return the values of all keys. `compute` is called with keys that have no stored value, and its results are
        stored.

        If another thread or process is computing a key at this moment, this call waits for it, and computes the key
        itself if the other one fails. Its own results are stored, and its claims released, before it waits for others,
        so that two callers that need each other's keys do not deadlock.
        """
        wanted = list(dict.fromkeys(keys))
        values, pause = self.get(wanted), _FIRST_POLL_S
        while missing := [key for key in wanted if key not in values]:
            claims = dict(zip(missing, self.backend.claim(self._kind, missing), strict=True))
            try:
                values |= self.get(missing)  # after the claims, so that what was stored since the look-up is found
                claimed = [key for key in missing if claims[key] is not None and key not in values]
                computed = compute(claimed) if claimed else {}
                self.put({key: result.json_value for key, result in computed.items() if result.json_value is not None})
            finally:
                for claim in claims.values():
                    if claim is not None:
                        claim.release()
            values |= {key: result.value for key, result in computed.items()}
            if not claimed:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_POLL_S)
        return {key: values[key] for key in wanted}

    def close(self) -> None:
        """Close the file or the connections. The next use opens them again."""
        self.backend.close()

    def _read_value(self, key: str, body: bytes, checksum: str) -> T | None:
        if compute_checksum(self._kind, key, body) != checksum:
            return None
        with suppress(ValueError):  # the body is not JSON
            return self._read(json.loads(body))
        return None
