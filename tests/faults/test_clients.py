"""The server among clients that misbehave: bad text, huge questions, hang-ups, slow headers, wrong types."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import psutil
import pytest

from tests.integration.test_serving import ROOT, WORKFLOW, two_workers
from tests.serving.misbehaving import Misbehaving
from tests.serving.running import Running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MIB = 2**20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("clients"), two_workers())
    running.settings().version("1", WORKFLOW, seconds=0.05, prompt_limit=10_000).champion("1")
    with running:
        yield running


@pytest.mark.long
def test_five_misbehaving_clients_do_not_disturb_195_good_ones(server: Running) -> None:
    process = psutil.Process(server.process.pid)

    async def good(client: openai.AsyncOpenAI, number: int) -> str:
        question = [{"role": "user", "content": f"What is ${number} + 1000$?"}]
        reply = await client.chat.completions.create(model="conductor", messages=question)  # type: ignore[arg-type]
        return reply.choices[0].message.content or ""

    async def all_good(first: int) -> list[bool]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
        ) as client:
            texts = await asyncio.gather(*(good(client, first + n) for n in range(195)))
        return [str(first + n + 1000) in text for n, text in enumerate(texts)]

    asyncio.run(all_good(0))  # the process's own needs
    before = process.memory_info().rss
    with Misbehaving(server.url) as misbehaving:
        answers = asyncio.run(all_good(1000))
        health = httpx.get(f"{server.url}/health", trust_env=False).json()
    assert answers == [True] * 195
    assert health == {"status": "ready"}
    assert process.memory_info().rss - before < 200 * MIB
    assert misbehaving.seen == {
        "lone_surrogate": {"400 invalid_value messages[0].content"},
        "huge": {"400 context_length_exceeded messages"},
        "wrong_types": {"400 invalid_value podium.budget_usd"},
        "hang_up": {"left"},
        "slow_headers": {"ended"},
    }
    end = time.monotonic() + 60
    while server.metric("podium_requests_total", status="499") < 2:
        assert time.monotonic() < end, "hang-ups are counted as such"
    assert server.metric("podium_requests_total", status="500") == 0
    assert "Traceback" not in server.text and len(server.text) < 5_000


@pytest.mark.long
@pytest.mark.parametrize(
    ("connections", "open_files"), [(400, 256), pytest.param(10_000, 1024, marks=pytest.mark.soak)]
)
def test_more_slow_connections_than_open_files(tmp_path: Path, connections: int, open_files: int) -> None:
    command = f"ulimit -n {open_files}; exec {sys.executable} -m tests.serving.server {tmp_path}"
    running = Running(tmp_path, two_workers(), ["bash", "-c", command]).settings()
    running.version("1", WORKFLOW).champion("1")
    with running:
        slow = subprocess.Popen(
            [sys.executable, "-m", "tests.serving.slow_clients", running.url, str(connections)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert slow.stdin and slow.stdout
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=5, timeout=120)
        try:
            answers, opened = 0, ""
            reading = threading.Thread(target=lambda: lines.append(slow.stdout.readline()))  # type: ignore[union-attr]
            lines: list[str] = []
            reading.start()
            while reading.is_alive() or answers < 20:
                reply = client.chat.completions.create(
                    model="conductor", messages=[{"role": "user", "content": f"What is ${answers} + 70$?"}]
                )
                assert str(answers + 70) in (reply.choices[0].message.content or "")
                answers += 1
            [opened] = lines
            assert opened == f"{connections} were opened\n" and slow.poll() is None
            files = psutil.Process(running.process.pid).num_fds()
            assert files < open_files
            assert httpx.get(f"{running.url}/health", trust_env=False).json() == {"status": "ready"}
        finally:
            slow.communicate(timeout=60)
        assert "Traceback" not in running.text and len(running.text) < 5_000
