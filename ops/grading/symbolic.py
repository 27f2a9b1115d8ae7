"""Equality of two expressions by math-verify, from any thread and within a bounded time.

SymPy has no limits of its own and math-verify's are signals, which only a main thread receives: so it works in a
process of its own, started when first needed, ended when it overruns.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path

MAX_CHARACTERS = 400
START_S = 120.0
"""Wall-clock seconds for one comparison, the import of SymPy included; its CPU limit is far lower."""

_COSTLY = re.compile(r"\^\{?-?\(?\d{4,}|\d{60,}|\^\{[^{}]*\^|\d{4,}\)?!|\^\{?\(?\d+\)?\}?\^|!!|(?:\^\{?\w\}?){3}")
_IMAGINARY = re.compile(r"(?<=\d)i(?![A-Za-z])")


class SymbolicWorker:
    """One process, one comparison at a time; thread-safe. `close()` ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def equal(self, gold: str, answer: str) -> bool | None:
        """Whether the two are equal; None when either cannot be read or it took too long."""
        line = json.dumps([gold, answer]).encode() + b"\n"
        with self._lock:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                ready, _, _ = select.select([process.stdout], [], [], START_S)
                verdict = process.stdout.readline().strip() if ready else b""
            except BrokenPipeError:
                verdict = b""
            if not verdict:
                self._end()
        return {b"1": True, b"0": False}.get(verdict)

    def close(self) -> None:
        atexit.unregister(self.close)
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        # A fork would share the pipe: each process has a worker of its own.
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            script = Path(__file__).with_name("symbolic_worker.py")
            # -P: the script's folder holds a math.py, which must not shadow Python's.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._owner = os.getpid()
            atexit.register(self.close)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # unsent bytes of a worker that is gone
                    pipe.close()


@lru_cache(maxsize=1)
def _worker() -> SymbolicWorker:
    return SymbolicWorker()


@lru_cache(maxsize=16_384)
def equal(gold: str, answer: str) -> bool | None:
    """Whether two LaTeX expressions are equal; None when that cannot be told (unreadable, too costly)."""
    for text in (gold, answer):
        if not text or len(text) > MAX_CHARACTERS or _COSTLY.search(text):
            return None
    # math-verify takes only an `i` that stands alone for the imaginary unit.
    return _worker().equal(_IMAGINARY.sub(" i", gold), _IMAGINARY.sub(" i", answer))


def close() -> None:
    """End this process's worker, if it has one; the next comparison starts another."""
    _worker().close()
