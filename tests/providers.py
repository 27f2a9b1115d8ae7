"""Providers simulated on loopback HTTP: the wire formats of OpenAI, Anthropic, Gemini, DeepInfra and an Ollama server,
validated, limited and billed.

LiteLLM reaches them by its own variables (`Provider.environment`), so that the shipped pools are used unchanged; the
pool `ollama` names its server's address. Each counts calls, tokens and USD by itself.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple, Self

from ops.conductor.untrained import WRITE_SUBTASK
from ops.core.problem import Problem
from tests.faults.provider_errors import Sent

Kind = Literal["openai", "anthropic", "gemini", "deepinfra", "ollama"]
KEY = "a-key-of-the-simulation"
PRICES: dict[Kind, dict[str, tuple[float, float]]] = {
    "openai": {"gpt-6.1-sol": (2.0, 10.0), "gpt-5.6-luna": (0.2, 1.2), "gpt-6-luna": (0.1, 0.5)},
    "anthropic": {
        "claude-opus-5-5": (4.0, 20.0), "claude-sonnet-5-5": (2.0, 10.0), "claude-haiku-5-5": (0.1, 0.5),
    },
    "gemini": {
        "gemini-4-argon": (2.0, 10.0), "gemini-3.8-flash": (0.75, 3.75), "gemini-3.5-flash-lite": (0.3, 2.5),
        "gemini-3.1-flash-lite": (0.25, 1.5),
    },
    "deepinfra": {
        "zai-org/GLM-5.2": (0.75, 2.4), "openai/gpt-oss-120b-Turbo": (0.15, 0.6), "zai-org/GLM-4.7-Flash": (0.06, 0.4),
    },
    "ollama": {"qwen3:8b": (0.0, 0.0), "gemma3:4b": (0.0, 0.0), "llama3.2:3b": (0.0, 0.0)},
}  # fmt: skip
"""Model → USD per million prompt and completion tokens, which the provider bills."""
VARIABLES: dict[Kind, tuple[str, str, str]] = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_API_BASE", ""),
    "gemini": ("GEMINI_API_KEY", "GEMINI_API_BASE", ""),
    "deepinfra": ("DEEPINFRA_API_KEY", "DEEPINFRA_API_BASE", "/v1/openai"),
    "ollama": ("OLLAMA_API_KEY", "OLLAMA_API_BASE", ""),
}
"""The variables of the key and of the address, and the address's path."""
THINKING_TOKENS = 300
CHARACTERS_PER_TOKEN = 4
WORKFLOWS = (
    'model_id = [0]\nsubtasks = ["Solve the problem."]\naccess_list = [[]]',
    'model_id = [0, 1]\nsubtasks = ["Solve the problem.", "Check the answer."]\naccess_list = [[], "all"]',
)


class Refusal(NamedTuple):
    """An error reply that the provider sends instead of an answer."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = {}


class Asked(NamedTuple):
    """The parts of a request that all formats have."""

    model: str
    text: str
    most_tokens: int
    thinks: bool


@dataclass
class Bill:
    """The provider's own count."""

    calls: Counter[str] = field(default_factory=Counter)
    usd: float = 0.0
    refused: Counter[int] = field(default_factory=Counter)
    """Error replies by status."""


class Provider:
    """One provider. A context manager; `refuses` makes it answer every call, or those of one model, with an error."""

    def __init__(
        self, kind: Kind, problems: Iterable[Problem], *, latency_s: float = 0.3, per_second: int = 40
    ) -> None:
        """`problems`: the questions whose answers its models know, some models more of them than others. `per_second`:
        requests to each model before it sends 429."""
        self.kind, self.latency_s, self.bill = kind, latency_s, Bill()
        self.refuses: dict[str, Sent] = {}
        """Model ("" for all) → the error reply."""
        self._problems = sorted(problems, key=lambda problem: -len(problem.question))
        self._per_second, self._recent = per_second, {model: deque[float]() for model in PRICES[kind]}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which LiteLLM calls this provider."""
        key, address, path = VARIABLES[self.kind]
        return {key: KEY, address: f"http://127.0.0.1:{self._server.server_port}{path}"}

    def answer(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Refusal:
        """Answer one request; a success is a `Refusal` of status 200."""
        given = headers.get("x-api-key") or headers.get("x-goog-api-key") or headers.get("authorization", "")
        if given.removeprefix("Bearer ") != KEY and self.kind != "ollama":
            return self._counted(_ERRORS[self.kind]["key"])
        if self.kind == "ollama" and path == "/api/show":  # LiteLLM asks what the model can do
            return Refusal(200, {"template": "", "model_info": {}})
        asked = _READ[self.kind](path, headers, body)
        if isinstance(asked, str):
            return self._counted(_error(self.kind, 400, asked))
        if asked.model not in PRICES[self.kind]:
            return self._counted(_error(self.kind, 404, f"model: {asked.model} does not exist"))
        if sent := self.refuses.get(asked.model) or self.refuses.get(""):
            return self._counted(Refusal(sent.status, sent.body))
        if self._crowded(asked.model):
            return self._counted(_ERRORS[self.kind]["crowded"])
        time.sleep(self.latency_s)
        text = self._text(asked)
        prompt = 8 + len(asked.text) // CHARACTERS_PER_TOKEN
        thought = THINKING_TOKENS if asked.thinks else 0
        said = 1 + len(text) // CHARACTERS_PER_TOKEN
        price = PRICES[self.kind][asked.model]
        with self._lock:
            self.bill.calls[asked.model] += 1
            self.bill.usd += (prompt * price[0] + (thought + said) * price[1]) / 1e6
        return Refusal(200, _WRITE[self.kind](asked.model, text, prompt, said, thought))

    def _counted(self, refusal: Refusal) -> Refusal:
        with self._lock:
            self.bill.refused[refusal.status] += 1
        return refusal

    def _crowded(self, model: str) -> bool:
        with self._lock:
            recent, now = self._recent[model], time.monotonic()
            while recent and recent[0] < now - 1:
                recent.popleft()
            if len(recent) >= self._per_second:
                return True
            recent.append(now)
            return False

    def _text(self, asked: Asked) -> str:
        if WRITE_SUBTASK in asked.text:
            return f"I consider who is best.\n{WORKFLOWS[_draw('workflow', asked.text) < 0.5]}"
        problem = next((each for each in self._problems if each.question in asked.text), None)
        if problem is None:
            return "OK. Answer: 4"
        models = list(PRICES[self.kind])
        skill = 0.85 - 0.25 * models.index(asked.model) / len(models)
        right = _draw(asked.model, problem.key) < skill
        return f"Step by step: {'it follows from what is given. ' * 20}\n{_stated(problem, right)}"


def _draw(*parts: str) -> float:
    """A number in [0, 1) that depends on the texts alone."""
    return int.from_bytes(hashlib.sha256("\n".join(parts).encode()).digest()[:4]) / 2**32


def _stated(problem: Problem, right: bool) -> str:
    if problem.grader == "math":
        return f"\\boxed{{{problem.answer if right else '-98765'}}}"
    if problem.grader == "choice":
        wrong = "B" if problem.answer == "A" else "A"
        return f"Answer: {problem.answer if right else wrong}"
    return f"Answer: {problem.answer if right else 'unknown to me'}"


# ── what each format accepts ─────────────────────────────────────────────────


def _read_openai(path: str, _: Mapping[str, str], body: dict[str, Any]) -> Asked | str:
    if path != "/v1/chat/completions":
        return f"no such route: {path}"
    if any(not isinstance(message.get("content"), str) or not message["content"] for message in body["messages"]):
        return "Invalid type for 'messages[0].content'"
    return _read_chat(body, "max_completion_tokens", set(), "medium")


def _read_deepinfra(path: str, _: Mapping[str, str], body: dict[str, Any]) -> Asked | str:
    if path != "/v1/openai/chat/completions":
        return f"no such route: {path}"
    return _read_chat(body, "max_tokens", {"temperature"}, "high")


def _read_chat(body: dict[str, Any], limit: str, more: set[str], usual_effort: str) -> Asked | str:
    """The body of OpenAI's format: `limit` is the parameter of the most tokens, `more` what else is accepted."""
    if unknown := sorted(set(body) - {"model", "messages", limit, "reasoning_effort"} - more):
        return f"Unsupported parameter: '{unknown[0]}' is not supported with this model."
    effort = body.get("reasoning_effort", usual_effort)
    if effort not in ("none", "low", "medium", "high"):
        return f"Unsupported value: 'reasoning_effort' does not support {effort!r}"
    text = "\n".join(message["content"] for message in body["messages"])
    return Asked(body["model"], text, body[limit], effort != "none")


def _read_ollama(path: str, _: Mapping[str, str], body: dict[str, Any]) -> Asked | str:
    if path != "/api/chat":
        return f"no such route: {path}"
    if body.get("stream", True):
        return "this server sends no stream"
    text = "\n".join(message["content"] for message in body["messages"])
    return Asked(body["model"], text, body["options"]["num_predict"], body["model"].startswith("qwen3"))


def _read_anthropic(path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Asked | str:
    if path != "/v1/messages" or "anthropic-version" not in headers:
        return "anthropic-version: header is required"
    if unknown := sorted(set(body) - {"model", "messages", "max_tokens", "system", "thinking", "output_config"}):
        return f"{unknown[0]}: Extra inputs are not permitted"
    if "max_tokens" not in body:
        return "max_tokens: Field required"
    parts = [*body.get("system", ()), *(part for message in body["messages"] for part in message["content"])]
    if any(part["type"] != "text" or not part["text"] for part in parts):
        return "messages: text content blocks must be non-empty"
    text = "\n".join(part["text"] for part in parts)
    return Asked(body["model"], text, body["max_tokens"], body.get("thinking", {}).get("type") == "adaptive")


def _read_gemini(path: str, _: Mapping[str, str], body: dict[str, Any]) -> Asked | str:
    model, _, action = path.removeprefix("/models/").partition(":")
    if action != "generateContent":
        return f"no such method: {action}"
    if unknown := sorted(set(body) - {"contents", "system_instruction", "generationConfig"}):
        return f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.'
    said = [*body["contents"], *([body["system_instruction"]] if "system_instruction" in body else [])]
    parts = [part.get("text", "") for content in said for part in content["parts"]]
    if not all(parts):
        return "* GenerateContentRequest.contents[0].parts[0].data: required oneof field 'data' must have one field"
    settings = body["generationConfig"]
    level = settings.get("thinkingConfig", {}).get("thinkingLevel", "high")
    return Asked(model, "\n".join(parts), settings["max_output_tokens"], level != "minimal")


def _write_openai(model: str, text: str, prompt: int, said: int, thought: int) -> dict[str, Any]:
    usage = {
        "prompt_tokens": prompt, "completion_tokens": said + thought, "total_tokens": prompt + said + thought,
        "completion_tokens_details": {"reasoning_tokens": thought},
    }  # fmt: skip
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {
        "id": "x", "object": "chat.completion", "created": 1, "model": f"{model}-2026-11-01", "choices": [choice],
        "usage": usage,
    }  # fmt: skip


def _write_deepinfra(model: str, text: str, prompt: int, said: int, thought: int) -> dict[str, Any]:
    reply = _write_openai(model, text, prompt, said, thought) | {"model": model}
    if thought:
        reply["choices"][0]["message"]["reasoning_content"] = "I see."
    price = PRICES["deepinfra"][model]
    del reply["usage"]["completion_tokens_details"]
    reply["usage"]["estimated_cost"] = (prompt * price[0] + (thought + said) * price[1]) / 1e6
    return reply


def _write_ollama(model: str, text: str, prompt: int, said: int, thought: int) -> dict[str, Any]:
    thinking = {"thinking": "I see."} if thought else {}
    return {
        "model": model, "created_at": "2026-11-01T00:00:00Z", "done": True, "done_reason": "stop",
        "message": {"role": "assistant", "content": text, **thinking}, "total_duration": 1, "load_duration": 1,
        "prompt_eval_count": prompt, "eval_count": said + thought,
    }  # fmt: skip


def _write_anthropic(model: str, text: str, prompt: int, said: int, thought: int) -> dict[str, Any]:
    thinking = [{"type": "thinking", "thinking": "I see.", "signature": "x"}] if thought else []
    return {
        "id": "x", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
        "stop_sequence": None, "content": [*thinking, {"type": "text", "text": text}],
        "usage": {"input_tokens": prompt, "output_tokens": said + thought},
    }  # fmt: skip


def _write_gemini(model: str, text: str, prompt: int, said: int, thought: int) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", "index": 0}
    usage = {
        "promptTokenCount": prompt, "candidatesTokenCount": said, "thoughtsTokenCount": thought,
        "totalTokenCount": prompt + said + thought,
    }  # fmt: skip
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": "x"}


_READ = {
    "openai": _read_openai, "anthropic": _read_anthropic, "gemini": _read_gemini, "deepinfra": _read_deepinfra,
    "ollama": _read_ollama,
}  # fmt: skip
_WRITE = {
    "openai": _write_openai, "anthropic": _write_anthropic, "gemini": _write_gemini, "deepinfra": _write_deepinfra,
    "ollama": _write_ollama,
}  # fmt: skip


# ── errors ───────────────────────────────────────────────────────────────────


def _error(kind: Kind, status: int, message: str, state: str = "") -> Refusal:
    if kind in ("openai", "deepinfra"):
        code = state or ("model_not_found" if status == 404 else None)
        return Refusal(status, {"error": {"message": message, "type": "invalid_request_error", "code": code}})
    if kind == "anthropic":
        name = state or {404: "not_found_error"}.get(status, "invalid_request_error")
        return Refusal(status, {"type": "error", "error": {"type": name, "message": message}})
    if kind == "ollama":
        return Refusal(status, {"error": message})
    name = state or {404: "NOT_FOUND"}.get(status, "INVALID_ARGUMENT")
    return Refusal(status, {"error": {"code": status, "message": message, "status": name}})


_ERRORS: dict[Kind, dict[str, Refusal]] = {
    "openai": {
        "key": _error("openai", 401, "Incorrect API key provided: a-w***ng.", "invalid_api_key"),
        "crowded": _error("openai", 429, "Rate limit reached for requests", "rate_limit_exceeded")._replace(
            headers={"retry-after": "1"}
        ),
    },
    "anthropic": {
        "key": _error("anthropic", 401, "invalid x-api-key", "authentication_error"),
        "crowded": _error("anthropic", 429, "Number of requests has exceeded your limit", "rate_limit_error")._replace(
            headers={"retry-after": "1"}
        ),
    },
    "gemini": {
        "key": _error("gemini", 400, "API key not valid. Please pass a valid API key."),
        "crowded": _error("gemini", 429, "Resource has been exhausted. Please retry in 1s.", "RESOURCE_EXHAUSTED"),
    },
    "deepinfra": {
        "key": _error("deepinfra", 401, "Not authenticated"), "crowded": _error("deepinfra", 429, "Rate limited"),
    },
    "ollama": {"crowded": _error("ollama", 503, "server busy, please try again. maximum pending requests exceeded")},
}


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, reply, more = provider.answer(self.path, headers, body)
            raw = json.dumps(reply).encode()
            self.send_response(status)
            for name, value in {"content-type": "application/json", "content-length": str(len(raw)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None: ...

    return Handler
