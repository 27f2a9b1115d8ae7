"""Store the traces of a server in batches, in a separate process.

The server uses `TraceWriter`. The other process is `python -m ops.release.trace_writer`. It reads batches from standard
input and answers each with the number of traces that it stored.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ops.release.tracing import TaggedTrace, build_request_trace, store_traces

if TYPE_CHECKING:
    from ops.serving.http.routes import RequestRecord

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 64 * 2**20
"""How many bytes of traces may wait to be stored. Further traces are dropped and counted."""
BATCH_SIZE, BATCH_WAIT_S = 64, 0.5
"""The maximum number of traces in a batch, and the seconds that the first one waits for others."""
RESTART_DELAY_S = 5.0
"""The seconds after which a writing process that ended is started again."""
CLOSE_TIMEOUT_S = 20.0


class TraceWriter:
    """A queue of traces that a separate process stores, so that the server need not wait for the store.

    The callbacks `on_stored` and `on_dropped` receive numbers of traces. Every record that `enqueue` accepts is
    reported as stored or dropped before `close` returns.
    """

    def __init__(self, root: Path, experiment_id: str) -> None:
        self._command = (sys.executable, "-m", "ops.release.trace_writer", str(root), experiment_id)
        self.on_stored: Callable[[int], None] = lambda count: None
        self.on_dropped: Callable[[int], None] = lambda count: None
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing, self._abandoned = threading.Event(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def enqueue(self, record: RequestRecord) -> None:
        """Put a trace into the queue. It is dropped if too many are waiting."""
        packed = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
        with self._changed:
            if self._closing.is_set() or self._bytes + len(packed) > MAX_QUEUED_BYTES:
                self.on_dropped(1)
                return
            self._waiting.append(packed)
            self._bytes += len(packed)
            if self._thread is None:
                self._thread = threading.Thread(target=self._store_batches, name="traces", daemon=True)
                self._thread.start()
            self._changed.notify()

    def count_waiting(self) -> int:
        """Return the number of traces that are not stored yet."""
        return len(self._waiting)

    def close(self, seconds: float = CLOSE_TIMEOUT_S) -> None:
        """Store the waiting traces for about that many seconds, and drop those that remain."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():  # in the middle of a batch
                self._abandoned.set()
            self._stop(kill=self._abandoned.is_set())
            self._thread.join(seconds)
        with self._changed:
            left = len(self._waiting)
            self._waiting.clear()
        if left:
            self._drop(left, "the server has ended")

    # ── the thread ───────────────────────────────────────────────────────────

    def _store_batches(self) -> None:
        while not self._abandoned.is_set() and (batch := self._take_batch()):
            try:
                stored = self._send_batch(batch)
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                self._stop(kill=True)
                self._drop(len(batch), f"the process that stores them ended ({type(error).__name__})")
                self._closing.wait(RESTART_DELAY_S)
                continue
            if stored:
                self.on_stored(stored)
            if stored < len(batch):
                self._drop(len(batch) - stored, "MLflow's store did not take them")

    def _take_batch(self) -> list[bytes]:
        """Return the next batch; empty when all is stored and the writer closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
        if len(self._waiting) < BATCH_SIZE:
            self._closing.wait(BATCH_WAIT_S)
        with self._changed:
            batch = [self._waiting.popleft() for _ in range(min(BATCH_SIZE, len(self._waiting)))]
            self._bytes -= sum(map(len, batch))
            return batch

    def _send_batch(self, batch: list[bytes]) -> int:
        if self._process is None:
            # A separate session: Ctrl-C ends the server, and this process first stores the waiting traces.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        pickle.dump(batch, self._process.stdin, pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()
        return int(pickle.load(self._process.stdout))

    def _stop(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        try:
            process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _drop(self, count: int, why: str) -> None:
        self.on_dropped(count)
        log.warning("%d traces were dropped: %s", count, why)


# ── the other process ────────────────────────────────────────────────────────


def store_batches(root: Path, experiment_id: str, requests: BinaryIO, replies: BinaryIO) -> None:
    """Store batches of traces until the server closes the pipe or ends."""
    from ops.core.workspace import Workspace
    from ops.release.mlflow_store import connect

    workspace = Workspace(root)
    with connect(workspace):
        while True:
            try:
                batch: list[bytes] = pickle.load(requests)
            except EOFError:
                return
            stored = _store_batch(workspace.mlflow_uri, experiment_id, batch)
            pickle.dump(stored, replies)
            replies.flush()


def _store_batch(uri: str, experiment_id: str, batch: list[bytes]) -> int:
    traces: list[TaggedTrace] = []
    for packed in batch:
        try:
            traces.append(build_request_trace(pickle.loads(packed)))
        except Exception:  # one record that cannot be converted does not affect the others
            log.exception("a request has no trace")
    try:
        return len(store_traces(uri, experiment_id, traces)) if traces else 0
    except Exception as error:  # noqa: BLE001  (whatever a store raises, the next batch may be taken)
        log.warning("MLflow does not take traces (%s: %s)", type(error).__name__, error)
        return 0


if __name__ == "__main__":
    # The server's end of the pipe ends this process: not SIGTERM, which a supervisor sends to both at once.
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(format="%(levelname)s %(message)s")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not mix with the replies
    store_batches(Path(sys.argv[1]), sys.argv[2], sys.stdin.buffer, replies)
