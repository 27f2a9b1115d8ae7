"""Read a provider's reply: the response and whether it is valid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ops.config import Price, Worker
from ops.core.errors import ConfigError, WorkerRefused
from ops.core.messages import NO_PARAMETERS, Message, Parameters
from ops.core.reply_text import KNOWN_NOTATIONS, Notation, parse_reply_text, replace_surrogates
from ops.core.response import Response
from ops.core.status import Status
from ops.workers.failures import TransientFailure
from ops.workers.reply_body import FinishMeaning, ReplyContent, interpret_finish_reason, parse_body
from ops.workers.usage import LONGEST_TOKEN_CHARS, check_usage

SHORTEST_BOUND_CHARS = 100_000
_DATED = re.compile(r"([-@:.]?(latest|\d{3,8}(-\d{2}){0,2}))?")
"""Pattern of the suffixes with which providers mark a model's release."""
_NO_CHOICES = "no_choices"
_WITHHELD = "content_filter"
_DECLINED = "refusal"
_REASONING = "reasoning"
_PREFILLED = re.compile(r"deepseek-r1|r1-distill|qwq-|-thinking-2507", re.IGNORECASE)
"""Models whose chat templates write the opening mark of the reasoning, so that a reply that is cut within it contains
no mark."""


class PaidReply(NamedTuple):
    """A reply that was paid for: the response, and the reason why it is not complete ("" if it is)."""

    response: Response
    impossible: str | None = None
    """A description of what is impossible in the usage that the provider reports; None if nothing is."""
    broken: str = ""
    unknown_reason: str = ""
    """The finish reason, if Podium does not know it. The reply then counts as incomplete."""


def read_reply(
    worker: Worker,
    price: Price,
    messages: Sequence[Message],
    reply: Any,
    body: object,
    elapsed_s: float,
    retries: int,
    parameters: Parameters = NO_PARAMETERS,
) -> PaidReply:
    """Return the response in LiteLLM's reply with its cost by the checked usage.

    `body` is the parsed body that the provider sent. `elapsed_s` is the duration of the call in seconds, and `retries`
    the number of failed attempts before. `parameters` are those of the request.
    """
    content = parse_body(body)
    text, reason, reasoned = _read_content(reply, content)
    meaning: FinishMeaning = interpret_finish_reason(reason, worker.finish_reasons)
    usage, impossible = check_usage(
        worker, price, messages, reply, text, "length" if meaning == "length" else "stop", body, parameters
    )
    answer, reason, broken = _read_answer(worker, text, reason, meaning, reasoned=reasoned)
    if content is not None and content.error:
        broken = content.error
    elif meaning == "stop" and not answer.strip():
        refused = content.is_refusal if content is not None else bool(getattr(_read_message(reply), "refusal", None))
        tools = content.calls_tool if content is not None else bool(getattr(_read_message(reply), "tool_calls", None))
        reason = _DECLINED if refused else "tool_calls" if tools else reason
    response = Response(
        text=answer,
        usage=usage,
        cost_usd=price.compute_usd(usage),
        latency_s=elapsed_s if worker.latency_s is None else worker.latency_s,
        finish_reason=reason,
        retries=retries,
    )
    unknown = meaning == "unknown" and not (content is not None and content.error)
    return PaidReply(response, impossible, broken, reason if unknown else "")


def _read_answer(
    worker: Worker, text: str, reason: str, meaning: FinishMeaning, *, reasoned: bool
) -> tuple[str, str, str]:
    """Return the answer in a text, the finish reason to store, and the reason why the reply is not complete ("" if it
    is)."""
    notations = _list_notations(worker, has_separate_reasoning=reasoned, is_cut=meaning == "length")
    reply_text = parse_reply_text(text, notations, worker.control_tokens or ())
    if meaning in ("broken", "unknown"):
        return reply_text.answer, reason, f"finish reason {reason}"
    if meaning == "stop":
        is_only_reasoning = not reply_text.answer.strip() and (reply_text.has_reasoning or reasoned)
        return reply_text.answer, _REASONING if is_only_reasoning else "stop", ""
    if meaning == "refusal":
        return "", _DECLINED, ""
    return reply_text.answer, meaning, ""


def _list_notations(worker: Worker, *, has_separate_reasoning: bool, is_cut: bool) -> tuple[Notation, ...]:
    """Return the notations in which the worker marks reasoning in the text of a reply.

    With `has_separate_reasoning`, the provider sent the reasoning apart from the text, so the text does not begin
    inside it. With `is_cut`, the reply was cut at `max_tokens` and may contain no closing mark although the chat
    template wrote the opening one.
    """
    if worker.reasoning_marks is not None:
        marks = worker.reasoning_marks
        return tuple(
            Notation(mark.opening, mark.closing, mark.prefilled and not has_separate_reasoning) for mark in marks
        )
    if is_cut and not has_separate_reasoning and _PREFILLED.search(worker.model):
        return tuple(replace(notation, prefilled=index == 0) for index, notation in enumerate(KNOWN_NOTATIONS))
    return KNOWN_NOTATIONS


def find_reply_problem(
    worker: Worker,
    reply: Any,
    response: Response,
    *,
    has_answered: bool,
    file: Path | str,
    is_last_attempt: bool = False,
    broken: str = "",
    unknown_reason: str = "",
) -> TransientFailure | WorkerRefused | ConfigError | None:
    """Return why a paid reply is not a response of the worker; None if it is.

    Another attempt is worthwhile for a reply that is incomplete (`broken` is the reason), empty, longer than its
    `max_tokens` allows, or from another model. A reply without text counts as the response if a repeated call would be
    answered in the same way: if it was cut at `max_tokens`, if the model declined to answer or called a tool, or if it
    consists of reasoning only. With `is_last_attempt`, no attempt follows, and an empty reply with paid tokens counts
    as the response too.
    """
    if response.finish_reason == _WITHHELD:
        return _withheld_error(worker)
    if (other := _find_other_model(worker, reply)) is not None:
        return _wrong_model_error(worker, other, has_answered, file)
    if broken:
        unknown_reason_error = (
            _unknown_reason_error(worker, unknown_reason, file) if unknown_reason and not has_answered else None
        )
        problem = f"a reply that broke off ({broken[:_SHOWN_REASON]})"
        return TransientFailure(problem, final_error=unknown_reason_error, remedy=_BROKE_OFF)
    is_final = response.status != Status.EMPTY or (is_last_attempt and response.completion_tokens > 0)
    if response.finish_reason == _NO_CHOICES or not is_final:
        return TransientFailure(f"an empty reply ({response.finish_reason})")
    if len(response.text) > _max_chars(worker):
        return TransientFailure(f"a reply of {len(response.text)} characters, more than max_tokens can make")
    return None


def clean_stored_response(worker: Worker, response: Response) -> Response:
    """Return a stored response. Texts that were stored before replies were cleaned are cleaned here.

    Raises `WorkerRefused` if the provider's content filter withheld the answer, which was paid for and is not requested
    again.
    """
    if response.finish_reason == _WITHHELD:
        raise _withheld_error(worker)
    if worker.reasoning_marks is not None or worker.control_tokens is not None:
        return response  # these settings are part of its key, so they were applied before it was stored
    reply_text = parse_reply_text(response.text)
    if reply_text.answer == response.text:
        return response
    is_only_reasoning = reply_text.has_reasoning and not reply_text.answer.strip() and response.finish_reason == "stop"
    return replace(
        response, text=reply_text.answer, finish_reason=_REASONING if is_only_reasoning else response.finish_reason
    )


def explain_missing_text(worker: Worker, response: Response) -> tuple[str, str]:
    """Return the reason why a worker's paid response contains no text, and the remedy."""
    label = f"worker {worker.name!r}"
    if response.status == Status.CUT:
        return (
            f"{label}: its {response.completion_tokens} tokens were used up before an answer (finish_reason length)",
            "Raise max_tokens, or lower reasoning_effort",
        )
    if response.status == Status.DECLINED:
        return (
            f"{label}: the model declined to answer (refusal)",
            "Asked again it would decline again; reword the question, or let another worker answer it",
        )
    if response.status == Status.TOOL_CALLS:
        return (
            f"{label}: the model called a tool in place of an answer (tool_calls)",
            "Workers have no tools: remove `tools` from extra_body, or write `tool_choice: none` there",
        )
    if response.status == Status.REASONING:
        return (
            f"{label}: the reply is nothing but reasoning (reasoning)",
            "Lower reasoning_effort; if the answer is among what counts as reasoning, set reasoning_marks",
        )
    return (
        f"{label}: the response has no text (finish_reason {response.finish_reason})",
        "An empty reply is the provider's failure: try again later, or take the worker out of the pool",
    )


def _withheld_error(worker: Worker) -> WorkerRefused:
    return WorkerRefused(f"worker {worker.name!r}: the provider's content filter withheld the answer")


def _unknown_reason_error(worker: Worker, reason: str, file: Path | str) -> ConfigError:
    return ConfigError(
        file, f"workers.{worker.name}.finish_reasons",
        f"the provider ends its replies with the finish reason {reason[:_SHOWN_REASON]!r}, which Podium does not know",
        "If it means a whole answer, add it to finish_reasons; otherwise ask the provider why its replies break off",
    )  # fmt: skip


_SHOWN_REASON = 60
_BROKE_OFF = "The provider ended it early: run the same command again later, or take the worker out of the pool"


def _read_message(reply: Any) -> Any:
    return reply.choices[0].message if reply.choices else None


def _read_content(reply: Any, content: ReplyContent | None) -> tuple[str, str, bool]:
    """Return a reply's text, its finish reason, and whether it contains reasoning apart from the text."""
    if not reply.choices:
        return "", _NO_CHOICES, False
    choice = reply.choices[0]
    text, reason = choice.message.content, str(choice.finish_reason or "stop")
    reasoned = bool(getattr(choice.message, "reasoning_content", None))
    if content is None:
        native = getattr(choice, "provider_specific_fields", None) or {}
        reason = str(native.get("native_finish_reason") or reason)
    else:
        text = (
            text if content.text is None else content.text
        )  # LiteLLM turns a tool call that it added itself into a text
        filtered = interpret_finish_reason(reason) == "content_filter" and content.reason is None
        reason = reason if filtered else content.reason or "stop"
        reasoned = content.has_reasoning or (reasoned and content.text is None)
    return replace_surrogates(text or ""), replace_surrogates(reason), reasoned


def _max_chars(worker: Worker) -> int:
    return max(worker.max_tokens * LONGEST_TOKEN_CHARS, SHORTEST_BOUND_CHARS)


def _find_other_model(worker: Worker, reply: Any) -> str | None:
    """Return the model that answered if it is not the requested one. Releases of one model count as the same."""
    answered = str(getattr(reply, "model", None) or "")
    model = worker.model_in_replies or worker.model
    if not answered or answered == model or model.endswith(answered):
        return None
    names = (name.lower().rpartition("/")[2].removesuffix("-latest") for name in (model, answered))
    shorter, longer = sorted(names, key=len)
    same = longer.startswith(shorter) and _DATED.fullmatch(longer[len(shorter) :])
    return None if same else answered


def _wrong_model_error(worker: Worker, answered: str, worked: bool, file: Path | str) -> TransientFailure | ConfigError:
    shown = answered[:80] if re.fullmatch(r"[-\w./:@ ]+", answered[:80]) else "an unreadable name"
    if worked:  # for example, a gateway falls back to another model while the requested one is unavailable
        return TransientFailure(f"the answer of another model ({shown})")
    return ConfigError(
        file, f"workers.{worker.name}.model", f"{worker.model!r} was requested, and {shown!r} answered",
        "Check model and api_base; if the endpoint uses that name for the model, set model_in_replies to it",
    )  # fmt: skip
