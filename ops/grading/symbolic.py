"""Decide whether two expressions are equal with math-verify, from any thread and within a bounded time.

SymPy has no time limits, and those of math-verify use signals, which only a main thread receives. SymPy therefore runs
in a separate process, which is started when first needed and ended when it exceeds its time.
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

from ops.grading import symbolic_worker
from ops.grading.domains import VariableDomains

MAX_CHARACTERS = 400
COMPARISON_TIMEOUT_S = 120.0
"""The seconds by the clock for one comparison, including the import of SymPy; the CPU limit is far lower."""

_COSTLY = re.compile(
    r"\^\{?-?\(?\d{10,}|\d{60,}|\^\{[^{}]*\^|\d{4,}\)?!|\^\{?\(?\d+\}?\^|!!|(?:\^\{?\w\}?){3}"
    r"|\\(?:Gamma|binom)[({]+\d{5,}"
)
_MISREAD = re.compile(r"\\ldots|\d_|\d'|(?<![_^\d.])\d[\d.]*\s+\d|\\(?:gcd|lcm)\s*\([^)]*[A-Za-z]")
"""Forms that math-verify misreads: it drops dots and bases, reads `2 3` as a sum, and reads gcd(a,b) as 1."""
_LETTER = re.compile(r"\\text\{[^{}]*\}|\\[A-Za-z]+|([A-Za-z])('*)(?!_)")
_DIFFERENTIAL = re.compile(r"\\int(?![a-z])|\\frac\{d\w?\}\{d")
_CAPITAL, _PRIMED = 9000, 9100
_IMAGINARY = re.compile(r"(?<=\d)i(?![A-Za-z])")


class SymbolicWorker:
    """A process that makes one comparison at a time; thread-safe. `close()` ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def is_equal(self, gold: str, answer: str, domain: VariableDomains = ()) -> bool | None:
        """Return whether the two are equal; None if either cannot be read or the comparison took too long."""
        line = json.dumps([gold, answer, domain]).encode() + b"\n"
        with self._lock:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                ready, _, _ = select.select([process.stdout], [], [], COMPARISON_TIMEOUT_S)
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
        # A fork would share the pipe, so each process has its own worker.
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            # -P: the script's folder holds a math.py, which must not shadow Python's.
            self._process = subprocess.Popen(
                [sys.executable, "-P", symbolic_worker.__file__],
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
                with contextlib.suppress(BrokenPipeError):  # unsent bytes for a worker that has ended
                    pipe.close()


@lru_cache(maxsize=1)
def _worker() -> SymbolicWorker:
    return SymbolicWorker()


def is_equal(gold: str, answer: str, domain: VariableDomains = ()) -> bool | None:
    """Return whether two LaTeX expressions are equal for every value of their unknowns in `domain`.

    Returns None if this cannot be decided, because an expression is unreadable or too costly.
    """
    letters = {match.group().rstrip("'") for text in (gold, answer) for match in _LETTER.finditer(text)}
    return _is_equal(gold, answer, tuple(bounds for bounds in domain if bounds[0] in letters))


@lru_cache(maxsize=16_384)
def _is_equal(gold: str, answer: str, domain: VariableDomains) -> bool | None:
    for text in (gold, answer):
        if not text or len(text) > MAX_CHARACTERS or _COSTLY.search(text) or _MISREAD.search(text):
            return None
    return _worker().is_equal(*_rename_confusable_letters(gold, answer, domain))


def _rename_confusable_letters(
    gold: str, answer: str, domain: VariableDomains = ()
) -> tuple[str, str, VariableDomains]:
    """Return all three with new names for letters that math-verify confuses with each other or misreads.

    math-verify converts capitals to lower case (prevented here if an expression has both cases of one letter), drops
    primes, reads a `d` as a differential, and reads `i` as the imaginary unit only if it stands alone.
    """
    used = [{match[1] for match in _LETTER.finditer(text)} for text in (gold, answer)]
    differential = _DIFFERENTIAL.search(gold + " " + answer) is not None

    def renamed(match: re.Match[str]) -> str:
        letter, primes = match[1], match[2]
        if not letter:
            return match[0]
        mark = _PRIMED + len(primes) if primes else 0
        if letter.isupper() and any({letter, letter.lower()} <= letters for letters in used):
            mark += _CAPITAL
        if mark:
            return f"{letter}_{{{mark}}}"
        return "{d}" if letter == "d" and not differential else letter

    left, right = (_IMAGINARY.sub(" i", _LETTER.sub(renamed, text)) for text in (gold, answer))
    return left, right, tuple((_LETTER.sub(renamed, name), low, high) for name, low, high in domain)
