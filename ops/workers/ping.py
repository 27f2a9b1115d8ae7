"""One tiny call to each worker of a pool: latency, cost, what came back, or what to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ops.config import Pool, Worker
from ops.core.async_run import run_async
from ops.core.errors import AccountError, ConfigError, PodiumError, RequestRejected, WorkerRefused, WorkerUnreachable
from ops.core.messages import Message, Namespace, Sample
from ops.spending.ledger import Ledger
from ops.store import ResponseCache
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from ops.workers.pool_checks import find_unsent_settings
from ops.workers.providers import find_price, is_remote, max_prompt_tokens, request_settings
from ops.workers.replies import explain_missing_text

QUESTION: list[Message] = [{"role": "user", "content": "Reply with the word OK."}]
SHOWN_CHARS = 60
"""Characters of a response that are shown."""


class PingResult(NamedTuple):
    """The result of one worker's call."""

    worker: str
    model: str
    ok: bool
    latency_s: float
    cost_usd: float
    said: str
    """The beginning of the response; where there is none, what went wrong."""
    remedy: str = ""


def max_ping_usd(pool: Pool, file: Path | str) -> float:
    """What pinging the pool costs at most (USD). Workers with a wrong setting are not called, and embedded ones cost
    nothing."""
    called = (worker for worker in pool.workers if is_remote(worker) and _find_wrong_setting(worker, file) is None)
    return sum(_worst_usd(worker, file) for worker in called)


def ping_pool(pool: Pool, file: Path | str, cache: ResponseCache, ledger: Ledger) -> list[PingResult]:
    """Call every worker once, without another attempt, all at the same time; nothing comes from the cache.

    The calls are booked in the ledger as the run `ping-POOL`. No failure of a worker is raised.
    """
    run, called = f"ping-{pool.name}", [worker for worker in pool.workers if _find_wrong_setting(worker, file) is None]
    account = Account(run, "ping", ledger.total_usd(run) + sum(_worst_usd(worker, file) for worker in called))
    client, sample = WorkerClient(cache, ledger, account, pool_file=file), Sample(time.time_ns(), 0, Namespace.REPEATED)

    async def every() -> list[PingResult]:
        return list(await asyncio.gather(*(_ping_worker(worker, file, client, sample) for worker in pool.workers)))

    return run_async(every())


async def _ping_worker(worker: Worker, file: Path | str, client: WorkerClient, sample: Sample) -> PingResult:
    error: PodiumError | None = _find_wrong_setting(worker, file)
    if error is None:
        try:
            once = worker.model_copy(update={"retries": 0})
            response = await client.complete(once, QUESTION, sample=sample)
        except PodiumError as failure:
            error = failure
        else:
            said = " ".join(response.text.split())
            remedy = ""
            if response.is_blank:
                said, remedy = explain_missing_text(worker, response)
            return PingResult(
                worker.name, worker.model, not response.is_blank, response.latency_s, response.cost_usd,
                said[:SHOWN_CHARS] if not response.is_blank else said, remedy,
            )  # fmt: skip
    problem, remedy = _describe_failure(error, worker)
    return PingResult(worker.name, worker.model, False, 0.0, 0.0, problem, remedy)


def _find_wrong_setting(worker: Worker, file: Path | str) -> ConfigError | None:
    """The first setting that cannot be used, found without a call."""
    try:
        request_settings(worker, file)
        find_price(worker, file)
    except ConfigError as error:
        return error
    found: Sequence[ConfigError] = find_unsent_settings(worker, file)
    return found[0] if found else None


def _worst_usd(worker: Worker, file: Path | str) -> float:
    return find_price(worker, file).compute_max_usd(max_prompt_tokens(QUESTION), worker.max_tokens, worker.service_tier)


def _describe_failure(error: PodiumError, worker: Worker) -> tuple[str, str]:
    """What went wrong and what to do, each in a sentence."""
    if isinstance(error, AccountError):
        return error.problem, error.remedy
    if isinstance(error, ConfigError):
        return f"{error.field}: {error.problem}", error.remedy
    if isinstance(error, RequestRejected):
        return str(error), "Correct or remove the setting that the provider names"
    if isinstance(error, WorkerRefused):
        return str(error), "Ask the provider what this account may ask"
    if isinstance(error, WorkerUnreachable) and error.remedy:
        return error.problem, error.remedy
    return str(error), "Wait and ping again"
