"""Real error replies of providers: status, body, and meaning."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

Meaning = Literal["account", "key", "model", "rejection", "too long", "refusal", "later"]


class Sent(NamedTuple):
    """One error reply of a provider, in its own words."""

    name: str
    meaning: Meaning
    status: int
    body: dict[str, Any]

    @property
    def step(self) -> str:
        """Return the order that makes the fault server send it."""
        return json.dumps({"status": self.status, "body": self.body})


def _openai(name: str, meaning: Meaning, status: int, message: str, kind: str, code: str | int | None) -> Sent:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return Sent(name, meaning, status, {"error": error})


def _anthropic(name: str, meaning: Meaning, status: int, message: str, kind: str = "invalid_request_error") -> Sent:
    return Sent(name, meaning, status, {"type": "error", "error": {"type": kind, "message": message}})


def _google(name: str, meaning: Meaning, status: int, message: str, state: str) -> Sent:
    return Sent(name, meaning, status, {"error": {"code": status, "message": message, "status": state}})


_QUOTA = "You exceeded your current quota, please check your plan and billing details."
_FLAGGED = (
    "Invalid prompt: your prompt was flagged as potentially violating our usage policy. "
    "Please try again with a different prompt."
)
_AZURE = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. "
    "Please modify your prompt and retry."
)
_VLLM = (
    "This model's maximum context length is 2048 tokens. However, you requested 2300 tokens (2236 in the messages, "
    "64 in the completion). Please reduce the length of the messages or completion."
)
_VLLM_NEW = (
    "'max_tokens' or 'max_completion_tokens' is too large: 64. This model's maximum context length is 2048 tokens "
    "and your request has 2000 input tokens (64 > 2048 - 2000)."
)
_TOGETHER = (
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens; "
    "the context length is 4097"
)

SENT = (
    _openai("openai quota", "account", 429, _QUOTA, "insufficient_quota", "insufficient_quota"),
    _openai("openai inactive", "account", 400, "Your account is not active.", "billing_not_active", None),
    _anthropic(
        "anthropic credit", "account", 400,
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade.",
    ),
    _anthropic("anthropic limit", "account", 400, "You have reached your specified API usage limits."),
    _anthropic("anthropic billing", "account", 402, "There is an issue with your billing.", "billing_error"),
    _google("google region", "account", 400, "User location is not supported for the API use.", "FAILED_PRECONDITION"),
    _openai(
        "openai region", "account", 403, "Country, region, or territory not supported", "request_forbidden",
        "unsupported_country_region_territory",
    ),
    _anthropic("anthropic region", "account", 403, "Request not allowed", "forbidden"),
    _google("google no billing", "account", 403, "This method requires billing to be enabled.", "PERMISSION_DENIED"),
    _openai("deepseek balance", "account", 402, "Insufficient Balance", "unknown_error", "invalid_request_error"),
    _openai("openrouter credits", "account", 402, "Insufficient credits. Add more.", "payment", 402),
    _openai("dashscope arrears", "account", 400, "Access denied, your account is overdue.", "Arrearage", "Arrearage"),
    _openai(
        "deepinfra balance", "account", 402,
        "You need positive balance to do inference. Please add balance manually or setup top-up",
        "invalid_request_error", None,
    ),
    _openai("deepinfra key", "key", 401, "Not authenticated", "invalid_request_error", None),
    Sent("deepinfra key, before", "key", 403, {"detail": {"error": "Not authenticated"}}),
    Sent("deepinfra busy", "later", 429, {"error": {"message": "Model busy, retry later"}}),
    Sent("ollama model", "model", 404, {"error": "model 'm' not found"}),
    _google("google key", "key", 400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT"),
    _openai(
        "openai parameter", "rejection", 400,
        "Unsupported value: 'temperature' does not support 0.2 with this model.", "invalid_request_error",
        "unsupported_value",
    ),
    _openai("unheard of", "rejection", 400, "The stars are not right.", "some_error", None),
    _openai("deepseek format", "rejection", 422, "Failed to deserialize the body", "invalid_request_error", None),
    _openai("model", "model", 404, "The model `m` does not exist", "invalid_request_error", "model_not_found"),
    _openai(
        "openai context", "too long", 400, "Your input exceeds the context window of this model.",
        "invalid_request_error", "context_length_exceeded",
    ),
    Sent("vllm context", "too long", 400, {"object": "error", "message": _VLLM, "type": "BadRequest", "code": 400}),
    _openai("vllm context, new", "too long", 400, _VLLM_NEW, "BadRequestError", 400),
    _anthropic("anthropic prompt", "too long", 400, "prompt is too long: 210000 tokens > 200000 maximum"),
    _anthropic("anthropic bytes", "too long", 413, "Request exceeds the maximum size", "request_too_large"),
    _google(
        "google tokens", "too long", 400,
        "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).", "INVALID_ARGUMENT",
    ),
    _openai("together context", "too long", 403, _TOGETHER, "invalid_request_error", None),
    _openai("openai flagged", "refusal", 400, _FLAGGED, "invalid_request_error", "invalid_prompt"),
    _openai("azure filter", "refusal", 400, _AZURE, "x", "content_filter"),
    _anthropic("anthropic filter", "refusal", 400, "Output blocked by content filtering policy"),
    _openai("deepseek risk", "refusal", 400, "Content Exists Risk", "invalid_request_error", "invalid_request_error"),
    _openai("openrouter moderation", "refusal", 403, "Your input was flagged by moderation", "x", 403),
    _google("google per minute", "later", 429, f"{_QUOTA} Please retry in 12.3s.", "RESOURCE_EXHAUSTED"),
    _openai("openai per minute", "later", 429, "Rate limit reached for gpt-5", "tokens", "rate_limit_exceeded"),
)  # fmt: skip
