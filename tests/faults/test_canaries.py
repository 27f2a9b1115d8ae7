"""Neither a key nor a prompt gets into a log, a message, a traceback or the ledger; no key into the cache."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import canary_run
from tests.faults.remote import FaultServer

KEY = "canary-key-9c1f7e2ab0"
ROOT = Path(__file__).parents[2]


def dump(file: Path) -> str:
    """Return the contents of a SQLite file as SQL."""
    with sqlite3.connect(file) as connection:
        return "\n".join(connection.iterdump())


@pytest.mark.long  # `make test` looks for keys in messages, the ledger and the cache (test_provider_errors.py)
@pytest.mark.timeout(300)
def test_with_every_logger_at_its_loudest(server: FaultServer, tmp_path: Path) -> None:
    loud = {"LITELLM_LOG": "DEBUG", "OPENAI_LOG": "debug", "HTTPX_LOG_LEVEL": "debug", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, canary_run.__file__, server.url, str(tmp_path)],
        env=os.environ | loud | {canary_run.KEY_VARIABLE: KEY},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    written = done.stdout + done.stderr
    assert done.returncode == 0 and "done" in done.stdout, written[-2000:]
    assert "a call failed" in done.stderr and "no response after" in done.stdout  # the canaries were present
    assert KEY not in written
    assert canary_run.PROMPT not in written
    ledger, cache = dump(tmp_path / "ledger.sqlite"), dump(tmp_path / "cache" / "responses.sqlite")
    assert "openai" in ledger and KEY not in ledger and canary_run.PROMPT not in ledger
    assert canary_run.PROMPT in cache and KEY not in cache  # prompts belong in the cache
