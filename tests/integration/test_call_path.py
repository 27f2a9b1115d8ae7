"""The path of a call through this project's functions, from an asset or an HTTP route to LiteLLM, and its length.

How it is counted: `import_litellm.acompletion` is wrapped, and at the moment of the call the frames of the
interpreter's stack are read from the innermost one outwards. Where the stack reaches the event loop, it goes on with
the stack on which the running task was created, which a task factory has recorded, and so on until the body of the
asset or the route. Frames count whose code lies in `ops`, `assets` or `pipelines`, the wrappers of our own decorators
among them. Comprehensions do not count, because later versions of Python inline them. The body of the asset or of the
route and LiteLLM's own function are the two ends and do not count.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import dagster as dg
import httpx
import pytest

from assets import partitions
from assets.resources import RunResource
from ops.config import Pool, Serving, Setup
from ops.core.workspace import Workspace
from ops.serving.http.access import AccessControl
from ops.serving.http.server import ServingApp
from ops.serving.loaded_version import LoadedVersion
from ops.training.cold_start.base_policy import make_base_policy
from ops.workers.providers import import_litellm
from tests.faults.clients import server as server
from tests.faults.remote import FaultServer, client_in
from tests.integration.checkouts import UNTRAINED, configure, load_raw, materialize, sizes
from tests.serving.script import Scripted, card_of

ROOT = Path(__file__).parents[2]
OURS = tuple(f"{ROOT / layer}/" for layer in ("ops", "assets", "pipelines"))
MOST = 12
"""The most functions on a path."""
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
WORKFLOW = 'model_id = [0, 0]\nsubtasks = ["Solve the problem.", "Check it."]\naccess_list = [[], "all"]'
STEPS = [{"worker": "remote"}, {"worker": "remote", "subtask": "Check it.", "access": "all"}]

Origins = weakref.WeakKeyDictionary[asyncio.Task[Any], list[CodeType]]


class RecordingPolicy(asyncio.DefaultEventLoopPolicy):
    """Its event loops record the stack on which each task was created."""

    def __init__(self) -> None:
        super().__init__()
        self.origins: Origins = weakref.WeakKeyDictionary()

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        loop.set_task_factory(self.task)
        return loop

    def task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        self.origins[task] = self.stack()
        return task

    def stack(self) -> list[CodeType]:
        """Return the functions that lead here, innermost first, across tasks."""
        frame, found = sys._getframe(1), list[CodeType]()
        while frame is not None and frame.f_code is not asyncio.Handle._run.__code__:
            found.append(frame.f_code)
            frame = frame.f_back  # type: ignore[assignment]
        try:
            running = asyncio.current_task()
        except RuntimeError:  # no event loop runs
            running = None
        return found + (self.origins.get(running, []) if running is not None else [])


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[CodeType]]]:
    """The paths of all calls to LiteLLM, which reach it as ever."""
    made: list[list[CodeType]] = []
    policy, before, call = RecordingPolicy(), asyncio.get_event_loop_policy(), import_litellm().acompletion

    def recorded(**settings: Any) -> Any:
        made.append(policy.stack()[1:])
        return call(**settings)

    monkeypatch.setattr(import_litellm(), "acompletion", recorded)
    asyncio.set_event_loop_policy(policy)
    yield made
    asyncio.set_event_loop_policy(before)


def longest(paths: list[list[CodeType]], begins: Callable[[CodeType], bool]) -> list[str]:
    """Print the longest path, and return its functions from the outermost to the innermost, without the first."""
    own = []
    for path in paths:
        [start] = [index for index, code in enumerate(path) if begins(code)]
        counted = [code for code in path[:start] if code.co_filename.startswith(OURS)]
        own.append([code for code in reversed(counted) if code.co_name not in COMPREHENSIONS])
    functions = [f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}" for code in max(own, key=len)]
    for number, name in enumerate(functions, start=1):
        print(f"{number:3}  {name}")
    return functions


def test_from_an_asset_to_litellm(
    project: Workspace, instance: dg.DagsterInstance, server: FaultServer, paths: list[list[CodeType]]
) -> None:
    pool = {"name": "far", "workers": [server.worker().model_dump(mode="json", exclude_defaults=True)]}
    recipe = {
        "name": "far", "pool": "far", "benchmarks": sizes(4, 2, ["math500"]), "grading": UNTRAINED["grading"],
        "policy": {"kind": "static", "workflow": STEPS},
    }  # fmt: skip
    configure(project, {"pools/far": pool, "recipes/far": recipe})
    setup = Setup.read(project, "far")
    load_raw(setup)
    make_base_policy(setup, client_in(project.state))
    podium = RunResource(root=str(project.root), recipe="far")
    tags = partitions.tag_recipe_benchmarks(setup.recipe)
    assert materialize(podium, instance, "benchmark_scores", tags=tags, run_config=podium.make_run_config()).success
    assert len(paths) >= 4
    path = longest(paths, lambda code: code.co_filename == f"{ROOT}/assets/benchmark_scores.py")
    assert len(path) <= MOST, path


ROUTES = ("Routes.chat_completions", "_Stream.__call__")
"""The function that answers a request: Starlette calls the second one with the stream that the first one returned."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("vote", [1, 3], ids=["one workflow", "a vote"])
def test_from_a_request_to_litellm(
    tmp_path: Path, server: FaultServer, paths: list[list[CodeType]], vote: int, stream: bool
) -> None:
    pool = Pool(name="far", workers=(server.worker(),))
    settings = Serving.model_validate({"vote": {"workflows": vote}})
    app = ServingApp(Workspace(tmp_path), settings, Nowhere(), AccessControl.from_environment("127.0.0.1"))
    app.engine.replace_version(LoadedVersion.from_parts("1", Scripted(WORKFLOW), card_of(pool), pool, settings))
    body = {
        "model": "conductor", "messages": [{"role": "user", "content": "What is 6 times 7?"}],
        "podium": {"grader": "math"},  # answers that can be compared
        "stream": stream,
    }  # fmt: skip

    async def request() -> int:
        transport = httpx.ASGITransport(app.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            reply = await client.post("/v1/chat/completions", json=body)
        app.engine.close()
        return reply.status_code

    assert asyncio.run(request()) == 200
    assert len(paths) >= 2
    path = longest(paths, lambda code: code.co_qualname in ROUTES)
    assert len(path) <= MOST, path


class Nowhere:
    """A source without versions, which a server that already has one does not ask."""

    def find_current(self) -> str | None:
        return None

    def explain_missing(self) -> str:
        return "there is no champion"

    def fetch_files(self, version: str) -> Any:
        raise AssertionError(version)
