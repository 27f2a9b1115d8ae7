"""The engine for code that has no event loop, or another one: MLflow's agent, a notebook, `podium ask`."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from ops.config import Serving
from ops.core.problem import Problem
from ops.core.workspace import Workspace
from ops.serving.answer import Answer, Fallback
from ops.serving.engine import ServingEngine
from ops.serving.loaded_version import LoadedVersion, VersionFiles
from ops.serving.request_options import RequestOptions
from ops.workflow.trace import StepTrace

T = TypeVar("T")


class EngineThread:
    """An engine with one version, in an event loop on a thread of its own. Any number of threads may call it."""

    def __init__(self, workspace: Workspace, settings: Serving) -> None:
        self.engine = ServingEngine(workspace, settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @classmethod
    def from_files(cls, files: VersionFiles, workspace: Workspace, settings: Serving) -> EngineThread:
        """Load a version and serve it. Raises the errors of `LoadedVersion.load`."""
        loaded = LoadedVersion.load(files, settings, workspace)
        return cls.from_loaded(loaded, workspace, settings)

    @classmethod
    def from_loaded(cls, loaded: LoadedVersion, workspace: Workspace, settings: Serving) -> EngineThread:
        """Serve a version that is loaded already."""
        thread = cls(workspace, settings)
        thread.engine.replace_version(loaded)
        return thread

    def answer_question(self, problem: Problem, options: RequestOptions) -> Answer:
        """Return the answer to a question. Raises the errors of `ServedRequest.run`."""
        return self.run_coroutine(self._answer(problem, options, None))

    def stream_answer(self, problem: Problem, options: RequestOptions) -> Iterator[StepTrace | Fallback | Answer]:
        """Yield steps and fallbacks as they end, and finally the answer. Raises the errors of
        `ServedRequest.run`."""
        progress: queue.SimpleQueue[StepTrace | Fallback | None] = queue.SimpleQueue()
        answer = asyncio.run_coroutine_threadsafe(self._answer(problem, options, progress), self._loop)
        answer.add_done_callback(lambda _: progress.put(None))
        try:
            while (item := progress.get()) is not None:
                yield item
            yield answer.result()
        finally:
            answer.cancel()

    def run_coroutine(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the engine's event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the event loop and close the engine. No request may be in flight."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self.engine.close()

    async def _answer(
        self, problem: Problem, options: RequestOptions, progress: queue.SimpleQueue[StepTrace | Fallback | None] | None
    ) -> Answer:
        request = await self.engine.make_request(problem, options, None if progress is None else progress.put, "input")
        with self.engine.hold_version(request):
            return await request.run()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
