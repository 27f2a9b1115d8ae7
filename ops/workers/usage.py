"""The usage of a call: what the provider states in its reply, converted to a common way of counting and checked.

Some providers include reasoning tokens in the completion and others list them separately. The same holds for the parts
of a prompt that are read from a cache or written to it. The total that most providers state tells which way is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from ops.config import Price, Worker, normalize_tier
from ops.core.errors import ConfigError
from ops.core.messages import NO_PARAMETERS, Message, Parameters
from ops.core.usage import TOKEN_PARTS, Usage
from ops.workers.providers import import_litellm, max_prompt_tokens

LONGEST_TOKEN_CHARS = 128
"""The maximum length of a token in characters. No tokenizer in use has longer ones; runs of blanks are the longest."""
HIDDEN_PROMPT_TOKENS = 2_048
"""The maximum number of tokens that a provider adds to the messages, for a chat template and its own system prompt."""
OVERRUN_TOKENS = 64
"""The maximum number of tokens that a provider counts beyond `max_tokens`, for marks of the end, of reasoning or of a
tool."""
_COUNTED_CHARS = 100_000
"""The longest text, in characters, whose tokens are counted with a tokenizer. The time for a text without blanks grows
with the square of its length."""
_COUNTS_DIFFER = 4
"""The maximum ratio between the numbers of tokens that two tokenizers count in ASCII text."""
_MAX_COST_RATIO, _ALWAYS_BELIEVED_USD = 10, 1.0
"""A stated cost is accepted up to `_MAX_COST_RATIO` times the highest cost that we expect of the call, and always up to
`_ALWAYS_BELIEVED_USD`."""
_MAX_CHARS_PER_TOKEN = 8
"""A stated count of fewer tokens than one per this number of characters is compared with our own count, because words
are shorter."""
_STATED_COSTS = {"cost": 1.0, "estimated_cost": 1.0, "cost_in_usd_ticks": 1e-10}
"""Fields with a cost that the provider states (OpenRouter and Perplexity; DeepInfra; xAI), each with its unit in
USD."""
_TIER_ALIASES = {"fast": "priority"}
"""Service tiers that a provider bills under the name of another one."""


class CheckedUsage(NamedTuple):
    """The usage of a reply that is recorded in the ledger."""

    usage: Usage
    impossible: str | None = None
    """A description of what the provider states and is impossible, with the possible range; the highest possible usage
    is then recorded. None if everything is possible."""


def check_usage(
    worker: Worker,
    price: Price,
    messages: Sequence[Message],
    reply: Any,
    text: str,
    finish_reason: str,
    body: object = None,
    parameters: Parameters = NO_PARAMETERS,
) -> CheckedUsage:
    """Return the provider's token counts if they are possible, or our own counts if it gives none.

    An impossible count is replaced by the highest that the request allows, or by the count of what was delivered if
    that is higher. `text` is the delivered text, `body` the parsed body that the provider sent, and `parameters` those
    of the request.
    """
    stated = getattr(reply, "usage", None)
    max_prompt = max_prompt_tokens(worker, messages, parameters)
    prompt_limit, completion_limit = max_prompt + HIDDEN_PROMPT_TOKENS, worker.max_tokens + OVERRUN_TOKENS
    counts, separate_completion = _read_counts(stated, prompt_limit, completion_limit)
    prompt = _check_count(
        "prompt", counts["prompt_tokens"],
        text="".join(message["content"] for message in messages), high=prompt_limit,
    )  # fmt: skip
    # Some providers apply `max_tokens` to the text alone, and to the reasoning that they list beside it.
    high = completion_limit + min(separate_completion, completion_limit)
    completion = _check_count("completion", counts["completion_tokens"], text=text, high=high)
    impossible = [problem for problem in (prompt, completion) if isinstance(problem, str)]
    if prompt is None:
        prompt = min(_count_tokens(messages), max_prompt)
    elif isinstance(prompt, str):
        prompt = max_prompt
    if completion is None:
        counted = _count_tokens(text)
        completion = max(worker.max_tokens if finish_reason == "length" else counted, _min_tokens(len(text)))
        if counted > _COUNTS_DIFFER * worker.max_tokens + OVERRUN_TOKENS:
            impossible.append(f"an answer of about {counted:,} tokens, and max_tokens allows {worker.max_tokens:,}")
            completion = max(counted, completion)
    elif isinstance(completion, str):
        completion = _delivered_tokens(counts["completion_tokens"], text, worker.max_tokens)
    stated_usd, max_usd = _read_usd(stated), price.compute_max_usd(max_prompt, worker.max_tokens, worker.service_tier)
    if stated_usd is not None and stated_usd > (accepted_usd := max(_MAX_COST_RATIO * max_usd, _ALWAYS_BELIEVED_USD)):
        impossible.append(f"a cost of {stated_usd:g} USD, where up to {accepted_usd:g} are believed")
        stated_usd = max_usd
    parts, remaining = {}, {"prompt_tokens": prompt, "completion_tokens": completion}
    for part in TOKEN_PARTS:  # limited to the number of tokens in the whole, which may be our own count
        parts[part.name] = min(counts[part.name], remaining[part.whole])
        remaining[part.whole] -= parts[part.name]
    tier = _read_service_tier(stated, body)
    usage = Usage(
        prompt,
        completion,
        **parts,
        service_tier=(worker.service_tier or "") if tier is None else tier,
        stated_usd=stated_usd,
    )
    return CheckedUsage(usage, " and ".join(impossible) or None)


def impossible_usage_error(worker: Worker, impossible: str, file: Path | str) -> ConfigError:
    """Return the error that stops further calls to a worker after it stated an impossible usage."""
    return ConfigError(
        file, f"workers.{worker.name}",
        f"the usage that its provider reports is impossible, so no further call is made to {worker.model!r}: "
        f"{impossible}",
        "The call was recorded at its highest possible cost. Check with the provider whether the endpoint respects "
        "max_tokens and counts tokens, or take the worker out of the pool, then run the same command again: finished "
        "calls stay cached",
    )  # fmt: skip


# ── what the reply states ────────────────────────────────────────────────────────


def _read_counts(stated: object, prompt_limit: int, completion_limit: int) -> tuple[dict[str, Any], int]:
    """Return the stated counts by their names in `Usage`, and the number of completion tokens that the provider counts
    separately from the text, if the stated total confirms it (otherwise 0).

    In the returned counts, prompt and completion include all of their parts. They are not checked: they may have any
    type, and are None if not stated.

    If the total that the provider states is the sum of its parts, the total decides which parts are separate from
    prompt and completion. Otherwise a part is taken to be included if it fits, and what the total exceeds the sum of
    all parts by counts as completion. In this case, counts that would make the prompt longer than `prompt_limit`
    tokens, or the completion longer than `completion_limit` tokens, are not accepted; cached tokens are then billed as
    ordinary input.
    """
    wholes = {whole: _read_field(stated, whole) for whole in ("prompt_tokens", "completion_tokens")}
    parts = {
        part.name: _first_count(*(_read_field(stated, path) for path in part.reply_fields)) for part in TOKEN_PARTS
    }
    if any(not _is_count(tokens) or tokens < 0 for tokens in wholes.values()):
        return wholes | parts, 0
    prompt, completion = wholes.values()
    total = _first_count(_read_field(stated, "total_tokens"))
    separate = _find_separate_parts(wholes, parts, total)
    is_confirmed = separate is not None
    if separate is None:
        prompt_parts = [part.name for part in TOKEN_PARTS if part.whole == "prompt_tokens"]
        if prompt < (listed := sum(parts[name] for name in prompt_parts)) and prompt + listed > prompt_limit:
            parts |= dict.fromkeys(prompt_parts, 0)
        separate, remaining = set(), dict(wholes)
        for part in TOKEN_PARTS:
            if parts[part.name] > remaining[part.whole]:
                separate.add(part.name)
            else:
                remaining[part.whole] -= parts[part.name]
    for part in TOKEN_PARTS:
        wholes[part.whole] += parts[part.name] if part.name in separate else 0
    separate_completion = wholes["completion_tokens"] - completion if is_confirmed else 0
    unlisted = total - sum(wholes.values())
    if 0 < unlisted <= completion_limit - wholes["completion_tokens"] and prompt > 0:
        wholes["completion_tokens"] += unlisted
    return wholes | parts, separate_completion


def _find_separate_parts(wholes: Mapping[str, int], parts: Mapping[str, int], total: int) -> set[str] | None:
    """Return the names of the parts that are separate from prompt and completion, so that all of them add up to
    `total`.

    Returns None if there is no such set. Of several, the one with the longest completion is returned, because it costs
    most.
    """
    names = [part.name for part in reversed(TOKEN_PARTS) if parts[part.name]]
    for choice in product((True, False), repeat=len(names)):
        separate = {name for name, is_separate in zip(names, choice, strict=True) if is_separate}
        included = dict.fromkeys(wholes, 0)
        for part in TOKEN_PARTS:
            included[part.whole] += 0 if part.name in separate else parts[part.name]
        fits = all(included[whole] <= tokens for whole, tokens in wholes.items())
        if fits and sum(wholes.values()) + sum(parts[name] for name in separate) == total:
            return separate
    return None


def _read_service_tier(stated: object, body: object) -> str | None:
    """Return the service tier that the reply names, "" for the standard one; None if it names none."""
    for source in (body, _read_field(body, "usage"), stated):
        if isinstance(name := _read_field(source, "service_tier"), str) and name:
            tier = normalize_tier(name)
            return _TIER_ALIASES.get(tier, tier)
    return None


def _read_usd(stated: object) -> float | None:
    for name, unit in _STATED_COSTS.items():
        value = _read_field(stated, name)
        if isinstance(value, Mapping) or hasattr(value, "total_cost"):
            value = _read_field(value, "total_cost")
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value) * unit
    return None


def _read_field(holder: object, path: str) -> Any:
    """Return the value at a path such as `prompt_tokens_details.cached_tokens`; None if there is none."""
    for name in path.split("."):
        holder = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return holder


def _first_count(*values: object) -> int:
    """Return the first positive count; 0 if there is none."""
    return next((value for value in values if _is_count(value) and value > 0), 0)


def _is_count(value: object) -> TypeGuard[int]:
    """Return whether the value is an integer, and not a truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


# ── whether it is possible ───────────────────────────────────────────────────────


def _check_count(side: str, count: object, *, text: str, high: int) -> int | str | None:
    """Return the stated number of tokens of `text` if it is possible, and otherwise a description of why it is not.

    Returns None if there is none; LiteLLM turns a missing count into 0.
    """
    if count is None or (_is_count(count) and count == 0):
        return None
    low = _min_tokens(len(text))
    if _is_count(count) and low <= count < len(text) / _MAX_CHARS_PER_TOKEN:
        low = max(low, _count_tokens(text[:_COUNTED_CHARS].encode("ascii", "ignore").decode()) // _COUNTS_DIFFER)
    if _is_count(count) and low <= count <= high:
        return int(count)
    shown = repr(count)
    return f"{shown if len(shown) <= 24 else shown[:24] + '…'} {side} tokens, where {low:,} to {high:,} are possible"


def _delivered_tokens(count: object, text: str, max_tokens: int) -> int:
    size = len(text.encode(errors="replace"))
    if _is_count(count) and max_tokens < count <= size:  # the provider ignores max_tokens and counts what it sends
        return max(int(count), _min_tokens(len(text)))
    return max(max_tokens, _count_tokens(text))


def _min_tokens(chars: int) -> int:
    return -(-chars // LONGEST_TOKEN_CHARS)


def _count_tokens(what: str | Sequence[Message]) -> int:
    """Return the number of tokens of a text or of messages by LiteLLM's tokenizer; an estimate from the bytes for a
    very long text."""
    text = what if isinstance(what, str) else "".join(message["content"] for message in what)
    if not text:
        return 0
    if len(text) > _COUNTED_CHARS:
        return -(-len(text.encode(errors="replace")) // 4)
    arguments = {"text": what} if isinstance(what, str) else {"messages": list(what)}
    return int(import_litellm().token_counter(**arguments))
