"""Databases of Dagster and MLflow in tests: each is made in less time and does not wait for the disk."""

from __future__ import annotations

import sqlite3

from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event


@event.listens_for(Engine, "connect")
def do_not_wait_for_the_disk(connection: object, _: object) -> None:
    """These databases need not survive a power failure in a test."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


def read_migrations_once() -> None:
    """Alembic would import the forty migrations of Dagster again for each database, which a run has one of."""
    read, known = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def from_config(config: Config) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = read(config)
        return known[place]

    ScriptDirectory.from_config = staticmethod(from_config)
