"""The limits of one worker over all machines of a team, in Redis: slots for calls in flight, and the time of the next
request.

A slot is a lease that its holder renews, so the slot of a lost machine becomes free when its lease expires.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

from ops.config import Worker
from ops.config.base import digest
from ops.core.errors import LimitsUnavailable
from ops.core.servers import LeaseRenewer, hide_password, open_redis_client
from ops.workers.machine_limits import RequestTimes

LIMITS_URL = "PODIUM_LIMITS_URL"
"""The environment variable with the address of the server with a team's worker limits, ``redis://HOST:PORT/DB``."""
_PREFIX = "podium:limits:"
_LEASE_S = 30.0
_TIMES_S = 7200
"""Seconds after the last call until the stored times expire."""
_HOLD_S = 10.0
"""Seconds that one process may lock the times, which it only reads, changes and writes."""
_FIRST_POLL_S, _POLL_PER_PLACE_S = 0.002, 0.01
_PLACE_LIFETIME_S = 2.0
"""Seconds without a request after which a caller loses its place in the queue."""
_TAKE = """
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
local slots, line, asked, caller = KEYS[1], KEYS[2], KEYS[3], ARGV[2]
redis.call('ZREMRANGEBYSCORE', slots, '-inf', at)
for _, absent in ipairs(redis.call('ZRANGEBYSCORE', asked, '-inf', at - tonumber(ARGV[4]))) do
  redis.call('ZREM', line, absent)
  redis.call('ZREM', asked, absent)
end
redis.call('ZADD', line, 'NX', now[1] * 1000000 + now[2], caller)
local places = redis.call('ZRANK', line, caller) + 1 - (tonumber(ARGV[1]) - redis.call('ZCARD', slots))
if places > 0 then
  redis.call('ZADD', asked, at, caller)
  for _, key in ipairs({line, asked}) do redis.call('PEXPIRE', key, 2 * tonumber(ARGV[4])) end
  return places
end
redis.call('ZREM', line, caller)
redis.call('ZREM', asked, caller)
redis.call('ZADD', slots, at + tonumber(ARGV[3]), caller)
redis.call('PEXPIRE', slots, 2 * tonumber(ARGV[3]))
return 0
"""
"""A script that takes a slot and returns 0, or returns the caller's place in the queue."""
_RENEW = """
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
for i = 2, #ARGV do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) then redis.call('ZADD', KEYS[1], at + tonumber(ARGV[1]), ARGV[i]) end
end
redis.call('PEXPIRE', KEYS[1], 2 * tonumber(ARGV[1]))
"""


class _WaitingCall:
    """A call that waits for a slot. A child of a fork does not inherit waiting calls."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.token = secrets.token_hex(8)
        self.place = 1


class FleetLimits:
    """The slots and times of one worker in the Redis server at `url`, for any number of machines; otherwise as
    `MachineLimits`.

    All processes share one queue for slots in order of arrival, in which each process has at most one place. A process
    with one call therefore waits no longer than a process with many. `lease_s` is the duration of a slot's lease in
    seconds. Raises `ConfigError` for an invalid URL, or if the package `redis` is not installed. Every method raises
    `LimitsUnavailable` if the server does not answer.
    """

    def __init__(self, url: str, name: str, *, lease_s: float = _LEASE_S) -> None:
        self._client, self._place = open_redis_client(url, LIMITS_URL), hide_password(url)
        self._slots, self._times = f"{_PREFIX}{name}:slots", f"{_PREFIX}{name}:times"
        self._line, self._asked = f"{_PREFIX}{name}:line", f"{_PREFIX}{name}:asked"
        self._lease_s = lease_s
        self._leases = LeaseRenewer[int, str]("worker slots", lease_s / 3, self._renew_slots)
        self._last = 0
        self._head: _WaitingCall | None = None
        with self._translate_errors():
            seconds, microseconds = self._client.time()
        self._ahead_s: float = seconds + microseconds / 1e6 - time.time()
        self._take = self._client.register_script(_TAKE)
        self._renew = self._client.register_script(_RENEW)

    async def take_slot(self, slots: int) -> int:
        """Wait for one of `slots` slots and return its number.

        `release_slot` must be called afterwards. Cancelling the wait has no effect on the limits.
        """
        caller, pause, slot = _WaitingCall(), _FIRST_POLL_S, None
        try:
            while (slot := self._try_take_slot(slots, caller)) is None:
                await asyncio.sleep(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, _POLL_PER_PLACE_S * caller.place)
        finally:
            if self._head is caller:
                self._head = None
                if slot is None:
                    self._leave_queue(caller)
        return slot

    def release_slot(self, slot: int) -> None:
        """Release a slot. If the server does not answer, the lease expires."""
        import redis

        with self._leases.locked() as held:
            token = held.pop(slot)
        with suppress(redis.RedisError):
            self._client.zrem(self._slots, token)

    @contextmanager
    def locked_times(self) -> Iterator[RequestTimes]:
        """Yield the times for exclusive use by this process. Changes that the block makes are stored."""
        lock = self._client.lock(f"{self._times}:lock", timeout=_HOLD_S, sleep=0.002, thread_local=False)
        with self._translate_errors():
            lock.acquire()
        try:
            times = self.known_times()
            yield times
            with self._translate_errors(), self._client.pipeline(transaction=True) as pipeline:
                pipeline.hset(self._times, mapping={name: repr(at) for name, at in asdict(times).items()})
                pipeline.expire(self._times, _TIMES_S)
                pipeline.execute()
        finally:
            import redis

            with suppress(redis.RedisError):  # if this fails, the lock expires
                lock.release()

    def known_times(self) -> RequestTimes:
        """Return the stored times."""
        with self._translate_errors():
            fields = self._client.hgetall(self._times)
        return RequestTimes(**{name.decode(): float(at) for name, at in fields.items()})

    def now(self) -> float:
        """Return the time of the server's clock in seconds since the epoch, because the machines' clocks may differ."""
        return time.time() + self._ahead_s

    def _try_take_slot(self, slots: int, caller: _WaitingCall) -> int | None:
        with self._leases.locked() as held:
            if (head := self._head) is not None and head is not caller and head.pid == os.getpid():
                return None
            self._head = caller
            with self._translate_errors():
                caller.place = self._take(
                    keys=[self._slots, self._line, self._asked],
                    args=[slots, caller.token, int(1000 * self._lease_s), int(1000 * _PLACE_LIFETIME_S)],
                )
            if caller.place:
                return None
            self._last += 1
            held[self._last] = caller.token
            return self._last

    def _leave_queue(self, caller: _WaitingCall) -> None:
        """Remove a caller that has given up from the queue."""
        import redis

        with suppress(redis.RedisError):  # if this fails, the caller loses its place after `_PLACE_LIFETIME_S`
            self._client.zrem(self._line, caller.token)
            self._client.zrem(self._asked, caller.token)

    def _renew_slots(self, held: dict[int, str]) -> None:
        import redis

        with suppress(redis.RedisError):  # calls that hold a slot continue, and the next request for a slot fails
            self._renew(keys=[self._slots], args=[int(1000 * self._lease_s), *held.values()])

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        import redis

        try:
            yield
        except redis.RedisError as error:
            raise LimitsUnavailable(
                f"{LIMITS_URL} {self._place} does not answer ({type(error).__name__}): workers' limits are kept there, "
                "and without them no worker is called. Start the server and run the same command again"
            ) from None


def open_fleet_limits(url: str, worker: Worker) -> FleetLimits:
    """Return the limits of a worker, which all processes with the same server share.

    The worker is identified by its name, model and endpoint.
    """
    return FleetLimits(url, f"{worker.name}-{digest([worker.name, worker.model, worker.api_base])}")
