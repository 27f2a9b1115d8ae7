"""A lock that lets only one process at a time change the champion.

MLflow sets an alias without comparing it with its previous value. Reading the alias, deciding and setting it therefore
need a lock.

* A local store (SQLite in this checkout) is used by one machine. Its lock is a file lock, which ends with its process.

* A server, or another database, may be the only thing that several machines share. Every store of MLflow creates a
  registered model of a given name only once, because its database has a unique key. Creating the model `LOCK` takes the
  lock, and deleting it releases the lock.

This exclusion needs neither a clock nor a lease. If a process is killed during the second or two in which it holds the
lock of a server, the lock remains, and a person must delete it. A slow process never loses the lock.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ops.core.errors import PodiumError
from ops.core.workspace import Workspace
from ops.release.mlflow_store import MODEL, connected

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOCK = f"{MODEL}.moving"
"""The name of the registered model that exists while a process changes the champion of a shared store."""
PATIENCE_S = 60.0
"""How many seconds to wait for another process. It holds the lock for a second or two, and longer if it hashes a large
policy."""
_PAUSE_S = 0.2


class Locked(PodiumError):
    """Another process has held the lock of the champion for too long."""


@contextmanager
def alone(workspace: Workspace, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Keep other processes that use the same store from changing the champion inside the block. Raises `Locked` after
    `patience_s` seconds."""
    uri = workspace.mlflow_uri
    if uri.startswith("sqlite:///"):
        file = Path(uri.removeprefix("sqlite:///")).with_name("moving.lock")  # one for all checkouts on this store
        with _of_file(file, patience_s):
            yield
    else:
        with _of_name(workspace, patience_s):
            yield


@contextmanager
def _of_file(file: Path, patience_s: float) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(file).acquire(timeout=patience_s)
    except Timeout:
        remedy = "Wait for its end, or stop it"
        raise Locked(f"{file}: another process is changing the champion. {remedy}") from None
    with held:
        yield


@contextmanager
def _of_name(workspace: Workspace, patience_s: float) -> Iterator[None]:
    token = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
    with connected(workspace) as client:
        _take(client, token, time.monotonic() + patience_s)
    try:
        yield
    finally:
        with connected(workspace) as client:
            client.delete_registered_model(LOCK)


def _take(client: MlflowClient, token: str, until: float) -> None:
    while not _made(client, token):
        if time.monotonic() > until:
            holder = (_holder(client) or "no process any more:").rpartition(":")[0]
            raise Locked(
                f"{LOCK}: {holder} (host:pid) holds the promotion lock. If that process is gone, delete the registered "
                f"model {LOCK} in the MLflow UI; the champion is intact in both cases"
            )
        time.sleep(_PAUSE_S)


def _made(client: MlflowClient, token: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(LOCK, tags={"holder": token}, description="A promotion or rollback goes on.")
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"):
            raise
        # This process's own lock, if the reply to the first attempt was lost and mlflow's client repeated it.
        return _holder(client) == token
    return True


def _holder(client: MlflowClient) -> str | None:
    from mlflow.exceptions import MlflowException

    try:
        tags: dict[str, str] = client.get_registered_model(LOCK).tags
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return tags.get("holder")
