"""Follow the champion: a new version that works replaces the one in service, and one that does not is ignored."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Literal, Protocol

from ops.core.errors import PodiumError
from ops.serving.engine import ServingEngine
from ops.serving.loaded_version import LoadedVersion, VersionFiles

log = logging.getLogger(__name__)

RETRY_FAILED_S = 60.0
"""The seconds after which a version that could not be loaded is tried again, because its requirements may be met by
then."""
SwapResult = Literal["loaded", "failed", "unreachable", "missing"]
"""The result of a check that found another champion than the version in service; "missing" means that there is no
champion."""


class VersionSource(Protocol):
    """A source of versions. Its methods are called in threads and raise `PodiumError`."""

    def find_current(self) -> str | None:
        """Return the version that is to be served now, or None."""
        ...

    def explain_missing(self) -> str:
        """Return why there is no version, and the command that makes one."""
        ...

    def fetch_files(self, version: str) -> VersionFiles:
        """Return the paths of the version's files on this machine."""
        ...


class VersionFollower:
    """Keeps an engine at the current version of its source.

    The callback `on_attempt` is called for each attempt to change the version, and once if there is no current version
    any more.
    """

    def __init__(
        self,
        engine: ServingEngine,
        source: VersionSource,
        *,
        on_batch: Callable[[int], None] | None = None,
        on_attempt: Callable[[SwapResult, str], None] = lambda swap, version: None,
    ) -> None:
        self._engine, self._source, self._on_batch, self._on_attempt = engine, source, on_batch, on_attempt
        self._broken: dict[str, float] = {}
        """Version → time at which it may be tried again."""
        self._missing = False
        self.problem = ""
        """Reason why the source's current version is not in service; "" if it is."""

    async def run(self) -> None:
        """Check the version repeatedly, and change it when needed, until cancelled."""
        while True:
            await self.check_version()
            await asyncio.sleep(self._engine.settings.follow_s)

    async def check_version(self) -> bool:
        """Serve the current version if another one is in service. Return whether it is in service now."""
        try:
            version = await asyncio.to_thread(self._source.find_current)
            missing = await asyncio.to_thread(self._source.explain_missing) if version is None else ""
        except PodiumError as error:  # the registry is unavailable, so the version in service is kept
            self._on_attempt("unreachable", "")
            self._warn(str(error))
            return False
        served = self._engine.loaded.version if self._engine.loaded else None
        if version is None:
            if not self._missing:
                self._on_attempt("missing", "")
            self._missing = True
            self._warn(missing if served is None else f"{missing}. Until then version {served} stays in service")
            return False
        self._missing = False
        if version == served:
            self.problem = ""
            return True
        if self._broken.get(version, 0.0) > time.monotonic():
            return False
        try:
            loaded = await asyncio.to_thread(self._load_version, version, served is not None)
        except Exception as error:  # noqa: BLE001  (a broken version may raise anything; the present one stays)
            self._broken[version] = time.monotonic() + RETRY_FAILED_S
            self._on_attempt("failed", version)
            self._warn(f"version {version} cannot be served: {type(error).__name__}: {error}")
            return False
        self._engine.replace_version(loaded)
        self.problem = ""
        self._on_attempt("loaded", version)
        log.info("version %s is in service%s", version, f", {served} was before" if served else "")
        return True

    def _load_version(self, version: str, replaces: bool) -> LoadedVersion:
        engine = self._engine
        files = self._source.fetch_files(version)
        loaded = LoadedVersion.load(files, engine.settings, engine.workspace, on_batch=self._on_batch)
        try:
            if replaces:
                loaded.check_writes_workflows()
        except BaseException:
            loaded.close()
            raise
        return loaded

    def _warn(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s", problem)
        self.problem = problem
