"""What tests of pages share: `podium dev` of a checkout of their own, Debian's chromium, a tab that keeps pictures.

`make browser` runs them and keeps the screenshots; `PODIUM_SCREENSHOTS` names their folder.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import pytest

from ops.core.workspace import Workspace
from tests.command import PODIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import Page

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_S = 300.0
"""How long a server may take to start and a page to show what it should, on a busy machine."""


class Served(NamedTuple):
    """A checkout and where its two servers listen."""

    workspace: Workspace
    dagster: str
    mlflow: str


class Tab(NamedTuple):
    """A page of a browser without memory, and the folder of its pictures."""

    page: Page
    pictures: Path

    def visit(self, url: str) -> None:
        """Go to `url`, whose server may be starting still."""
        from playwright.sync_api import Error

        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.page.goto(url)
                return
            except Error as error:
                if "net::ERR_" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def shoot(self, name: str) -> None:
        self.page.wait_for_timeout(3000)  # for what is still being drawn
        self.page.screenshot(path=self.pictures / f"{name}.png")


@pytest.fixture(scope="session")
def serve() -> Callable[[Workspace], AbstractContextManager[Served]]:
    """`podium dev` in a checkout, ended by Ctrl-C, which has to end it well."""
    return serving


@contextmanager
def serving(workspace: Workspace) -> Iterator[Served]:
    """Both servers of a checkout."""
    log = workspace.root.with_name("dev.log")
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [*PODIUM, "dev"],
            cwd=workspace.root,
            env=environment | {"PODIUM_ROOT": str(workspace.root)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(urls := dict(re.findall(r"^(Dagster|MLflow) +(http://\S+)$", log.read_text(), re.MULTILINE))) < 2:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield Served(workspace, urls["Dagster"], urls["MLflow"])
        assert process.poll() is None, log.read_text()
        assert len(log.read_text().splitlines()) <= 5, "what the servers and the runs print is in files"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0, log.read_text()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """A browser for the tests of a file: while Playwright is in use, nothing else in this process can use asyncio."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        yield started
        started.close()


@pytest.fixture
def tab(chromium: Chromium, tmp_path: Path) -> Iterator[Tab]:
    """A tab of its own for each test."""
    with opened(chromium, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def first_tab(chromium: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """For what happens before the tests of a file."""
    with opened(chromium, tmp_path_factory.mktemp("pictures")) as made:
        yield made


@contextmanager
def opened(chromium: Chromium, folder: Path) -> Iterator[Tab]:
    """Closed, it must have asked this machine alone, and none of its scripts may have failed. Pictures go to `folder`,
    unless another is named."""
    pictures = Path(os.environ.get("PODIUM_SCREENSHOTS") or folder)
    pictures.mkdir(parents=True, exist_ok=True)
    asked: set[str] = set()
    errors: list[str] = []
    with chromium.new_context(viewport={"width": 1600, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("request", lambda request: asked.add(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield Tab(page, pictures)
    # What a page makes for itself (blob:, data:) has no host.
    assert {host for url in asked if (host := urlsplit(url).hostname)} == {"127.0.0.1"}
    assert errors == []
