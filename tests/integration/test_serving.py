"""OpenAI's own client with the server in a separate process and embedded workers."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from ops.config import Pool, load_pool
from ops.core.errors import PodiumError
from ops.serving.http import server as http_server
from ops.serving.http.access import TOKENS_VARIABLE
from ops.workflow.grammar import Step, Workflow
from tests.command import podium
from tests.serving.running import Running

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-that-is-long-enough"
WORKFLOW = Workflow((Step(0, "Compute."), Step(0, "Check it.", "all"))).render()
SIX_BY_SEVEN = r"What is $6 \cdot 7$?"


def two_workers() -> Pool:
    whole = load_pool(ROOT / "config", "quickstart")
    return whole.model_copy(update={"workers": (whole.worker("algebraist"), whole.worker("guesser"))})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("serving"), two_workers(), **{TOKENS_VARIABLE: TOKEN})
    running.settings(follow_s=0.2).version("1", WORKFLOW, prompt_limit=10_000).champion("1")
    with running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=TOKEN, max_retries=0, timeout=120)


def request(text: str) -> dict[str, Any]:
    return {"model": "conductor", "messages": [{"role": "user", "content": text}]}


def ask(client: openai.OpenAI, text: str = SIX_BY_SEVEN, **more: Any) -> Any:
    return client.chat.completions.create(**request(text), **more)


def test_a_chat_completion_with_usage_and_cost(client: openai.OpenAI) -> None:
    reply = ask(client)
    assert "42" in reply.choices[0].message.content and reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0
    account = reply.model_extra["podium"]
    assert account["version"] == "1" and account["cost_usd"] > 0 and "workflow" not in account
    assert reply._request_id.startswith("req_")


def test_the_workflow_on_request(client: openai.OpenAI) -> None:
    account = ask(client, extra_body={"podium": {"workflow": True}}).model_extra["podium"]
    assert account["workflow"] == WORKFLOW and [step["worker"] for step in account["steps"]] == ["algebraist"] * 2


def test_a_stream_gives_steps_as_they_end_and_then_the_answer(client: openai.OpenAI) -> None:
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    shown = [next(iter((chunk.model_extra or {}).get("podium", {})), None) for chunk in chunks]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "42" in text and shown[1:3] == ["step", "step"] and chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.total_tokens > 0 and chunks[-1].choices == []


def test_a_response_and_its_stream(client: openai.OpenAI) -> None:
    reply = client.responses.create(model="conductor", input=SIX_BY_SEVEN)
    assert "42" in reply.output_text and reply.status == "completed"
    assert [item.type for item in reply.output] == ["reasoning", "reasoning", "message"]
    with client.responses.stream(model="conductor", input=SIX_BY_SEVEN) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text == reply.output_text and final.usage.total_tokens == reply.usage.total_tokens
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert kinds.index("response.output_item.done") < kinds.index("response.output_text.delta")


def test_a_vote_over_several_workflows(client: openai.OpenAI) -> None:
    more = {"podium": {"vote": {"workflows": 3, "agree": 2}, "grader": "math"}}
    reply = ask(client, extra_body=more)
    assert "42" in reply.choices[0].message.content
    assert reply.model_extra["podium"]["vote"] == {"workflows": 2, "agreed": 2}
    chunks = list(ask(client, stream=True, extra_body=more))
    shown = [next(iter((chunk.model_extra or {}).get("podium", {})), None) for chunk in chunks]
    assert shown.count("step") == 4
    assert [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content] == [
        reply.choices[0].message.content
    ]
    with client.responses.stream(model="conductor", input=SIX_BY_SEVEN, extra_body=more) as stream:
        final = [*stream][-1].response  # type: ignore[union-attr]
    assert [item.type for item in final.output] == ["reasoning"] * 4 + ["message"]


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["conductor"]
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.models.retrieve("gpt-5")


@pytest.mark.parametrize(
    ("changed", "error", "code", "parameter"),
    [
        ({"model": "gpt-5"}, openai.NotFoundError, "model_not_found", "model"),
        ({"n": 2}, openai.BadRequestError, "invalid_value", "n"),
        ({"messages": []}, openai.BadRequestError, "invalid_value", "messages"),
        ({"extra_body": {"podium": {"forbidden": ["nobody"]}}}, openai.BadRequestError, "invalid_value",
         "podium.forbidden"),
        ({"max_tokens": 5}, openai.BadRequestError, "invalid_value", "max_tokens"),
        ({"messages": [{"role": "user", "content": "Why? " * 4000}]}, openai.BadRequestError,
         "context_length_exceeded", "messages"),
        ({"messages": [{"role": "user", "content": "POISON"}]}, openai.InternalServerError, "internal_error", None),
        ({"extra_body": {"podium": {"budget_usd": 0.0}}}, openai.APIStatusError, "budget_exceeded",
         "podium.budget_usd"),
    ],
)  # fmt: skip
def test_errors_have_openais_shape(
    client: openai.OpenAI, changed: dict[str, Any], error: type[openai.APIStatusError], code: str, parameter: str | None
) -> None:
    with pytest.raises(error) as raised:
        client.chat.completions.create(**request(r"What is $8 \cdot 9$?") | changed)
    assert (raised.value.code, raised.value.param) == (code, parameter)  # type: ignore[attr-defined]
    assert raised.value.request_id
    assert raised.value.response.headers.get("x-should-retry") == ("false" if raised.value.status_code in (402, 500)
                                                                   else None)  # fmt: skip


def test_an_error_in_a_stream_is_raised_by_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="may spend 0 USD"):
        list(ask(client, "What is $8 \\cdot 11$?", stream=True, extra_body={"podium": {"budget_usd": 0.0}}))


def test_only_with_the_token(server: Running) -> None:
    stranger = openai.OpenAI(base_url=f"{server.url}/v1", api_key="another-token-of-some-length", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        ask(stranger)
    for path in ("/metrics", "/v1/models", "/v1/responses", "/docs"):
        assert httpx.get(server.url + path, trust_env=False).status_code == 401, path
    assert httpx.get(f"{server.url}/health", trust_env=False).json() == {"status": "ready"}


def test_bodies_that_are_not_requests(server: Running) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    question = {"model": "conductor", "input": [{"role": "user", "content": SIX_BY_SEVEN}]}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=120) as http:
        url = "/v1/chat/completions"
        replies = [
            http.post(url, content=b"{", headers={"content-type": "application/json"}),
            http.post(url, content=b"{}", headers={"content-type": "text/plain"}),
            http.post(url, content=b" " * 1_000_001, headers={"content-type": "application/json"}),
            http.get(url),
            http.get("/v1/embeddings"),
            http.post(url, content=b'{"a": NaN}', headers={"content-type": "application/json"}),
            *(http.get(path) for path in ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect")),
            *(http.get(path) for path in ("/invocations", "/responses")),  # of `mlflow models serve`
            http.post("/v1/responses", json=question | {"input": "Why? " * 4000}),
            http.post("/v1/responses", json=question | {"podium": {"grader": "nobody"}}),
            http.get("/v1/responses"),
            http.post("/v1/responses", json=question | {"podium": {"forbidden": ["nobody"]}}),
        ]
        whole = http.post("/v1/responses", json=question).json()
        named = http.get("/health", headers={"x-request-id": "my-own-id"})
        unnamed = http.get("/health", headers={"x-request-id": "bad id, really"})
    statuses = [reply.status_code for reply in replies]
    assert statuses == [400, 415, 413, 405, 404, 400, 404, 404, 404, 404, 404, 404, 400, 400, 405, 400]
    refused = replies[-1].json()["error"]
    assert (refused["code"], refused["param"]) == ("invalid_value", "podium.forbidden")
    assert "42" in whole["output"][-1]["content"][0]["text"]
    assert all(reply.json()["error"]["code"] and reply.headers["x-request-id"] for reply in replies)
    assert named.headers["x-request-id"] == "my-own-id" and unnamed.headers["x-request-id"].startswith("req_")


def test_a_working_version_takes_the_place_and_a_broken_one_does_not(tmp_path: Path) -> None:
    running = Running(tmp_path, two_workers()).settings(follow_s=0.1, at_once=64)
    for name, text in (("1", WORKFLOW), ("2", Workflow.single(0).render()), ("mute", "nothing")):
        running.version(name, text, seconds=0.02)
    (running.version("torn", WORKFLOW).folder / "versions" / "torn" / "podium.json").write_text("{", encoding="utf-8")
    versions: list[str] = []
    going = threading.Event()
    with running.champion("1"):
        url = f"{running.url}/v1/chat/completions"

        def ask_on(start: int) -> None:
            with httpx.Client(trust_env=False, timeout=120) as http:
                number = start
                while not going.is_set():
                    body = request(f"What is ${number} + {start}$?")
                    versions.append(http.post(url, json=body).raise_for_status().json()["podium"]["version"])
                    number += 100

        with ThreadPoolExecutor(8) as threads:
            askers = [threads.submit(ask_on, start) for start in range(8)]
            try:
                for version in ("1", "2"):
                    running.champion(version).until_version(version)
                    while version not in versions:
                        assert running.process.poll() is None and not any(asker.done() for asker in askers)
                        time.sleep(0.01)
                for broken in ("torn", "mute"):
                    before = running.metric("podium_swaps_total", outcome="failed")
                    running.champion(broken)
                    while running.metric("podium_swaps_total", outcome="failed") == before:
                        assert running.process.poll() is None
                    assert running.version_in_service() == "2"
                (running.folder / "current").unlink()  # the registry is unreachable
                while running.metric("podium_swaps_total", outcome="unreachable") == 0:
                    assert running.process.poll() is None
                running.champion("1").until_version("1")
            finally:
                going.set()
            for asker in askers:
                asker.result(240)  # nothing was dropped: each response was a 200
        assert set(versions) == {"1", "2"}
        assert running.metric("podium_requests_total", status="200", route="/v1/chat/completions") == len(versions)


def test_requests_beyond_all_places_are_refused_with_retry_after(tmp_path: Path) -> None:
    running = Running(tmp_path, two_workers()).settings(at_once=2, waiting=2, batch=1)
    running.version("1", WORKFLOW, seconds=0.5).champion("1")
    with running:

        def post(number: int) -> httpx.Response:
            body = request(f"What is ${number} + 1$?")
            return httpx.post(f"{running.url}/v1/chat/completions", json=body, trust_env=False, timeout=120)

        with ThreadPoolExecutor(12) as threads:
            replies = list(threads.map(post, range(12)))
        refused = [reply for reply in replies if reply.status_code == 429]
        assert len(replies) - len(refused) == sum(reply.status_code == 200 for reply in replies) >= 4
        assert refused and all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        assert {reply.json()["error"]["code"] for reply in refused} == {"rate_limit_exceeded"}
        patient = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=10, timeout=120)
        with ThreadPoolExecutor(8) as threads:
            texts = threads.map(lambda n: ask(patient, f"What is ${n} + 2$?").choices[0].message.content, range(8))
            assert [str(n + 2) in (text or "") for n, text in enumerate(texts)] == [True] * 8


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_requests_in_flight_finish_before_the_server_ends(tmp_path: Path, how: signal.Signals) -> None:
    running = Running(tmp_path, two_workers()).settings()
    running.version("1", WORKFLOW, seconds=1.5).champion("1")
    with running, ThreadPoolExecutor(1) as threads:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0, timeout=120)
        asked = threads.submit(ask, client)
        while running.metric("podium_in_flight") == 0:
            assert not asked.done()
        assert running.end(how) == 0
        assert "42" in asked.result(240).choices[0].message.content
    assert "Traceback" not in running.text


def test_a_deadline_ends_a_request_and_not_the_server(tmp_path: Path) -> None:
    running = Running(tmp_path, two_workers()).settings(stalled_s=0.3)
    running.version("1", WORKFLOW, seconds=1.0).champion("1")
    with running:
        health = lambda: httpx.get(f"{running.url}/health", trust_env=False)  # noqa: E731
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", timeout=120)
        with pytest.raises(openai.APIStatusError) as raised:
            ask(client, extra_body={"podium": {"deadline_s": 0.2}})
        assert (raised.value.status_code, raised.value.code) == (504, "deadline_exceeded")
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(ask, client, r"What is $6 \cdot 9$?")  # not the one that is written already
            while (reply := health()).status_code == 200:  # until the writer has finished no batch for too long
                assert not asked.done()
            assert reply.json() == {"status": "stalled"}
        assert health().status_code == 200
        assert "42" in ask(client).choices[0].message.content
        assert running.metric("podium_requests_total", status="504") == 1, "asked once: it would end the same"


def test_serving_beyond_loopback_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TOKENS_VARIABLE, raising=False)
    assert podium("serve", "--host", "0.0.0.0") == 1
    assert "can be reached from other machines" in (error := capsys.readouterr().err) and "openssl rand" in error


def test_too_few_open_files_are_refused_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "raise_open_file_limit", lambda: 255)
    with pytest.raises(PodiumError, match="may open 255 files, and serving needs 256"):
        http_server.run_server(None, "127.0.0.1", 0)  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PodiumError, match=f"127.0.0.1:{port}: .*--port"):
            http_server.run_server(None, "127.0.0.1", port)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.0, pytest.param(30.0, marks=pytest.mark.soak)])
def test_two_hundred_at_once(tmp_path: Path, seconds: float) -> None:
    running = Running(tmp_path, load_pool(ROOT / "config", "quickstart")).settings()
    texts = [Workflow((Step(n % 9, "Solve."), Step((n + 4) % 9, "Check it.", "all"))).render() for n in range(9)]
    running.version("1", *texts, seconds=0.05).champion("1")

    async def ask_on(http: httpx.AsyncClient, asker: int) -> list[int]:
        statuses, end = [], time.monotonic() + seconds
        while time.monotonic() < end or not statuses:
            body = request(f"What is ${asker} + {len(statuses)}$?")
            statuses.append((await http.post("/v1/chat/completions", json=body)).status_code)
        return statuses

    async def all_at_once() -> list[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=running.url, limits=limits, timeout=240, trust_env=False) as http:
            return [status for each in await asyncio.gather(*(ask_on(http, n) for n in range(200))) for status in each]

    with running:
        statuses = asyncio.run(all_at_once())
        assert set(statuses) == {200} and len(statuses) >= 200
        assert running.metric("podium_answers_total", status="answered") == len(statuses)
        assert running.metric("podium_fallbacks_total") == 0
        assert running.metric("podium_batch_count") < len(statuses), "some are written for together"
