"""Neither a key nor a prompt gets into a log, a message, a traceback or the ledger; no key into the cache.

`python -m tests.faults.test_canaries URL FOLDER` makes successful and failing calls with all loggers at the highest
level.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from ops.core.errors import PodiumError
from tests.faults.remote import FaultServer, ask, client_in, order, remote_worker
from tests.faults.server import FAULTS

KEY, KEY_VARIABLE = "canary-key-9c1f7e2ab0", "CANARY_KEY"
PROMPT = "canary-prompt-4417"
ROOT = Path(__file__).parents[2]


def main(url: str, folder: Path) -> None:
    """Make every fault, through both of LiteLLM's ways; log and print each exception with its chain."""
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    client = client_in(folder)
    for model in ("openai/some-model", "hosted_vllm/some-model"):
        worker = remote_worker(
            url, name=model.partition("/")[0], model=model, api_key_env=KEY_VARIABLE, timeout_s=1.0, retries=0,
            breaker_failures=1000,
        )  # fmt: skip
        for fault in ("ok", *FAULTS, "400", "403", "404"):
            order(url, plan=[fault])
            try:
                ask(client, worker, f"{PROMPT} {fault}")
            except PodiumError as error:
                logging.getLogger("run").exception("a call failed")
                traceback.print_exception(error)
                print(error)
    print("done")


def dump(file: Path) -> str:
    """Return the contents of a SQLite file as SQL."""
    with sqlite3.connect(file) as connection:
        return "\n".join(connection.iterdump())


@pytest.mark.long  # `make test` looks for keys in messages, the ledger and the cache (test_provider_errors.py)
@pytest.mark.timeout(300)
def test_with_every_logger_at_its_loudest(server: FaultServer, tmp_path: Path) -> None:
    loud = {"LITELLM_LOG": "DEBUG", "OPENAI_LOG": "debug", "HTTPX_LOG_LEVEL": "debug", KEY_VARIABLE: KEY}
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.test_canaries", server.url, str(tmp_path)],
        cwd=ROOT, env=os.environ | loud, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    written = done.stdout + done.stderr
    assert done.returncode == 0 and "done" in done.stdout, written[-2000:]
    assert "a call failed" in done.stderr and "no response after" in done.stdout  # the canaries were present
    assert KEY not in written
    assert PROMPT not in written
    ledger, cache = dump(tmp_path / "ledger.sqlite"), dump(tmp_path / "cache" / "responses.sqlite")
    assert "openai" in ledger and KEY not in ledger and PROMPT not in ledger
    assert PROMPT in cache and KEY not in cache  # prompts belong in the cache


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
