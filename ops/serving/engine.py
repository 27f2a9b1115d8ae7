"""The serving engine: the version in service, and the client, cache and ledger that all requests share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ops.config import Serving
from ops.core.errors import PodiumError
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.core.workspace_parts import check_parts
from ops.serving.answer import Answer
from ops.serving.loaded_version import LoadedVersion
from ops.serving.request import OnProgress, ServedRequest
from ops.serving.request_options import RequestOptions
from ops.spending.bookings import current_month
from ops.spending.ledger import open_ledger
from ops.store import open_cache
from ops.workers.client import WorkerClient
from ops.workers.live_call import Account

LEDGER_PURPOSE = "serving"
"""The purpose under which the ledger books the calls of a server."""


class NotLoadedError(PodiumError):
    """No version is in service yet."""


class ServingEngine:
    """Answers questions in one event loop. The version can be replaced while requests are in flight."""

    def __init__(
        self, workspace: Workspace, settings: Serving, *, on_answer: Callable[[Answer], None] | None = None
    ) -> None:
        self.workspace, self.settings = workspace, settings
        self._on_answer = on_answer
        self._cache, self._ledger = open_cache(workspace.cache), open_ledger(workspace.ledger)
        self._client: tuple[str, WorkerClient] | None = None
        self._loaded: LoadedVersion | None = None

    @property
    def loaded(self) -> LoadedVersion | None:
        """The version in service; None if there is none yet."""
        return self._loaded

    def replace_version(self, loaded: LoadedVersion) -> None:
        """Answer new questions with this version. Requests in flight are finished by the version with which they began.

        Raises `PodiumError` if a part of the workspace is missing that the first call would otherwise create anew.
        """
        if self._loaded is None:
            check_parts(self.workspace)
        before, self._loaded = self._loaded, loaded
        if before is not None and before.in_use == 0:
            before.close()

    async def make_request(
        self, problem: Problem, options: RequestOptions, on_progress: OnProgress | None = None, field: str = "messages"
    ) -> ServedRequest:
        """Return a request to the version in service. `field` names the part of the request that holds the question,
        for error messages.

        Raises `RequestError`, and `NotLoadedError` if no version is in service.
        """
        if self._loaded is None:
            raise NotLoadedError("the champion is being loaded: ask again in a few seconds")
        request = ServedRequest(self._loaded, problem, options, self.settings, self._current_client(), on_progress)
        await request.check_length(field)
        return request

    @contextmanager
    def hold_version(self, request: ServedRequest) -> Iterator[None]:
        """Keep a version loaded while a request is answered inside the block. It is the version in service at this
        moment, because the request may have waited."""
        if self._loaded is not None and request.loaded is not self._loaded:
            request.set_version(self._loaded)
        loaded = request.loaded
        loaded.in_use += 1
        try:
            yield
        finally:
            if self._on_answer is not None:
                self._on_answer(request.answer)
            loaded.in_use -= 1
            if loaded.in_use == 0 and loaded is not self._loaded:
                loaded.close()

    @property
    def is_stalled(self) -> bool:
        """Return whether the writer of the version in service has finished no batch for too long."""
        loaded = self._loaded
        if loaded is None or loaded.batch_writer is None:
            return False
        return loaded.batch_writer.seconds_without_progress > self.settings.stalled_s

    def close(self) -> None:
        """Release all resources. No request may be in flight."""
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None
        self._ledger.close()
        self._cache.close()

    def _current_client(self) -> WorkerClient:
        # The calendar month is the ledger's run, so that the cap applies to the spending of all servers in that month.
        month = current_month()
        if self._client is None or self._client[0] != month:
            cap = math.inf if self.settings.month_usd is None else self.settings.month_usd
            account = Account(f"{LEDGER_PURPOSE}-{month}", LEDGER_PURPOSE, cap)
            self._client = month, WorkerClient(self._cache, self._ledger, account)
        return self._client[1]
