"""Make one small call to each worker of a pool, and report its latency, its cost and its answer or error."""

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
from ops.workers.providers import find_price, is_remote, max_call_usd, request_settings
from ops.workers.replies import explain_missing_text

QUESTION: list[Message] = [{"role": "user", "content": "Reply with the word OK."}]
SHOWN_CHARS = 60
"""The number of characters of a response that are shown."""


class PingResult(NamedTuple):
    """The result of the call to one worker, with its latency in seconds and its cost in USD."""

    worker: str
    model: str
    ok: bool
    latency_s: float
    cost_usd: float
    said: str
    """The beginning of the response or, if there is none, the reason."""
    remedy: str = ""


def max_ping_usd(pool: Pool, file: Path | str) -> float:
    """Return the highest possible cost of pinging the pool, in USD.

    Workers with a wrong setting are not called, and workers of a plug-in cost nothing.
    """
    called = (worker for worker in pool.workers if is_remote(worker) and _find_wrong_setting(worker, file) is None)
    return sum(_worst_usd(worker, file) for worker in called)


def ping_pool(pool: Pool, file: Path | str, cache: ResponseCache, ledger: Ledger) -> list[PingResult]:
    """Call every worker once, all at the same time and without retries. No answer is taken from the store.

    The calls are recorded in the ledger as the run `ping-POOL`. No worker's failure is raised; it is part of the
    worker's result.
    """
    run, called = f"ping-{pool.name}", [worker for worker in pool.workers if _find_wrong_setting(worker, file) is None]
    account = Account(run, "ping", ledger.total_usd(run) + sum(_worst_usd(worker, file) for worker in called))
    client, sample = WorkerClient(cache, ledger, account, pool_file=file), Sample(time.time_ns(), 0, Namespace.REPEATED)

    async def ping_all() -> list[PingResult]:
        return list(await asyncio.gather(*(_ping_worker(worker, file, client, sample) for worker in pool.workers)))

    return run_async(ping_all())


async def _ping_worker(worker: Worker, file: Path | str, client: WorkerClient, sample: Sample) -> PingResult:
    error: PodiumError | None = _find_wrong_setting(worker, file)
    if error is None:
        try:
            worker_without_retries = worker.model_copy(update={"retries": 0})
            response = await client.complete(worker_without_retries, QUESTION, sample=sample)
        except PodiumError as failure:
            error = failure
        else:
            shown_text = " ".join(response.text.split())
            remedy = ""
            if response.is_blank:
                shown_text, remedy = explain_missing_text(worker, response)
            return PingResult(
                worker.name, worker.model, not response.is_blank, response.latency_s, response.cost_usd,
                shown_text[:SHOWN_CHARS] if not response.is_blank else shown_text, remedy,
            )  # fmt: skip
    problem, remedy = _describe_failure(error, worker)
    return PingResult(worker.name, worker.model, False, 0.0, 0.0, problem, remedy)


def _find_wrong_setting(worker: Worker, file: Path | str) -> ConfigError | None:
    """Return the error of the first setting that cannot be used, found without a call; None if there is none."""
    try:
        request_settings(worker, file)
        find_price(worker, file)
    except ConfigError as error:
        return error
    unsent: Sequence[ConfigError] = find_unsent_settings(worker, file)
    return unsent[0] if unsent else None


def _worst_usd(worker: Worker, file: Path | str) -> float:
    return max_call_usd(worker, find_price(worker, file), QUESTION)


def _describe_failure(error: PodiumError, worker: Worker) -> tuple[str, str]:
    """Return what went wrong and what to do about it, each as a sentence."""
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
