"""A lock that lets only one process at a time change the champion.

MLflow sets an alias without comparing it with its previous value. Reading the alias, deciding and setting it therefore
need a lock.

* A local store (SQLite in this checkout) is used by one machine. Its lock is a file lock, which ends with its process.

* A server, or another database, may be the only thing that several machines share. Every store of MLflow creates a
  registered model of a given name only once, because its database has a unique key. Creating the model `LOCK_MODEL`
  takes the lock, and deleting it releases the lock.

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
from ops.release.mlflow_store import MODEL_NAME, connect

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOCK_MODEL = f"{MODEL_NAME}.moving"
"""The name of the registered model that exists while a process changes the champion of a shared store."""
LOCK_TIMEOUT_S = 60.0
"""How many seconds to wait for another process. It holds the lock for a second or two, and longer if it hashes a large
policy."""
_RETRY_PAUSE_S = 0.2


class ChampionLockedError(PodiumError):
    """Another process has held the lock of the champion for too long."""


@contextmanager
def lock_champion(workspace: Workspace, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Keep other processes that use the same store from changing the champion inside the block. Raises
    `ChampionLockedError` after `timeout_s` seconds."""
    uri = workspace.mlflow_uri
    if uri.startswith("sqlite:///"):
        file = Path(uri.removeprefix("sqlite:///")).with_name("moving.lock")  # one for all checkouts on this store
        with _lock_file(file, timeout_s):
            yield
    else:
        with _lock_registry(workspace, timeout_s):
            yield


@contextmanager
def _lock_file(file: Path, timeout_s: float) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(file).acquire(timeout=timeout_s)
    except Timeout:
        remedy = "Wait for its end, or stop it"
        raise ChampionLockedError(f"{file}: another process is changing the champion. {remedy}") from None
    with held:
        yield


@contextmanager
def _lock_registry(workspace: Workspace, timeout_s: float) -> Iterator[None]:
    token = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
    with connect(workspace) as client:
        _acquire(client, token, time.monotonic() + timeout_s)
    try:
        yield
    finally:
        with connect(workspace) as client:
            client.delete_registered_model(LOCK_MODEL)


def _acquire(client: MlflowClient, token: str, deadline: float) -> None:
    while not _try_acquire(client, token):
        if time.monotonic() > deadline:
            holder = (_find_holder(client) or "no process any more:").rpartition(":")[0]
            raise ChampionLockedError(
                f"{LOCK_MODEL}: {holder} (host:pid) holds the promotion lock. If that process is gone, delete the "
                f"registered model {LOCK_MODEL} in the MLflow UI; the champion is intact in both cases"
            )
        time.sleep(_RETRY_PAUSE_S)


def _try_acquire(client: MlflowClient, token: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(
            LOCK_MODEL, tags={"holder": token}, description="A promotion or rollback goes on."
        )
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST"):
            raise
        # This process's own lock, if the reply to the first attempt was lost and mlflow's client repeated it.
        return _find_holder(client) == token
    return True


def _find_holder(client: MlflowClient) -> str | None:
    from mlflow.exceptions import MlflowException

    try:
        tags: dict[str, str] = client.get_registered_model(LOCK_MODEL).tags
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return tags.get("holder")
