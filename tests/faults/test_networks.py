"""A call that breaks on its way: the message says what it was and what to do, and nothing is booked that nobody did."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ops.core.errors import WorkerUnreachable
from ops.workers.failures import MAX_WAIT_S
from tests.faults.clients import MakeClient
from tests.faults.remote import ask, remote_worker
from tests.faults.wire import certificate, http, replying

pytestmark = pytest.mark.usefixtures("litellm_at_hand")

MODELS = ("openai/some-model", "hosted_vllm/some-model", "anthropic/some-model", "gemini/some-model", "ollama_chat/m")
HTML = b"<!DOCTYPE html>\n<html><title>Sign in</title></html>"


def reset(wire: socket.socket) -> None:
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(_: socket.socket) -> None:
    return


API = "api_base must be the address of the API"
REPLIES: dict[str, tuple[Any, str, str, bool]] = {
    "an HTML page": (http("200 OK", HTML, "text/html"), "sends an HTML page with status 200", API, False),
    "an HTML page called JSON": (http("200 OK", HTML), "sends an HTML page with status 200", API, False),
    "a text": (http("200 OK", b"Ollama is running", "text/plain"), "sends text that is no JSON", API, True),
    "an empty body": (http("200 OK", b""), "sends an empty body", API, True),
    "another shape": (http("200 OK", {"result": 1, "took": 2}), "sends JSON of another form", API, True),
    "half a JSON": (http("200 OK", b'{"choices": [{"me'), "sends JSON that breaks off", "read the server's log", True),
    "a reset": (reset, "reset the connection", "read the server's log", True),
    "no answer": (hang_up, "closed the connection without an answer", "read the server's log", True),
    "half a body": (http("200 OK", b"{}", content_length="99"), "the reply broke off", "read the server's log", True),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak HTTP", "Correct the port", False),
    "a redirect nowhere": (http("302 Found", b""), "redirects (302)", "address of the API itself", False),
    "a redirect": (
        http("307 Temporary Redirect", b"", location="http://login.invalid/sso"), "under the name login.invalid",
        "Correct the host in api_base", False,
    ),
    "a proxy's account": (http("407 Proxy Authentication Required", HTML, "text/html"), "(407)", "HTTPS_PROXY", False),
    "503": (http("503 Service Unavailable", HTML, "text/html"), "503", "Wait, and run the same command again", False),
    "429": (http("429 Too Many Requests", {"error": {"message": "slow down"}}), "429", "Lower concurrency", False),
}  # fmt: skip
"""The reply, what is said about it, the remedy, and whether it may be billed."""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", REPLIES)
def test_what_came_back_is_named_with_its_remedy(make_client: MakeClient, name: str, model: str) -> None:
    reply, what, remedy, billed = REPLIES[name]
    client = make_client(cap_usd=1.0)
    with replying(reply) as (port, came):
        worker = _worker(f"http://127.0.0.1:{port}", model)
        with pytest.raises(WorkerUnreachable) as caught:
            ask(client, worker)
    assert what in caught.value.problem and remedy in caught.value.remedy
    assert str(caught.value) == f"{caught.value.problem}. {caught.value.remedy}"
    assert (client.ledger.total_usd("run") > 0, len(client.cache)) == (billed, 0)
    assert came


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Addresses at which no connection is made."""
    with ExitStack() as stack:
        free = socket.create_server(("127.0.0.1", 0))
        closed = free.getsockname()[1]
        free.close()
        queue = stack.enter_context(socket.socket())
        queue.bind(("127.0.0.1", 0))
        queue.listen(0)
        for _ in range(3):  # the queue of connections is full
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(queue.getsockname())
        _, own = certificate(tmp_path, "localhost")
        tls, _ = stack.enter_context(replying(http("200 OK", {}), own))
        plain, _ = stack.enter_context(replying(http("400 Bad Request", b"")))
        yield {
            "a closed port": f"http://127.0.0.1:{closed}",
            "no such host": "http://no-such-host.invalid",
            "a full queue": f"http://127.0.0.1:{queue.getsockname()[1]}",
            "a certificate of its own": f"https://localhost:{tls}",
            "TLS to a plain port": f"https://localhost:{plain}",
        }


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("place", "what", "remedy"),
    [
        ("a closed port", "nothing listens at 127.0.0.1:", "Start the server, or correct api_base"),
        ("no such host", "no host is found under the name no-such-host.invalid", "Correct the host in api_base"),
        ("a certificate of its own", "is signed by an authority that this machine does not know", "SSL_CERT_FILE"),
        ("TLS to a plain port", "does not speak TLS", "Write http:// in api_base"),
    ],
)
def test_what_broke_the_connection_is_named_with_its_remedy(
    make_client: MakeClient, places: dict[str, str], place: str, what: str, remedy: str, model: str
) -> None:
    _breaks(make_client, places[place], what, remedy, model)


def test_a_time_out_while_connecting_is_named_with_its_remedy(make_client: MakeClient, places: dict[str, str]) -> None:
    """LiteLLM passes the time-out of a connection on to OpenAI's library alone."""
    what = "no connection to 127.0.0.1:"
    _breaks(make_client, places["a full queue"], what, "raise connect_timeout_s", "openai/some-model")


def _breaks(make_client: MakeClient, address: str, what: str, remedy: str, model: str) -> None:
    client = make_client(cap_usd=1.0)
    with pytest.raises(WorkerUnreachable) as caught:
        ask(client, _worker(address, model))
    assert what in caught.value.problem and remedy in caught.value.remedy
    assert (client.ledger.total_usd("run"), len(client.cache)) == (0, 0)


ASK = """
import sys
from pathlib import Path
from ops.core.errors import PodiumError
from tests.faults.remote import ask, client_in
from tests.faults.test_networks import _worker
for address in sys.argv[2:]:
    try:
        print(ask(client_in(Path(sys.argv[1])), _worker(address, "openai/some-model")).text)
    except PodiumError as error:
        print(error)
"""


def test_the_remedy_of_an_unknown_authority_works(tmp_path: Path) -> None:
    """With SSL_CERT_FILE, a call through a certificate of one's own is made; other faults of a certificate remain."""
    made = [certificate(tmp_path, "localhost"), certificate(tmp_path, "other.example")]
    made.append(certificate(tmp_path / "old", "localhost", days=-1))
    known = tmp_path / "known.pem"
    known.write_bytes(b"".join(file.read_bytes() for file, _ in made))
    choices = [{"index": 0, "message": {"role": "assistant", "content": "It is 4."}, "finish_reason": "stop"}]
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "some-model", "choices": choices}
    with ExitStack() as stack:
        reply = http("200 OK", whole | {"usage": usage})
        ports = [stack.enter_context(replying(reply, context))[0] for _, context in made]
        ended = subprocess.run(
            [sys.executable, "-c", ASK, str(tmp_path), *(f"https://localhost:{port}" for port in ports)],
            env=os.environ | {"SSL_CERT_FILE": str(known)}, capture_output=True, text=True, timeout=110, check=True,
        )  # fmt: skip
    own, other, old = ended.stdout.splitlines()
    assert own == "It is 4."
    assert "is made out to another name" in other and "Write the host in api_base that the certificate names" in other
    assert "has expired" in old and "Renew it, or set this machine's clock" in old


def _worker(address: str, model: str, **settings: Any) -> Any:
    base = f"{address}/v1" if model.startswith(("openai", "hosted_vllm")) else address
    usual = {"retries": 0, "timeout_s": 20.0, "connect_timeout_s": 2.0, "price": {"input": 1.0, "output": 2.0}}
    return remote_worker("http://unused", model=model, api_base=base, **usual | settings)


GOOGLE = {
    "error": {
        "code": 429, "message": "You exceeded your current quota.", "status": "RESOURCE_EXHAUSTED",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "PerMinute"}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17s"},
        ],
    }
}  # fmt: skip


@pytest.mark.parametrize("model", ["gemini/some-model", "openai/some-model", "hosted_vllm/some-model"])
@pytest.mark.parametrize(
    ("status", "body", "headers", "seconds"),
    [
        ("429 Too Many Requests", GOOGLE, {}, 17.0),
        ("503 Service Unavailable", GOOGLE, {}, 17.0),
        ("429 Too Many Requests", [GOOGLE], {}, 17.0),
        ("429 Too Many Requests", GOOGLE, {"retry_after": "2"}, 2.0),
        ("429 Too Many Requests", {"error": {"message": "slow"}}, {"retry_after_ms": "1500"}, 1.5),
        ("429 Too Many Requests", {"error": {"details": [{"retryDelay": "99999999s"}]}}, {}, MAX_WAIT_S),
        ("429 Too Many Requests", {"error": {"message": "slow", "details": [{"retryDelay": "soon"}]}}, {}, None),
        ("429 Too Many Requests", {"error": {"message": "slow"}}, {}, None),
    ],
)
def test_a_wait_in_the_body_is_a_wait_as_of_a_header(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, model: str, status: str, body: object,
    headers: dict[str, str], seconds: float | None,
) -> None:  # fmt: skip
    """The pause of the worker's queue is noted in place of being waited for."""
    from ops.workers.queue import WorkerQueue

    noted: list[float | None] = []
    monkeypatch.setattr(WorkerQueue, "record_rate_limit", lambda _, sent, after, backoff: noted.append(after))
    with replying(http(status, body, **headers)) as (port, _), pytest.raises(WorkerUnreachable):
        ask(make_client(cap_usd=1.0), _worker(f"http://127.0.0.1:{port}", model))
    assert noted == ([] if seconds is None and status[0] == "5" else [seconds])
