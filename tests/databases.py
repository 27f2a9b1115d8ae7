"""Databases of Dagster and MLflow in tests: each is made in less time and does not wait for the disk."""

from __future__ import annotations

import sqlite3
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event, inspect


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


def migrate_once() -> None:
    """A new SQLite file of MLflow goes through fifty migrations; the next one in this process is a copy of it."""
    upgrade, made = command.upgrade, dict[str | None, sqlite3.Connection]()

    def upgrade_or_copy(config: Config, revision: str, **options: Any) -> None:
        connection, place = config.attributes.get("connection"), config.get_main_option("script_location")
        sqlite = connection is not None and connection.dialect.name == "sqlite"
        if not sqlite or inspect(connection).has_table("alembic_version"):
            upgrade(config, revision, **options)
            return
        file = connection.connection.driver_connection
        if place in made:
            made[place].backup(file)
        else:
            upgrade(config, revision, **options)
            made[place] = sqlite3.connect(":memory:", check_same_thread=False)
            file.backup(made[place])

    command.upgrade = upgrade_or_copy
