"""Values that are computed: a policy's completions and the verdicts on programs."""

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
    """A value that was computed, and what is stored of it as JSON; None: nothing is."""

    value: T
    json_value: Any


class ValueStore(Generic[T]):
    """The values of one kind in a store, for any number of processes and threads.

    `read` makes a value from its JSON, or returns None for JSON that is no such value. An entry that is damaged or no
    such value counts as missing: it is computed again. Any method may raise the exceptions of `ResponseCache`.
    """

    def __init__(self, backend: Backend, kind: Kind, read: Callable[[Any], T | None]) -> None:
        self.backend, self._kind, self._read = backend, kind, read

    def get(self, keys: Sequence[str]) -> dict[str, T]:
        """Return the stored value of each key that has a sound entry."""
        found, damaged = dict[str, T](), 0
        for key, entry in self.backend.select(self._kind, keys).items():
            value = self._read_value(key, *entry)
            if value is None:
                damaged += 1
            else:
                found[key] = value
        if damaged:
            said = format_count(damaged, f"stored {self._kind} is", f"stored {self._kind}s are")
            log.warning("%s: %s damaged, and made again", self.backend.name, said)
        return found

    def put(self, values: Mapping[str, Any]) -> None:
        """Store the JSON of these values in one transaction, in place of earlier ones."""
        now = time.time()
        if values:
            self.backend.insert([Entry.from_value(self._kind, key, value, now) for key, value in values.items()])

    def get_or_compute(
        self, keys: Iterable[str], compute: Callable[[list[str]], Mapping[str, ComputedValue[T]]]
    ) -> dict[str, T]:
        """Return the value of each key, after `compute` was called with the keys that have none.

        A key that another thread or process computes at this moment is waited for, and computed here if that one fails.
        What is computed here is stored and no longer claimed before anything is waited for, so that two callers that
        need each other's keys do not wait for ever.
        """
        wanted = list(dict.fromkeys(keys))
        values, pause = self.get(wanted), _FIRST_POLL_S
        while missing := [key for key in wanted if key not in values]:
            claims = dict(zip(missing, self.backend.claim(self._kind, missing), strict=True))
            try:
                values |= self.get(missing)  # after the claims, so that what was stored since the look-up is found
                own = [key for key in missing if claims[key] is not None and key not in values]
                made = compute(own) if own else {}
                self.put({key: each.json_value for key, each in made.items() if each.json_value is not None})
            finally:
                for claim in claims.values():
                    if claim is not None:
                        claim.release()
            values |= {key: each.value for key, each in made.items()}
            if not own:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_POLL_S)
        return {key: values[key] for key in wanted}

    def close(self) -> None:
        """Close the file or the connections; the next use opens them again."""
        self.backend.close()

    def _read_value(self, key: str, body: bytes, own: str) -> T | None:
        if compute_checksum(self._kind, key, body) != own:
            return None
        with suppress(ValueError):  # no JSON
            return self._read(json.loads(body))
        return None
