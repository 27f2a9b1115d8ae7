"""The body of a reply as the provider sent it, because LiteLLM rewrites what it does not know.

For example, LiteLLM turns an unknown finish reason into "stop", and rejects a text that comes in several parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

FinishMeaning = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "broken", "unknown"]


class ReplyContent(NamedTuple):
    """The content of a reply, independent of the provider's format. `text` is None if the reply has none."""

    text: str | None = None
    reason: str | None = None
    """The finish reason in the provider's words; None if there is none."""
    is_refusal: bool = False
    calls_tool: bool = False
    """True if the reply calls a tool."""
    has_reasoning: bool = False
    """True if the reply contains reasoning apart from the text."""
    error: str = ""
    """The reason that the provider gives for an incomplete reply; "" if there is none."""


@dataclass
class ReplyBody:
    """The body of one call's reply as text, and as a value once it is parsed."""

    text: str = ""
    content: Any = field(default=None)

    def read(self) -> Any:
        """Return the parsed body; None if it is not JSON or there is no body."""
        if self.content is None and self.text:
            try:
                self.content = json.loads(self.text)
            except (ValueError, RecursionError):
                return None
        return self.content


_BODY: ContextVar[ReplyBody | None] = ContextVar("body", default=None)


@contextmanager
def keep_body() -> Iterator[ReplyBody]:
    """Keep the body of the reply to a call that is made inside the block, and yield it."""
    body = ReplyBody()
    token = _BODY.set(body)
    try:
        yield body
    finally:
        _BODY.reset(token)


def note_body(content: str | Mapping[str, Any]) -> None:
    """Record a body for the call that is being made. Later ones are ignored, because they are LiteLLM's reports on the
    first one."""
    if (body := _BODY.get()) is None or body.text or body.content is not None:
        return
    if isinstance(content, str):
        body.text = content
    else:
        body.content = content


def parse_body(content: Any) -> ReplyContent | None:
    """Return the content of a parsed body; None if its format is not known."""
    if not isinstance(content, Mapping):
        return None
    choices, candidates, message = content.get("choices"), content.get("candidates"), content.get("message")
    if isinstance(choices, list):
        return _parse_openai(content, choices)
    if isinstance(candidates, list):
        return _parse_gemini(candidates)
    if isinstance(content.get("content"), list) and "stop_reason" in content:
        return _parse_blocks(content["content"], content["stop_reason"], present=True)
    if isinstance(message, Mapping) and "done" in content:
        return _parse_ollama(content, message)
    output = content.get("output")
    if isinstance(output, Mapping) and "stopReason" in content:  # Bedrock
        message = output.get("message")
        blocks = message.get("content") if isinstance(message, Mapping) else None
        return _parse_blocks(blocks if isinstance(blocks, list) else [], content["stopReason"], present=True)
    if "finish_reason" in content and isinstance(message, Mapping):  # Cohere
        blocks = message.get("content")
        reply_content = _parse_blocks(
            blocks if isinstance(blocks, list) else [], content["finish_reason"], present=True
        )
        return reply_content._replace(calls_tool=bool(message.get("tool_calls")))
    return None


def convert_to_openai(content: Any) -> dict[str, Any] | None:
    """Return a body in OpenAI's format with the text in one piece; None for a body of another format.

    LiteLLM itself rejects a text in several parts, and a finish reason that is not a string.
    """
    reply_content = parse_body(content)
    choices = content.get("choices") if isinstance(content, Mapping) else None
    if reply_content is None or not choices or not isinstance(choices[0], Mapping):
        return None
    message = choices[0].get("message")
    if not isinstance(message, Mapping) or not isinstance(content.get("usage"), Mapping | None):
        return None
    tool_fields = {name: value for name, value in message.items() if name in ("tool_calls", "function_call") and value}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": reply_content.text, **tool_fields},
        "finish_reason": reply_content.reason,
    }
    return {"model": content.get("model"), "choices": [choice], "usage": content.get("usage")}


def interpret_finish_reason(reason: str | None, complete_reasons: Sequence[str] = ()) -> FinishMeaning:
    """Return the meaning of a provider's finish reason; "unknown" if Podium does not know it.

    `complete_reasons` contains further finish reasons of the provider that mean a complete answer.
    """
    if reason is None or reason in complete_reasons:
        return "stop"
    normalized = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", reason).lower()).strip("_")
    normalized = normalized.removeprefix("finish_reason_").removeprefix("finishreason_").removeprefix("stop_reason_")
    return _MEANING.get(normalized) or ("broken" if _BROKEN.search(normalized) else "unknown")


_MEANING: dict[str, FinishMeaning] = {
    **dict.fromkeys((
        "stop", "stopped", "end_turn", "stop_sequence", "stop_token", "stop_string", "stop_word", "eos", "eos_token",
        "eos_token_found", "eos_found", "end_of_text", "end_of_turn", "end_of_sequence", "endoftext", "complete",
        "completed", "finish", "finished", "end", "ended", "done", "success", "succeeded", "natural",
    ), "stop"),
    **dict.fromkeys((
        "length", "max_tokens", "max_output_tokens", "max_new_tokens", "max_completion_tokens", "max_length",
        "max_token", "model_length", "token_limit", "token_limit_reached", "length_limit", "output_limit",
        "context_length", "context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded",
        "max_context_length_reached", "max_predicted_tokens_reached", "truncated", "compaction",
    ), "length"),
    **dict.fromkeys((
        "tool_calls", "tool_call", "tool_use", "function_call", "function_calls", "malformed_function_call",
        "unexpected_tool_call", "too_many_tool_calls", "malformed_tool_use",
    ), "tool_calls"),
    **dict.fromkeys((
        "content_filter", "content_filtered", "contentfilter", "safety", "recitation", "language", "blocklist",
        "prohibited_content", "spii", "image_safety", "image_prohibited_content", "image_recitation", "image_other",
        "no_image", "guardrail_intervened", "sensitive", "error_toxic", "escalation", "moderation", "flagged",
        "blocked", "policy_violation",
    ), "content_filter"),
    **dict.fromkeys(("refusal", "refused"), "refusal"),
}  # fmt: skip
"""Maps finish reasons, in lower case, to their meanings. They are those of OpenAI, Anthropic, Gemini, Bedrock, Cohere,
Mistral, Ollama, Hugging Face, watsonx, LM Studio and compatible servers."""
_BROKEN = re.compile(
    r"err|fail|abort|cancel|time_?d?_?out|interrupt|insufficient|network|overload|unavailable|preempt|disconnect|"
    r"connection|reset|kill|crash|malformed|invalid|pause|load|limit|incomplete|partial|null|none|other|unspecified|"
    r"unknown|^no_|not_finished|in_progress|processing|exception|exhausted|capacity|evict|terminat|shut_?down|lost|drop"
)
"""Words in a finish reason which say that the reply is not complete."""


def _read_reason(value: object) -> str | None:
    if isinstance(value, Mapping):  # {"type": "stop"}
        value = value.get("type") or value.get("reason")
    return None if value is None else str(value)


def _parse_openai(content: Mapping[str, Any], choices: list[Any]) -> ReplyContent:
    if not choices or not isinstance(choices[0], Mapping):
        return ReplyContent(error="no choices")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, Mapping):
        message = {"content": choice.get("text")}
    reply_content = _parse_blocks(message.get("content"), choice.get("finish_reason"))
    native_reasons = [choice.get("native_finish_reason")]
    if isinstance(provider_fields := choice.get("provider_specific_fields"), Mapping):  # LiteLLM's proxy
        native_reasons.append(provider_fields.get("native_finish_reason"))
    broken = next(
        (
            str(native_reason)
            for native_reason in native_reasons
            if native_reason is not None and interpret_finish_reason(_read_reason(native_reason)) == "broken"
        ),
        "",
    )
    return reply_content._replace(
        is_refusal=reply_content.is_refusal or bool(message.get("refusal")),
        calls_tool=bool(message.get("tool_calls") or message.get("function_call")),
        has_reasoning=reply_content.has_reasoning or any(message.get(name) for name in _REASONING_FIELDS),
        error=_find_error(choice) or _find_error(content) or broken,
    )


_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks", "thoughts")


def _find_error(where: Mapping[str, Any]) -> str:
    """Return the error that a provider sends with the text of a reply with status 200; "" if there is none."""
    error = where.get("error")
    if isinstance(error, Mapping):
        if not any(error.get(name) for name in ("message", "code", "type")):
            return ""  # some providers send an empty error with every reply
        return f"error {error.get('code') or error.get('type') or ''}".strip()
    return "error" if error else ""


def _parse_blocks(content: object, reason: object, *, present: bool = False) -> ReplyContent:
    """Return the content of a text, or of a list of typed blocks. With `present`, the format always has a finish
    reason."""
    reply_content = ReplyContent(
        reason=_read_reason(reason), error="no finish reason" if present and reason is None else ""
    )
    if isinstance(content, str):
        return reply_content._replace(text=content)
    if not isinstance(content, list):
        return reply_content
    texts: list[str] = []
    refusal = tools = reasoning = False
    for block in content:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, Mapping):
            kind = str(block.get("type") or "")
            if "thinking" in kind or "reasoning" in kind or "reasoningContent" in block:
                reasoning = True
            elif kind == "refusal":
                refusal = True
            elif "tool" in kind or "function" in kind or "toolUse" in block:
                tools = True
            elif isinstance(text := block.get("text"), str):
                texts.append(text)
            elif isinstance(text, Mapping) and isinstance(text.get("value"), str):
                texts.append(text["value"])
    return reply_content._replace(
        text="".join(texts) if texts else None, is_refusal=refusal, calls_tool=tools, has_reasoning=reasoning
    )


def _parse_gemini(candidates: list[Any]) -> ReplyContent | None:
    if not candidates or not isinstance(candidates[0], Mapping):
        return None
    candidate = candidates[0]
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, Mapping) else None
    parts = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought")]
    reason = _read_reason(candidate.get("finishReason"))
    return ReplyContent(
        text="".join(texts) if texts else None,
        reason=reason,
        calls_tool=any("functionCall" in part for part in parts),
        has_reasoning=any(part.get("thought") for part in parts),
        error="no finish reason" if reason is None else "",
    )


def _parse_ollama(content: Mapping[str, Any], message: Mapping[str, Any]) -> ReplyContent:
    reply_content = _parse_blocks(message.get("content"), content.get("done_reason"))
    return reply_content._replace(
        calls_tool=bool(message.get("tool_calls")),
        has_reasoning=bool(message.get("thinking")),
        error="" if content["done"] is not False else "not done",
    )
