"""A precache run to be killed: `python precache_run.py URL FOLDER` prints its rows' number and their states."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ops.cache import ResponseCache
from ops.config import Worker
from ops.core.problem import Problem
from ops.precaching.precache import precache
from ops.spending.ledger import Ledger
from ops.workers.call import Account
from ops.workers.client import WorkerClient

PROBLEMS, CONCURRENCY = 120, 8


def main(url: str, folder: Path) -> None:
    """Precache sums in short text."""
    problems = [
        Problem(
            id=f"rlpr-{number:03}", benchmark="rlpr", domain="rlpr", split="train", grader="text",
            question=f"Number {number}: what is 2+2?", answer="4",
        )
        for number in range(PROBLEMS)
    ]  # fmt: skip
    worker = Worker.model_validate(
        {
            "name": "remote", "model": "openai/some-model", "api_base": f"{url}/v1", "max_tokens": 64,
            "price": {"input": 1.0, "output": 2.0}, "timeout_s": 5, "concurrency": CONCURRENCY,
        }
    )  # fmt: skip
    cache, ledger = ResponseCache(folder / "cache"), Ledger(folder / "ledger.sqlite")
    client = WorkerClient(cache, ledger, Account("run", "precache", 10.0))
    rows = asyncio.run(precache(problems, worker, client))
    print(len(rows), {row.status for row in rows}, client.counts)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
