"""Replay: answer calls from recorded responses, so that a recipe can be rehearsed at no cost.

A replayed response is neither stored nor booked in the ledger. Its `cost_usd` and `latency_s` are those of the recorded
call, so that a rehearsal's report states what the workflows of a real run would cost. The rehearsal's own spending is
counted separately and is zero.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ops.config import Replay, Worker
from ops.core.errors import ReplayMiss, WorkerRefused
from ops.core.messages import NO_PARAMETERS, Message, Parameters, Sample
from ops.core.problem import Problem
from ops.core.response import Response
from ops.core.response_rows import ResponseRow
from ops.spending.ledger import Ledger
from ops.store import ResponseCache, cache_key
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account
from ops.workers.replies import clean_stored_response
from ops.workers.scheduling import INDEPENDENT_CALL, Turn

_SUBTASK = "\n\nSubtask: "
"""Separator between the question and the subtask in a step's first message (`ops.workflow.execution`)."""


class RecordedResponses:
    """The recorded answers of single workers, found by worker, problem and sample.

    A call belongs to the problem whose `worker_prompt` begins its first message, regardless of the subtask and of the
    earlier steps in the message. Rows of problems that are not in `problems` are ignored.
    """

    def __init__(self, rows: Iterable[ResponseRow], problems: Iterable[Problem]) -> None:
        from ops.grading import worker_prompt

        prompts = {problem.key: worker_prompt(problem) for problem in problems}
        self._prompts = set(prompts.values())
        self._rows = {
            (row.worker, prompts[row.problem_key], Sample(row.sample)): row
            for row in rows
            if row.status != "unreachable" and row.problem_key in prompts
        }

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, worker: Worker, messages: Sequence[Message], sample: int | Sample) -> Response | None:
        """Return the recorded response to this call; None if none was recorded.

        Raises `WorkerRefused` if the recorded worker refused the problem.
        """
        row = self._rows.get((worker.name, self._find_prompt(messages), Sample.of(sample)))
        if row is None:
            return None
        if row.status == "refused":
            raise WorkerRefused(f"worker {worker.name!r} refused {row.problem_key} when it was recorded")
        return replace(row.response, cached=True, replayed=True)

    def _find_prompt(self, messages: Sequence[Message]) -> str:
        opening = messages[0]["content"]
        end = opening.find(_SUBTASK)
        while end >= 0 and opening[:end] not in self._prompts:
            end = opening.find(_SUBTASK, end + 1)  # the question itself may contain the separator
        return opening[:end] if end >= 0 else ""


class ReplayClient(WorkerClient):
    """A client that answers from the response cache and from recorded responses; `Replay` describes its settings."""

    def __init__(
        self,
        cache: ResponseCache,
        ledger: Ledger,
        account: Account,
        *,
        replay: Replay,
        recorded: RecordedResponses,
        pool_file: Path | str = "config/pools",
    ) -> None:
        super().__init__(cache, ledger, account, pool_file=pool_file)
        self._replay, self._recorded = replay, recorded
        self._counting = threading.Lock()

    async def complete(
        self,
        worker: Worker,
        messages: Sequence[Message],
        *,
        sample: int | Sample = 0,
        turn: Turn = INDEPENDENT_CALL,
        parameters: Parameters = NO_PARAMETERS,
    ) -> Response:
        """Return the recorded response, marked as `replayed`.

        If nothing was recorded, the setting "unscorable" raises `ReplayMiss`, and "live" calls the worker and raises
        the errors of `WorkerClient.complete`. Raises `WorkerRefused` if a refusal was recorded.
        """
        response = self._find_response(worker, messages, sample, parameters)
        if response is not None:
            with self._counting:
                self.counts.replayed += 1
            return response
        if self._replay.on_miss == "live":
            return await super().complete(worker, messages, sample=sample, turn=turn, parameters=parameters)
        with self._counting:
            self.counts.failed += 1
        raise ReplayMiss(
            f"worker {worker.name!r}, sample {sample}: nothing recorded answers this "
            f"{self._replay.match}. Precache it, or set replay.on_miss: live in the recipe"
        )

    def _find_response(
        self, worker: Worker, messages: Sequence[Message], sample: int | Sample, parameters: Parameters
    ) -> Response | None:
        if (hit := self.cache.get(cache_key({**worker.identity, **parameters}, messages, sample))) is not None:
            return replace(clean_stored_response(worker, hit), cached=True, replayed=True)
        if self._replay.match == "problem":
            return self._recorded.find(worker, messages, sample)
        return None
