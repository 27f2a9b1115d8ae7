"""Real servers for one test, on free ports of loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.needs import postgres_programs

PATIENCE_S = 120.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def until(is_so: Callable[[], bool], what: str, patience_s: float = PATIENCE_S, every_s: float = 0.1) -> None:
    """Wait until the condition holds, which is checked every `every_s`. The time-out is only a safeguard."""
    deadline = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {patience_s:.0f} s: {what}")
        time.sleep(every_s)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except HTTPError:
        return True
    except OSError:
        return False


class Process:
    """One server in a separate process group, with its log in a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                list(command), stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **(environment or {})}, cwd=log.parent,
            )  # fmt: skip

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, how)
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait(240)


class Postgres:
    """A Postgres server; databases are made with `database`."""

    def __init__(self) -> None:
        programs = postgres_programs()
        if programs is None:
            raise RuntimeError("Postgres is not installed")
        self._programs, self.port = programs, free_port()
        # Not in pytest's folder, which no other user can enter.
        self.folder = Path(tempfile.mkdtemp(prefix="podium-postgres-"))
        self._as: list[str] = []
        if os.getuid() == 0:  # Postgres refuses to run as root
            user = next((name for name in ("postgres", "nobody") if _is_user(name)), None)
            if user is None or shutil.which("setpriv") is None:
                pytest.skip("Postgres does not run as root, and there is no other user to run it as")
            entry = pwd.getpwnam(user)
            self._as = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
            shutil.chown(self.folder, user)
        options = ("-U", "podium", "-A", "trust", "--no-sync", "--encoding", "UTF8")
        command = [str(self._programs / "initdb"), "-D", str(self.folder), *options]
        subprocess.run([*self._as, *command], check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=PATIENCE_S)
        self._number = 0
        self._control("start", "-l", str(self.folder / "log"))

    def database(self, encoding: str = "UTF8") -> str:
        """Make a new, empty database and return its address."""
        import psycopg

        self._number += 1
        name = f"test_{self._number}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())
        return self._url(name)

    def start(self) -> None:
        self._control("start", "-l", str(self.folder / "log"))

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` ends sessions, `immediate` is a crash."""
        self._control("stop", "-m", mode)

    def remove(self) -> None:
        """Crash the server and remove its files."""
        self.stop("immediate")
        shutil.rmtree(self.folder)

    def _url(self, name: str) -> str:
        return f"postgresql://podium@127.0.0.1:{self.port}/{name}"

    def _control(self, *what: str) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        command = [str(self._programs / "pg_ctl"), "-D", str(self.folder), "-w", "-o", options, *what]
        subprocess.run([*self._as, *command], check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=PATIENCE_S)


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


class Redis:
    """A Redis server that stores its data in an append-only file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder / "redis", free_port()
        self.folder.mkdir()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        options = ("--bind", "127.0.0.1", "--appendonly", "yes", "--save", "", "--dir", str(self.folder))
        self._process = Process(["redis-server", "--port", str(self.port), *options], self.folder / "log")
        import redis

        def is_up() -> bool:
            try:
                return bool(redis.Redis.from_url(self.url).ping())
            except (redis.ConnectionError, redis.BusyLoadingError):
                return False

        until(is_up, "redis-server answers")

    def empty(self) -> None:
        import redis

        redis.Redis.from_url(self.url).flushall()

    def stop(self) -> None:
        self._process.stop()


class S3:
    """moto's server: S3's protocol over HTTP, with objects in memory. A paused server imitates an outage.

    `environment` has the variables that its clients need: MLflow's server and DVC.
    """

    def __init__(self, folder: Path, bucket: str = "podium", port: int | None = None) -> None:
        self.bucket, self.artifacts = bucket, f"s3://{bucket}/mlflow"
        pytest.importorskip("moto", reason="moto[server] is not installed (pip install -e '.[dev]')")
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            "MLFLOW_S3_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = Process(command, folder / "s3.log")
        until(lambda: answers(self.url), "the S3 store answers")
        request = urllib.request.Request(f"{self.url}/{bucket}", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass

    def objects(self, prefix: str) -> dict[str, int]:
        """Return the objects below `prefix`: keys, and bytes."""
        import boto3

        client = boto3.client(
            "s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", ())}

    def pause(self) -> None:
        os.killpg(self.process.popen.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.killpg(self.process.popen.pid, signal.SIGCONT)

    def stop(self) -> None:
        self.go_on()
        self.process.stop()


class Mlflow:
    """MLflow's server on a database and a place for artifacts; its clients need the credentials of neither."""

    def __init__(self, folder: Path, database: str, artifacts: str, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "mlflow.log"
        self._command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
            "--backend-store-uri", database, "--artifacts-destination", artifacts, "--serve-artifacts",
        ]  # fmt: skip
        self._environment = environment | {
            "MLFLOW_TRACKING_URI": "", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # else seven more processes
        }  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start, and return when it answers."""
        self._process = Process(self._command, self._log, self._environment)
        until(lambda: answers(f"{self.url}/health"), "MLflow answers", 1.5 * PATIENCE_S)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._process.stop(how)


def engines(postgres: Postgres, redis: Redis, store: S3) -> dict[str, str]:
    """Give addresses of empty services, and the keys of the S3 store."""
    redis.empty()
    return store.environment | {
        "PODIUM_DAGSTER_URL": postgres.database().replace("://", "+psycopg2://"),
        "PODIUM_LEDGER_URL": postgres.database(),
        "PODIUM_CACHE_URL": redis.url, "PODIUM_LIMITS_URL": redis.url,
    }  # fmt: skip
