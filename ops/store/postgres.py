"""The store in a Postgres server, so that the members of a team share values and compute each of them only once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ops.core.errors import CacheUnavailable
from ops.core.postgres import PostgresServer
from ops.store.claims import Lease, LeasedClaim, LeasedClaims
from ops.store.entries import (
    CACHE_URL,
    Entry,
    Kind,
    StoredValue,
    claim_name,
)

_VERSION = 2
_LOCK = 5_121_204_389
"""The number of the advisory lock under which the tables are created. It is arbitrary but must not change."""
_TABLES = (
    # In "C" collation, keys sort by their characters, as in the other databases.
    """CREATE TABLE entries (
        kind TEXT NOT NULL, key TEXT COLLATE "C" NOT NULL, body BYTEA NOT NULL, checksum TEXT NOT NULL,
        material TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (kind, key))""",
    "CREATE TABLE claims (name TEXT PRIMARY KEY, token TEXT NOT NULL, until TIMESTAMPTZ NOT NULL)",
)
_EARLIER = {
    1: (
        "ALTER TABLE entries DROP COLUMN worker, DROP COLUMN messages, DROP COLUMN opening",
        "DROP TABLE identities",
    ),
}
_COLUMNS = "kind, key, body, checksum, material, created"
_INSERT = f"""INSERT INTO entries ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body, checksum = excluded.checksum,
    material = excluded.material, created = excluded.created"""
_UNTIL = "clock_timestamp() + make_interval(secs => {})"
# Names are sorted, because two processes that lock the same rows in different orders would deadlock. A lease with the
# same token was acquired by an attempt whose confirmation was lost.
_ACQUIRE = f"""INSERT INTO claims SELECT name, %s, {_UNTIL.format("%s")} FROM unnest(%s::text[]) AS name ORDER BY name
    ON CONFLICT (name) DO UPDATE SET token = excluded.token, until = excluded.until
    WHERE claims.until < clock_timestamp() OR claims.token = excluded.token RETURNING name"""
_RENEW = f"""WITH held AS (
        SELECT claims.name, wanted.seconds FROM claims
        JOIN unnest(%s::text[], %s::text[], %s::float8[]) AS wanted (name, token, seconds)
        ON claims.name = wanted.name AND claims.token = wanted.token ORDER BY claims.name FOR UPDATE OF claims)
    UPDATE claims SET until = {_UNTIL.format("held.seconds")} FROM held WHERE claims.name = held.name
    RETURNING claims.name"""
_PAGE = 1000


class PostgresBackend:
    """A `Backend` in the Postgres database at `url` (``postgresql://USER:PASSWORD@HOST:PORT/DB``), whose interface
    documents the methods.

    `lease_s` is the duration of a claim in seconds (`LeasedClaims`), and `patience_s` the time in seconds for which a
    server that does not answer is retried. Raises `ConfigError` for an invalid URL, or if the package `psycopg` is not
    installed. Every method raises `CacheUnavailable` if the server does not answer.
    """

    def __init__(self, url: str, *, lease_s: float = 30.0, patience_s: float = 60.0) -> None:
        self._server = PostgresServer(
            url, CACHE_URL, "store",
            version=_VERSION, tables=_TABLES, earlier=_EARLIER, lock=_LOCK, unavailable=CacheUnavailable,
            patience_s=patience_s,
        )  # fmt: skip
        self.name = self._server.name
        self._claims = LeasedClaims(_PostgresLeases(self._server), lease_s)

    def select(self, kind: Kind, keys: Sequence[str]) -> dict[str, StoredValue]:
        rows = self._all("SELECT key, body, checksum FROM entries WHERE kind = %s AND key = ANY(%s)", kind, list(keys))
        return {key: StoredValue(body, checksum) for key, body, checksum in rows}

    def insert(self, entries: Sequence[Entry]) -> None:
        values = sorted(entries, key=lambda entry: entry.key)

        def write(connection: Any) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(_INSERT, values)

        self._server.run(write)

    def delete(self, kind: str, keys: Sequence[str]) -> None:
        self._all("DELETE FROM entries WHERE kind = %s AND key = ANY(%s) RETURNING key", kind, list(keys))

    def find_existing(self, kind: Kind, keys: Sequence[str]) -> set[str]:
        rows = self._all("SELECT key FROM entries WHERE kind = %s AND key = ANY(%s)", kind, list(keys))
        return {key for (key,) in rows}

    def count(self, kind: Kind) -> int:
        [(count,)] = self._all("SELECT count(*) FROM entries WHERE kind = %s", kind)
        return int(count)

    def iterate_entries(self) -> Iterator[Entry]:
        query = f"SELECT {_COLUMNS} FROM entries WHERE (kind, key) > (%s, %s) ORDER BY kind, key LIMIT {_PAGE}"
        last: tuple[str, str] = ("", "")
        while page := self._all(query, *last):
            yield from (Entry(*row) for row in page)
            last = page[-1][:2]

    def find(self, prefix: str) -> Entry | None:
        query = f"SELECT {_COLUMNS} FROM entries WHERE key >= %s AND key < %s ORDER BY key LIMIT 1"
        rows = self._all(query, prefix, prefix + "\x7f")  # keys are ASCII
        return Entry(*rows[0]) if rows else None

    def claim(self, kind: Kind, keys: Sequence[str]) -> list[LeasedClaim | None]:
        return self._claims.try_claim([claim_name(kind, key) for key in keys])

    def mark_sent(self, seconds: Mapping[str, float]) -> set[str]:
        return self._claims.mark_sent(seconds)

    def close(self) -> None:
        """Close the connection. The claims of this process remain."""
        self._server.close()

    def _all(self, query: str, *values: Any) -> list[Any]:
        rows: list[Any] = self._server.run(lambda connection: connection.execute(query, values).fetchall())
        return rows


class _PostgresLeases:
    """Leases as rows of the table `claims`. Their expiry is determined by the server's clock."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def acquire(self, names: Sequence[str], lease: Lease) -> Sequence[bool]:
        values = (lease.token, lease.seconds, list(dict.fromkeys(names)))
        rows = self._server.run(lambda connection: connection.execute(_ACQUIRE, values).fetchall())
        acquired = {name for (name,) in rows}
        first = {name: index for index, name in reversed([*enumerate(names)])}
        return [name in acquired and first[name] == index for index, name in enumerate(names)]

    def renew(self, leases: Mapping[str, Lease]) -> set[str]:
        tokens, seconds = ([lease[part] for lease in leases.values()] for part in (0, 1))
        rows = self._server.run(lambda c: c.execute(_RENEW, (list(leases), tokens, seconds)).fetchall())
        return {name for (name,) in rows}

    def release(self, name: str, token: str) -> None:
        self._server.run(lambda c: c.execute("DELETE FROM claims WHERE name = %s AND token = %s", (name, token)))
