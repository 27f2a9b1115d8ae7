from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.team.servers import S3, Mlflow, Postgres, Redis


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install -e '.[team]')")
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    server = Redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    server = S3(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, store: S3) -> Iterator[Mlflow]:
    database = postgres.database().replace("://", "+psycopg2://")
    server = Mlflow(tmp_path_factory.mktemp("mlflow"), database, store.artifacts, **store.environment)
    yield server
    server.stop()
