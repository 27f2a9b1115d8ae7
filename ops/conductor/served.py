"""A Conductor whose workflows a vLLM server generates: this process needs no GPU and no weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ops.conductor.chats import ChatCodec, ChatWriter
from ops.conductor.policy import Completion, locate_weights, policy_key, weights_dtype
from ops.config import Serve
from ops.core.errors import ConfigError, PodiumError
from ops.core.messages import Message
from ops.core.processes import raise_open_file_limit
from ops.core.workspace import Workspace
from ops.local_models.vllm_server import count_gpus, serve_model

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "VLLM_API_KEY"
"""The environment variable with the server's key, if it has one; vLLM reads the same."""
MAX_CONCURRENT_REQUESTS = 256
"""Requests in flight for each replica: what vLLM generates together by default, or less."""
AUTOMATIC_LENGTH = "-1"
"""For vLLM's `--max-model-len`: the model's own limit, or less if the memory is too small for it."""
MAX_ATTEMPTS = 4
MODELS_TIMEOUT_S = 5.0
"""Seconds within which a server must name its model."""
COMPLETION_TIMEOUT_S = 1800.0
"""Seconds within which it must write one completion, including its queue."""


class WriterUnreachable(PodiumError):
    """The server does not answer, or not as vLLM does."""


class ServedModel(NamedTuple):
    """One model of a server."""

    name: str
    root: str
    """The folder or model that it was loaded from, if the server reports it."""
    max_tokens: int | None
    """Tokens of a sequence."""


def list_served_models(url: str) -> list[ServedModel]:
    """Return what a server serves. Raises `WriterUnreachable`."""
    import httpx

    try:
        with _open_client(url, MODELS_TIMEOUT_S) as client:
            rows = client.get("/v1/models").raise_for_status().json()["data"]
            return [ServedModel(str(row["id"]), str(row.get("root") or ""), row.get("max_model_len")) for row in rows]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise WriterUnreachable(f"{url}: no vLLM server answers there ({error or type(error).__name__})") from None


def build_serve_command(model: str, name: str, dtype: str | None = None) -> str:
    """Return the command that serves a policy under the name that requests use."""
    return f"vllm serve {model} --served-model-name {name}{f' --dtype {dtype}' if dtype else ''}"


class ServedConductor(ChatWriter):
    """A policy that generates workflows on a server."""

    def __init__(self, url: str, model: str, chats: ChatCodec) -> None:
        super().__init__(chats)
        self.url, self._model = url, model
        self._max_concurrent = MAX_CONCURRENT_REQUESTS
        self._server = ExitStack()

    @classmethod
    def load(cls, folder: Path, url: str, setting: str, key: str | None = None) -> ServedConductor:
        """Connect to the server at `url`, which must serve the policy in `folder`: under its key, or from that folder.

        `key`: the policy's key if it differs from the folder's name. Raises `DataError`, and `ConfigError` that names
        `setting` if no server answers or it serves another model.
        """
        chats, key = ChatCodec.load(folder), key or policy_key(folder)
        place, _ = locate_weights(folder, chats.card)
        remedy = (
            f"Start it with `{build_serve_command(place, key, weights_dtype(chats.card))}`, or write `transformers`"
        )
        try:
            models = list_served_models(url)
        except WriterUnreachable as error:
            raise ConfigError(f"recipe {chats.card.recipe!r}", setting, str(error), remedy) from None
        names = {key, place, str(Path(place).resolve())}
        mine = next((model for model in models if names & {model.name, model.root}), None)
        if mine is None:
            others = ", ".join(model.name for model in models) or "nothing"
            problem = f"{url} serves {others}, not policy {key}"
            raise ConfigError(f"recipe {chats.card.recipe!r}", setting, problem, remedy)
        lengths = [length for length in (chats.context, mine.max_tokens) if length]
        return cls(url, mine.name, replace(chats, context=min(lengths, default=None)))

    @classmethod
    def start(cls, folder: Path, workspace: Workspace, setting: str, key: str | None = None) -> ServedConductor:
        """Start a vLLM server on this machine for the policy in `folder`, in the policy's own precision; `close` ends
        it.

        `key`: if it is not the folder's name. Raises `DataError`, `WorkerUnreachable` with the end of the server's log,
        and `ConfigError` that names `setting` if vLLM cannot read the policy, or the Python that lacks vLLM.
        """
        chats, key = ChatCodec.load(folder), key or policy_key(folder)
        place, given = locate_weights(folder, chats.card)
        if "gguf_file" in given:
            problem = f"vLLM cannot load {place}, because its weights are in GGUF format"
            raise ConfigError(f"recipe {chats.card.recipe!r}", setting, problem, "Write `transformers`")
        revision = ("--revision", given["revision"]) if "revision" in given else ()
        options = ("--max-model-len", AUTOMATIC_LENGTH, "--generation-config", "vllm", *revision)
        serve = Serve.model_validate({"model_path": place, "dtype": weights_dtype(chats.card), "args": options})
        with ExitStack() as stack:
            conductor = cls.load(folder, stack.enter_context(serve_model(key, serve, workspace)), setting, key)
            conductor._server = stack.pop_all()
        conductor._max_concurrent = MAX_CONCURRENT_REQUESTS * max(1, count_gpus())
        raise_open_file_limit()  # a request is a connection
        return conductor

    def _complete(
        self, prompts: Sequence[Sequence[Message]], temperature: float, seed: int, longest: int
    ) -> list[Completion]:
        """Raises `WriterUnreachable`."""
        tokens = self._chats.encode_prompts(prompts, longest)
        bodies = [
            {"prompt": prompt, **self._chats.sampling_request(prompt, temperature, seed, longest)} for prompt in tokens
        ]
        with (
            _open_client(self.url, COMPLETION_TIMEOUT_S, self._max_concurrent) as client,
            ThreadPoolExecutor(self._max_concurrent) as threads,
        ):
            asked = [threads.submit(self._request_completion, client, body) for body in bodies]
            try:
                written = [each.result() for each in asked]
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
        return self._chats.decode_completions(tokens, written)

    def _request_completion(self, client: httpx.Client, asked: dict[str, Any]) -> list[int]:
        import httpx
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

        body = {"model": self._model, "return_token_ids": True, **asked}
        retrying = Retrying(
            stop=stop_after_attempt(MAX_ATTEMPTS), wait=wait_exponential_jitter(max=20),
            retry=retry_if_exception(_is_transient), reraise=True,
        )  # fmt: skip
        try:
            reply = retrying(lambda: client.post("/v1/completions", json=body).raise_for_status())
            tokens = reply.json()["choices"][0]["token_ids"]
        except httpx.HTTPStatusError as error:
            said = error.response.text[:500]
            raise WriterUnreachable(f"{self.url} refuses to write ({error.response.status_code}): {said}") from None
        except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
            raise WriterUnreachable(f"{self.url} does not write any more ({error or type(error).__name__})") from None
        if tokens is None:
            raise WriterUnreachable(f"{self.url} gives no tokens back: it has to be a vLLM server of 0.11 or later")
        return list(tokens)

    def close(self) -> None:
        """End the server that `start` started; any other one stays."""
        self._server.close()


def _is_transient(error: BaseException) -> bool:
    """Return whether an error may be transient."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in (429, 502, 503, 504)
    return isinstance(error, httpx.TransportError)


def _open_client(url: str, seconds: float, at_once: int = 1) -> httpx.Client:
    import httpx

    key = os.environ.get(KEY_VARIABLE)
    return httpx.Client(
        base_url=url.removesuffix("/").removesuffix("/v1"),
        timeout=httpx.Timeout(seconds, connect=MODELS_TIMEOUT_S),
        limits=httpx.Limits(max_connections=at_once),
        headers={"Authorization": f"Bearer {key}"} if key else {},
        # A proxy named in the environment does not know this machine's ports.
        trust_env=urlsplit(url).hostname not in ("127.0.0.1", "localhost"),
    )
