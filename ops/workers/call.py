"""A live call: reservation, attempts, retries, booking.

Calls that leave together, and replies that arrive together, cost one transaction each.
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
from ops.core.messages import Message, Sample
from ops.core.registry import plugin_of
from ops.core.response import Response
from ops.core.together import Together
from ops.spending.ledger import Bill, Departure, Ledger, Reservation
from ops.store import ClaimLost, ResponseCache
from ops.workers.failures import Transient, describe, may_be_billed, read_failure, rejects_everything
from ops.workers.litellm_private import takes_session
from ops.workers.network import network_fault
from ops.workers.providers import litellm, most_tokens, provider_error
from ops.workers.replies import judge, not_believed, read_reply
from ops.workers.reply_body import Body, as_openai, kept_body
from ops.workers.scheduling import Turn
from ops.workers.session import before_sending, way_out
from ops.workers.worker_handle import WorkerHandle


class _Reply(NamedTuple):
    bill: Bill
    key: str
    material: str
    response: Response
    keep: bool


class BookingDesk:
    """Mark calls as sent, and book and store their replies, in one transaction each per turn of the event loop.

    A reply is booked before its response is stored, so that no stored response is unknown to the ledger, whichever of
    the two fails. A process that dies between the two loses a response that is booked, like one that was under way.
    """

    def __init__(self, cache: ResponseCache, ledger: Ledger) -> None:
        self._cache, self._ledger = cache, ledger
        self._departures = Together(self._mark_sent, undo=ledger.recall)
        self._replies = Together(self._book)

    async def depart(self, departure: Departure, timeout_s: float) -> Reservation:
        """Return the reservation of a call that may be sent now, once the claims and the ledger have it on disk.

        Raises `ClaimLost` if another process holds the call's claim: then the call must not be made.
        """
        return await self._departures.do((departure, timeout_s))

    async def book(self, bill: Bill, key: str, material: str, response: Response, *, keep: bool) -> None:
        """Return when the bill, and the response if `keep` is set, are on disk. A caller that is cancelled meanwhile
        loses neither."""
        await self._replies.do(_Reply(bill, key, material, response, keep))

    def measure_lost(self) -> bool:
        """Book lost calls whose questions the cache can answer at the cost of those answers; return whether there were
        any.

        For example, the ledger did not take a bill, because its disk was full or its server away, and the response was
        stored all the same (`_book`).
        """
        costs = {key: hit.cost_usd for key in self._ledger.unmeasured() if (hit := self._cache.get(key)) is not None}
        self._ledger.measure(costs)
        return bool(costs)

    def _mark_sent(self, leaving: Sequence[tuple[Departure, float]]) -> list[Reservation | Exception]:
        ours = self._cache.mark_sent({call.key: timeout_s for call, timeout_s in leaving})
        marked = iter(self._ledger.mark_sent(*(call for call, _ in leaving if call.key in ours)))
        return [next(marked) if call.key in ours else ClaimLost() for call, _ in leaving]

    def _book(self, replies: Sequence[_Reply]) -> Sequence[None]:
        try:
            self._ledger.settle(*(reply.bill for reply in replies))
        except BaseException:
            # The ledger knows these calls as sent and counts them as lost until their responses measure them. A call
            # that is not billed was not marked as sent, and its response is made again.
            with suppress(PodiumError):
                self._store([reply for reply in replies if reply.bill.reservation.sent])
            raise
        self._store(replies)
        return [None] * len(replies)

    def _store(self, replies: Sequence[_Reply]) -> None:
        self._cache.put_many([(reply.key, reply.material, reply.response) for reply in replies if reply.keep])


REJECTIONS_IN_A_ROW = 10
"""Rejected requests in a row, with no response from a call or the cache in between, after which the worker counts as
misconfigured. A single rejection fails one rollout, and rejections cost nothing."""
_ROOM_POLL_S = 0.02
_LONGEST_BACKOFF_S = 30.0


@dataclass(frozen=True)
class Account:
    """The account that pays for calls, and their purpose."""

    run: str
    purpose: str
    """Purpose in the ledger: "precache", "training", "evaluation" …"""
    cap_usd: float
    """Cap of the run in USD, over all processes."""
    month_cap_usd: float | None = None
    """Cap of the calendar month in USD."""


class Request(NamedTuple):
    """A request to a worker: the messages, and the sample index of the answer."""

    messages: Sequence[Message]
    sample: Sample
    key: str
    """The response's key in the cache."""
    material: str
    """The text that the key is the hash of."""
    parameters: Mapping[str, Any] = {}
    """The parameters of this request beside those of all requests to the worker (`ops.config.pool`)."""


@dataclass
class Caller:
    """Makes live calls for one account; `backoff_s` is the first pause before a retry (doubling, with jitter).

    `on_retry` and `on_paid` (USD) are callbacks.
    """

    ledger: Ledger
    desk: BookingDesk
    account: Account
    pool_file: Path | str
    backoff_s: float
    on_retry: Callable[[], None]
    on_paid: Callable[[float], None]
    _room: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = field(
        default_factory=weakref.WeakKeyDictionary
    )

    async def call(self, handle: WorkerHandle, request: Request, turn: Turn) -> Response:
        """Call until there is a response, the retries are used up, or the worker's circuit is open.

        Raises the exceptions of `Client`, and `ClaimLost` if another process holds the key's claim:
        then nothing was sent.
        """
        breaker, pauses, key = handle.queue.breaker, _Pauses(self.backoff_s, turn), request.key
        attempts = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, Transient) and not breaker.is_probe(key)),
            stop=stop_after_attempt(handle.worker.retries + 1),
            wait=pauses.length,
            before_sleep=lambda _: self.on_retry(),
            sleep=pauses.pass_,
            reraise=True,
        )
        number = 0
        try:
            async for attempt in attempts:
                number = attempt.retry_state.attempt_number
                with attempt:
                    return await self._attempt(handle, request, turn, number - 1)
        except Transient as error:
            breaker.failed(key, str(error))
            raise _given_up(handle, number, error) from None
        finally:
            breaker.left(key)
        raise AssertionError("tenacity ends with a response or an error")

    async def _attempt(self, handle: WorkerHandle, request: Request, turn: Turn, retries: int) -> Response:
        """Make one request. Raises `Transient`, or the errors of `call`."""
        messages, key, queue = request.messages, request.key, handle.queue
        prompt_chars = sum(len(message["content"]) for message in messages)
        place, used = await queue.enter(key, prompt_chars, turn, again=retries > 0), 0
        try:
            handle.raise_if_stopped()
            worker = handle.worker
            worst_usd = handle.price.most_usd(most_tokens(messages), worker.max_tokens, worker.service_tier)
            reserved = await self._reserve(worst_usd + handle.excess_usd, turn)
            departure = Departure(reserved, self.account.purpose, handle.worker.name, key)
            leaving = _Leaving(self.desk, departure, handle.worker.timeout_s)
            try:
                handle.raise_if_stopped()  # again, because the reservation may have taken long
                began = time.monotonic()
                with kept_body() as body:
                    try:
                        # A time-out cannot interrupt code in this process; its randomness is seeded by the sample.
                        if not handle.remote and (plugin := plugin_of(handle.worker.model)) is not None:
                            reply = plugin.answer(messages, sample=request.sample, **handle.settings)
                        else:
                            settings = {**handle.settings, **request.parameters}
                            async with leaving.sending(worker) as way:
                                reply = await litellm().acompletion(messages=list(messages), **way, **settings)
                    except (TimeoutError, provider_error()) as error:
                        reply = self._read_in_spite_of(error, handle, messages, began, body)
                elapsed_s = time.monotonic() - began - leaving.waited_s
                paid = read_reply(handle.worker, handle.price, messages, reply, body.read(), elapsed_s, retries)
                response = paid.response
                bill = Bill(
                    leaving.reservation, departure.purpose, departure.worker, response.cost_usd, response.usage, key
                )
            except BaseException as error:
                if leaving.reservation.sent and may_be_billed(error):
                    self.ledger.lose(leaving.reservation)
                else:
                    self.ledger.release(leaving.reservation)
                raise
            impossible: ConfigError | None = None
            if handle.remote and paid.impossible is not None:  # marked before its other calls are sent
                impossible = handle.not_believed = not_believed(handle.worker, paid.impossible, self.pool_file)
            handle.excess_usd = max(handle.excess_usd, response.cost_usd - worst_usd)
            used = response.usage.tokens
            last = retries >= handle.worker.retries
            problem = judge(
                handle.worker, reply, response, worked=handle.worked, file=self.pool_file, last=last,
                broken=paid.broken, unknown_reason=paid.unknown_reason,
            )  # fmt: skip
            keep = problem is None or isinstance(problem, WorkerRefused)
            await self.desk.book(bill, key, request.material, response, keep=keep)
            self.on_paid(response.cost_usd)
        finally:
            queue.leave(place, used)
        if isinstance(problem, Transient) and impossible is None:
            raise problem
        queue.breaker.succeeded()
        if (stop := impossible or problem) is not None:
            raise stop
        handle.answered()
        queue.answered(place, response.completion_tokens)
        return response

    async def _reserve(self, worst_usd: float, turn: Turn) -> Reservation:
        """Reserve the worst case; while own calls are in flight, wait for the part of their reservations that they do
        not use."""
        account = self.account

        def reserve() -> Reservation | None:
            try:
                return self.ledger.reserve(account.run, worst_usd, account.cap_usd, month_cap_usd=account.month_cap_usd)
            except OverBudget:
                if self.ledger.in_flight(account.run) == 0 and not self.desk.measure_lost():
                    raise
            return None

        if (reservation := reserve()) is not None:
            return reservation
        with turn.waiting():
            return await self._when_there_is_room(reserve)

    async def _when_there_is_room(self, reserve: Callable[[], Reservation | None]) -> Reservation:
        # One call polls and the others wait for it, because hundreds of polling calls would keep the disk busy.
        async with self._room.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while (reservation := reserve()) is None:  # noqa: ASYNC110  (other processes may release reservations, too)
                await asyncio.sleep(_ROOM_POLL_S)
        return reservation

    def _read_in_spite_of(
        self, error: Exception, handle: WorkerHandle, messages: Sequence[Message], sent: float, body: Body
    ) -> Any:
        """Return the reply that LiteLLM could not read but Podium can. Raises `Transient`, or the errors of `call`, if
        there is none."""
        if isinstance(error, TimeoutError):
            fault = network_fault(error, handle.worker, body)
            assert fault is not None
            raise Transient(f"{fault.what} ({describe(error)})", remedy=fault.remedy) from None
        if (said := as_openai(body.read())) is not None:
            with suppress(ValueError):  # for example of an unreadable usage
                return litellm().ModelResponse(**said)
        failure = read_failure(
            error, handle.worker, self.pool_file,
            messages=messages, key=handle.settings.get("api_key"), worked=handle.worked, body=body,
        )  # fmt: skip
        if isinstance(failure, Transient):
            if failure.crowded or failure.retry_after_s:
                handle.queue.crowded(sent, failure.retry_after_s, self.backoff_s)
        else:
            handle.queue.breaker.succeeded()  # the provider is reachable
        if isinstance(failure, RequestRejected):
            handle.rejections += 1
            if handle.rejections >= REJECTIONS_IN_A_ROW:
                raise rejects_everything(handle.worker, self.pool_file, handle.rejections, failure) from None
        raise failure from None


class _Leaving:
    """A call that is about to be sent, which is marked as sent at the last possible moment.

    That is when its connection stands and only the request has to be written (`ops.workers.session.before_sending`). A
    process that is killed earlier has not spent anything. These calls can still be booked as lost without having been
    sent: one whose process is killed within the milliseconds between the mark and the write; one to a provider that
    LiteLLM does not call through our session (`ops.workers.litellm_private.takes_session`: Azure, Vertex AI, custom
    providers, models of the Responses API), which is marked before LiteLLM prepares it and opens its connection; and
    one that was written and never reached the provider.
    """

    def __init__(self, desk: BookingDesk, departure: Departure, timeout_s: float) -> None:
        self._desk, self._departure, self._timeout_s = desk, departure, timeout_s
        self.reservation = departure.reservation
        self._limit: asyncio.Timeout | None = None
        """The call's time-out, which begins when the call is sent."""
        self._refused: Exception | None = None
        """Why the call must not be sent, for example because another process holds its claim."""
        self.waited_s = 0.0
        """The seconds until the mark was on disk."""

    @asynccontextmanager
    async def sending(self, worker: Worker) -> AsyncIterator[Mapping[str, Any]]:
        """Let LiteLLM be called once in the block, with these arguments too. Raises its errors, `TimeoutError`, and the
        errors of `mark`."""
        way = await way_out(worker.model)
        if not takes_session(worker.model):
            await self.mark()
        try:
            # LiteLLM's time-out bounds each read; this one bounds the whole call.
            async with asyncio.timeout(worker.timeout_s) as self._limit:
                with before_sending(self.mark):
                    yield way
        except Exception:
            if self._refused is not None:  # LiteLLM takes the refusal for a failure of the connection
                raise self._refused from None
            raise

    async def mark(self) -> None:
        """Return when claims and ledger have the call on disk as sent. Raises `ClaimLost` and the ledger's errors."""
        if self.reservation.sent:
            return  # for example a redirect
        loop, began = asyncio.get_running_loop(), time.monotonic()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(None)
        try:
            self.reservation = await self._desk.depart(self._departure, self._timeout_s)
        except Exception as error:
            self._refused = error
            raise
        finally:
            self.waited_s = time.monotonic() - began
            if self._limit is not None and not self._limit.expired():
                self._limit.reschedule(loop.time() + self._timeout_s)


class _Pauses:
    """The pauses between the attempts of one call: doubling, with jitter, and at least as long as the provider
    requests."""

    def __init__(self, first_s: float, turn: Turn) -> None:
        self._turn = turn
        self._backoff = wait_exponential(multiplier=first_s, max=_LONGEST_BACKOFF_S) + wait_random(0, first_s)
        self._asked_for = False

    def length(self, state: RetryCallState) -> float:
        """Return the seconds until the next attempt."""
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, Transient)
        # A pause that the provider requests does not count as the call's own work; any other pause does.
        self._asked_for = error.crowded or error.retry_after_s is not None
        return max(error.retry_after_s or 0.0, self._backoff(state))

    async def pass_(self, seconds: float) -> None:
        if not self._asked_for:
            await asyncio.sleep(seconds)
            return
        with self._turn.waiting():
            await asyncio.sleep(seconds)


def _given_up(handle: WorkerHandle, attempts: int, error: Transient) -> Exception:
    if error.in_the_end is not None:
        return error.in_the_end
    tried = f"{attempts} attempt{'' if attempts == 1 else 's'}"
    return WorkerUnreachable(
        f"worker {handle.worker.name!r} ({handle.worker.model}): no response after {tried}, at last {error}",
        error.remedy,
    )
