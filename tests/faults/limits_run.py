"""One process of several that ask the same worker: `python limits_run.py URL FOLDER NAME COUNT WORKER`.

WORKER is a JSON object of further settings. Prints a line when it is ready, waits for one, and prints another
when all is answered.
"""


from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from ops.cache import ResponseCache
from ops.config import Worker
from ops.spending.ledger import Ledger
from ops.workers.client import WorkerClient

WARM_UP = "LiteLLM's first call takes its time"


async def main(url: str, folder: Path, name: str, count: int, settings: str) -> None:
    worker = Worker.model_validate(
        {
            "name": "remote", "model": "openai/some-model", "api_base": f"{url}/v1", "max_tokens": 64,
            "price": {"input": 1.0, "output": 2.0}, "timeout_s": 60,
        } | json.loads(settings)
    )  # fmt: skip
    client = WorkerClient(ResponseCache(folder / name), Ledger(folder / "ledger.sqlite"), "test", "run", 10.0)
    warm = worker.model_copy(update={"name": f"warm-{name}", "requests_per_minute": None})
    await client.complete(warm, [{"role": "user", "content": WARM_UP}])
    print("ready", flush=True)
    sys.stdin.readline()
    calls = (client.complete(worker, [{"role": "user", "content": f"{name} {number}"}]) for number in range(count))
    print(len(await asyncio.gather(*calls)), "answered", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]))
