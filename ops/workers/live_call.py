"""A live call to a worker: reserve its cost, make attempts with retries, record the cost and store the response.

Calls that are sent at the same moment, and replies that arrive at the same moment, share one transaction each.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from ops.config import Worker
from ops.core.errors import ConfigError, OverBudget, PodiumError, RequestRejected, WorkerRefused, WorkerUnreachable
from ops.core.messages import NO_PARAMETERS, Message, Parameters, Sample
from ops.core.registry import find_plugin
from ops.core.request_batches import Batcher
from ops.core.response import Response
from ops.spending.ledger import Bill, Ledger, OutgoingCall, Reservation
from ops.store import ClaimLost, ResponseCache
from ops.workers.failures import TransientFailure, all_rejected_error, classify_failure, describe_error, may_be_billed
from ops.workers.litellm_private import can_take_session
from ops.workers.network import find_network_fault
from ops.workers.providers import import_litellm, max_call_usd, provider_error
from ops.workers.replies import find_reply_problem, read_reply
from ops.workers.reply_body import ReplyBody, convert_to_openai, keep_body
from ops.workers.scheduling import Turn
from ops.workers.session import run_before_sending, session_arguments
from ops.workers.usage import impossible_usage_error
from ops.workers.worker_handle import WorkerHandle


class _BookedReply(NamedTuple):
    """A paid reply that is recorded in the ledger and, if `keep` is set, stored."""

    bill: Bill
    key: str
    material: str
    response: Response
    keep: bool


class CallRecorder:
    """Records calls as sent, and records and stores their replies, in one transaction each per turn of the event loop.

    The cost of a reply is recorded before its response is stored, so that the ledger knows every stored response even
    if one of the two fails. A process that dies between the two loses a response that was paid for, as it loses calls
    in flight.
    """

    def __init__(self, cache: ResponseCache, ledger: Ledger) -> None:
        self._cache, self._ledger = cache, ledger
        self._departures = Batcher(self._mark_all_sent, undo=ledger.unmark_sent)
        self._replies = Batcher(self._book_all)

    async def mark_sent(self, departure: OutgoingCall, timeout_s: float) -> Reservation:
        """Return the reservation of a call that may be sent now, after claims and ledger have recorded it on disk.

        `timeout_s` is the time in seconds within which an answer may arrive. Raises `ClaimLost` if another process
        holds the call's claim; the call must then not be made.
        """
        return await self._departures.submit((departure, timeout_s))

    async def book(self, bill: Bill, key: str, material: str, response: Response, *, keep: bool) -> None:
        """Return when the bill and, if `keep` is set, the response are on disk. They are recorded even if the caller is
        cancelled."""
        await self._replies.submit(_BookedReply(bill, key, material, response, keep))

    def book_lost_calls(self) -> bool:
        """Record the cost of lost calls whose answers are stored. Returns whether there were any.

        This happens, for example, if the ledger could not record a bill because its disk was full or its server
        unavailable, while the response was stored (`_book_all`).
        """
        costs = {
            key: hit.cost_usd
            for key in self._ledger.lost_keys_without_cost()
            if (hit := self._cache.get(key)) is not None
        }
        self._ledger.book_lost_calls(costs)
        return bool(costs)

    def _mark_all_sent(self, departures: Sequence[tuple[OutgoingCall, float]]) -> list[Reservation | Exception]:
        still_claimed = self._cache.mark_sent({call.key: timeout_s for call, timeout_s in departures})
        marked = iter(self._ledger.mark_sent(*(call for call, _ in departures if call.key in still_claimed)))
        return [next(marked) if call.key in still_claimed else ClaimLost() for call, _ in departures]

    def _book_all(self, replies: Sequence[_BookedReply]) -> Sequence[None]:
        try:
            self._ledger.settle(*(reply.bill for reply in replies))
        except BaseException:
            # In the ledger these calls are recorded as sent. They count as lost until the cost of their responses is
            # recorded. A call that is not billed was not recorded as sent, and is made again.
            with suppress(PodiumError):
                self._store_all([reply for reply in replies if reply.bill.reservation.sent])
            raise
        self._store_all(replies)
        return [None] * len(replies)

    def _store_all(self, replies: Sequence[_BookedReply]) -> None:
        self._cache.put_many([(reply.key, reply.material, reply.response) for reply in replies if reply.keep])


MAX_CONSECUTIVE_REJECTIONS = 10
"""A worker counts as misconfigured after this number of rejected requests in a row, without a response in between. A
single rejection fails one rollout only, and rejections cost nothing."""
_BUDGET_POLL_S = 0.02
_LONGEST_BACKOFF_S = 30.0


@dataclass(frozen=True)
class Account:
    """The run that pays for calls, their purpose, and the caps on spending."""

    run: str
    purpose: str
    """The purpose in the ledger: "precache", "training", "evaluation" …"""
    cap_usd: float
    """The run's cap in USD, over all processes."""
    month_cap_usd: float | None = None
    """The cap of the calendar month in USD; None if there is none."""


class Request(NamedTuple):
    """A request to a worker: the messages, the sample index of the answer, and the request's parameters."""

    messages: Sequence[Message]
    sample: Sample
    key: str
    """The key of the response in the store."""
    material: str
    """The text whose hash is the key (`ops.store.cache_material`)."""
    parameters: Parameters = NO_PARAMETERS


@dataclass
class Caller:
    """Makes live calls for one account.

    `backoff_s` is the first pause before a retry in seconds; the pauses grow exponentially, with jitter. The callbacks
    `on_retry` and `on_paid` are called before each retry, and with the cost in USD of each paid reply.
    """

    ledger: Ledger
    recorder: CallRecorder
    account: Account
    pool_file: Path | str
    backoff_s: float
    on_retry: Callable[[], None]
    on_paid: Callable[[float], None]
    _room: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    async def call(self, handle: WorkerHandle, request: Request, turn: Turn) -> Response:
        """Make attempts until there is a response, the retries are exhausted, or the worker's circuit breaker is open.

        Raises the exceptions of `Client`, and `ClaimLost` if another process holds the claim of the key; nothing was
        sent then.
        """
        breaker, pauses, key = handle.queue.breaker, _RetryPauses(self.backoff_s, turn), request.key
        attempts = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, TransientFailure) and not breaker.is_probe(key)),
            stop=stop_after_attempt(handle.worker.retries + 1),
            wait=pauses.next_pause_s,
            before_sleep=lambda _: self.on_retry(),
            sleep=pauses.sleep,
            reraise=True,
        )
        number = 0
        try:
            async for attempt in attempts:
                number = attempt.retry_state.attempt_number
                with attempt:
                    return await self._attempt(handle, request, turn, number - 1)
        except TransientFailure as error:
            breaker.record_failure(key, str(error))
            raise _final_error(handle, number, error) from None
        finally:
            breaker.record_no_result(key)
        raise AssertionError("tenacity ends with a response or an error")

    async def _attempt(self, handle: WorkerHandle, request: Request, turn: Turn, retries: int) -> Response:
        """Make one attempt. Raises `TransientFailure` if it is worth repeating, or the errors of `call`."""
        messages, key, queue = request.messages, request.key, handle.queue
        prompt_chars = sum(len(message["content"]) for message in messages)
        queue_place, used_tokens = await queue.enter(key, prompt_chars, turn, is_retry=retries > 0), 0
        try:
            handle.raise_if_stopped()
            worst_usd = max_call_usd(handle.worker, handle.price, messages, request.parameters)
            reserved = await self._reserve(worst_usd + handle.excess_usd, turn)
            outgoing = OutgoingCall(reserved, self.account.purpose, handle.worker.name, key)
            outgoing_request = _OutgoingRequest(self.recorder, outgoing, handle.worker.timeout_s)
            try:
                handle.raise_if_stopped()  # this is checked again, because the reservation may have taken long
                began = time.monotonic()
                with keep_body() as body:
                    try:
                        # A plug-in runs in this process without a time-out, and its randomness is seeded by the sample.
                        if not handle.remote and (plugin := find_plugin(handle.worker.model)) is not None:
                            reply = plugin.answer(messages, sample=request.sample, **handle.settings)
                        else:
                            settings = {**handle.settings, **request.parameters}
                            async with outgoing_request.send(handle.worker) as session_settings:
                                reply = await import_litellm().acompletion(
                                    messages=list(messages), **session_settings, **settings
                                )
                    except (TimeoutError, provider_error()) as error:
                        reply = self._recover_reply(error, handle, messages, began, body)
                elapsed_s = time.monotonic() - began - outgoing_request.waited_s
                paid = read_reply(
                    handle.worker, handle.price, messages, reply, body.read(), elapsed_s, retries, request.parameters
                )
                response = paid.response
                bill = Bill(
                    outgoing_request.reservation,
                    outgoing.purpose,
                    outgoing.worker,
                    response.cost_usd,
                    response.usage,
                    key,
                )
            except BaseException as error:
                if outgoing_request.reservation.sent and may_be_billed(error):
                    self.ledger.mark_lost(outgoing_request.reservation)
                else:
                    self.ledger.release(outgoing_request.reservation)
                raise
            impossible: ConfigError | None = None
            if handle.remote and paid.impossible is not None:  # this stops further calls before they are sent
                impossible = handle.usage_error = impossible_usage_error(handle.worker, paid.impossible, self.pool_file)
            handle.excess_usd = max(handle.excess_usd, response.cost_usd - worst_usd)
            used_tokens = response.tokens
            is_last_attempt = retries >= handle.worker.retries
            problem = find_reply_problem(
                handle.worker, reply, response, has_answered=handle.has_answered, file=self.pool_file,
                is_last_attempt=is_last_attempt, broken=paid.broken, unknown_reason=paid.unknown_reason,
            )  # fmt: skip
            keep = problem is None or isinstance(problem, WorkerRefused)
            await self.recorder.book(bill, key, request.material, response, keep=keep)
            self.on_paid(response.cost_usd)
        finally:
            queue.leave(queue_place, used_tokens)
        if isinstance(problem, TransientFailure) and impossible is None:
            raise problem
        queue.breaker.record_success()
        if (stop := impossible or problem) is not None:
            raise stop
        handle.record_answer()
        queue.record_answer(queue_place, response.completion_tokens)
        return response

    async def _reserve(self, worst_usd: float, turn: Turn) -> Reservation:
        """Reserve the highest possible cost of a call, in USD.

        If it exceeds the budget while calls of this process are in flight, wait for the part of their reservations that
        they do not use. Raises `OverBudget` if there are none.
        """
        account = self.account

        def reserve() -> Reservation | None:
            try:
                return self.ledger.reserve(account.run, worst_usd, account.cap_usd, month_cap_usd=account.month_cap_usd)
            except OverBudget:
                if self.ledger.count_in_flight(account.run) == 0 and not self.recorder.book_lost_calls():
                    raise
            return None

        if (reservation := reserve()) is not None:
            return reservation
        with turn.waiting():
            return await self._wait_for_budget(reserve)

    async def _wait_for_budget(self, reserve: Callable[[], Reservation | None]) -> Reservation:
        # One call polls and the others wait for it, because hundreds of polling calls would keep the disk busy.
        async with self._room.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while (reservation := reserve()) is None:  # noqa: ASYNC110  (other processes may release reservations too)
                await asyncio.sleep(_BUDGET_POLL_S)
        return reservation

    def _recover_reply(
        self, error: Exception, handle: WorkerHandle, messages: Sequence[Message], sent: float, body: ReplyBody
    ) -> Any:
        """Return the reply that LiteLLM could not read but Podium can.

        Raises `TransientFailure` or the errors of `call` if there is none.
        """
        if isinstance(error, TimeoutError):
            fault = find_network_fault(error, handle.worker, body)
            assert fault is not None
            raise TransientFailure(f"{fault.what} ({describe_error(error)})", remedy=fault.remedy) from None
        if (openai_body := convert_to_openai(body.read())) is not None:
            with suppress(ValueError):  # for example of an unreadable usage
                return import_litellm().ModelResponse(**openai_body)
        failure = classify_failure(
            error, handle.worker, self.pool_file,
            messages=messages, key=handle.settings.get("api_key"), has_answered=handle.has_answered, body=body,
        )  # fmt: skip
        if isinstance(failure, TransientFailure):
            if failure.is_rate_limit or failure.retry_after_s:
                handle.queue.record_rate_limit(sent, failure.retry_after_s, self.backoff_s)
        else:
            handle.queue.breaker.record_success()  # the provider is reachable
        if isinstance(failure, RequestRejected):
            handle.rejections += 1
            if handle.rejections >= MAX_CONSECUTIVE_REJECTIONS:
                raise all_rejected_error(handle.worker, self.pool_file, handle.rejections, failure) from None
        raise failure from None


class _OutgoingRequest:
    """A call that is about to be sent, which is recorded as sent at the last possible moment.

    This is when its connection is established and only the request has to be written
    (`ops.workers.session.run_before_sending`). A process that is killed before has not spent anything. A call can be
    recorded as lost without having been sent in three cases:

    - its process is killed within the milliseconds between the record and the write;
    - LiteLLM does not call its provider through our session (`ops.workers.litellm_private.can_take_session`: Azure,
      Vertex AI, custom providers, models of the Responses API), so that it is recorded before LiteLLM prepares it and
      opens the connection;
    - it was written, and never reached the provider.
    """

    def __init__(self, recorder: CallRecorder, outgoing: OutgoingCall, timeout_s: float) -> None:
        self._recorder, self._outgoing, self._timeout_s = recorder, outgoing, timeout_s
        self.reservation = outgoing.reservation
        self._limit: asyncio.Timeout | None = None
        """The call's time-out, which begins when the call is sent."""
        self._refused: Exception | None = None
        """The reason why the call must not be sent, for example because another process holds its claim."""
        self.waited_s = 0.0
        """The seconds until the call was recorded on disk as sent."""

    @asynccontextmanager
    async def send(self, worker: Worker) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the arguments that LiteLLM needs besides the worker's settings. LiteLLM must be called once in the
        block.

        Raises LiteLLM's errors, `TimeoutError`, and the errors of `mark_sent`.
        """
        session_settings = await session_arguments(worker.model)
        if not can_take_session(worker.model):
            await self.mark_sent()
        try:
            # LiteLLM's time-out limits each read, and this one limits the whole call.
            async with asyncio.timeout(worker.timeout_s) as self._limit:
                with run_before_sending(self.mark_sent):
                    yield session_settings
        except Exception:
            if self._refused is not None:  # LiteLLM reports the refusal as a failure of the connection
                raise self._refused from None
            raise

    async def mark_sent(self) -> None:
        """Return when claims and ledger have recorded the call as sent on disk. Raises `ClaimLost` and the ledger's
        errors."""
        if self.reservation.sent:
            return  # for example, this is the second request after a redirect
        loop, began = asyncio.get_running_loop(), time.monotonic()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(None)
        try:
            self.reservation = await self._recorder.mark_sent(self._outgoing, self._timeout_s)
        except Exception as error:
            self._refused = error
            raise
        finally:
            self.waited_s = time.monotonic() - began
            if self._limit is not None and not self._limit.expired():
                self._limit.reschedule(loop.time() + self._timeout_s)


class _RetryPauses:
    """The pauses between the attempts of one call: exponential backoff with jitter, and at least as long as the
    provider requests."""

    def __init__(self, first_s: float, turn: Turn) -> None:
        self._turn = turn
        self._backoff = wait_exponential(multiplier=first_s, max=_LONGEST_BACKOFF_S) + wait_random(0, first_s)
        self._asked_for = False

    def next_pause_s(self, state: RetryCallState) -> float:
        """Return the seconds until the next attempt."""
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, TransientFailure)
        # A pause that the provider requests does not count as the call's own work; any other pause does.
        self._asked_for = error.is_rate_limit or error.retry_after_s is not None
        return max(error.retry_after_s or 0.0, self._backoff(state))

    async def sleep(self, seconds: float) -> None:
        if not self._asked_for:
            await asyncio.sleep(seconds)
            return
        with self._turn.waiting():
            await asyncio.sleep(seconds)


def _final_error(handle: WorkerHandle, attempts: int, error: TransientFailure) -> Exception:
    if error.final_error is not None:
        return error.final_error
    tried = f"{attempts} attempt{'' if attempts == 1 else 's'}"
    return WorkerUnreachable(
        f"worker {handle.worker.name!r} ({handle.worker.model}): no response after {tried}, at last {error}",
        error.remedy,
    )
