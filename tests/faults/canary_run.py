"""Successful and failing calls with all loggers at the highest level: `python canary_run.py URL FOLDER`."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
import urllib.request
from pathlib import Path

from ops.cache import ResponseCache
from ops.config import Worker
from ops.core.errors import PodiumError
from ops.spending.ledger import Ledger
from ops.workers.call import Account
from ops.workers.client import WorkerClient
from tests.faults.server import FAULTS

PROMPT = "canary-prompt-4417"
KEY_VARIABLE = "CANARY_KEY"


def main(url: str, folder: Path) -> None:
    """Make every fault, through both of LiteLLM's ways; log and print each exception with its chain."""
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    cache, ledger = ResponseCache(folder / "cache"), Ledger(folder / "ledger.sqlite")
    client = WorkerClient(cache, ledger, Account("run", "precache", 10.0), backoff_s=0.01)
    for model in ("openai/some-model", "hosted_vllm/some-model"):
        worker = Worker.model_validate(
            {
                "name": model.partition("/")[0], "model": model, "api_base": f"{url}/v1", "api_key_env": KEY_VARIABLE,
                "price": {"input": 1.0, "output": 2.0}, "timeout_s": 1.0, "retries": 0, "breaker_failures": 1000,
                "max_tokens": 64,
            }
        )  # fmt: skip
        for fault in ("ok", *FAULTS, "400", "403", "404"):
            order = json.dumps({"plan": [fault]}).encode()
            urllib.request.urlopen(urllib.request.Request(f"{url}/control", data=order)).read()
            try:
                asyncio.run(client.complete(worker, [{"role": "user", "content": f"{PROMPT} {fault}"}]))
            except PodiumError as error:
                logging.getLogger("run").exception("a call failed")
                traceback.print_exception(error)
                print(error)
    print("done")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
