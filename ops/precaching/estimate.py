"""What a set of calls will cost, before the first of them is made.

Two figures: *expected*, and *most*, which is what the client reserves call by call: every answer as long as
`max_tokens`. What is expected is what was measured of this worker on this benchmark; failing that of this worker
at all, of other workers of its kind, and in the end what such workers usually answer (`usual_answer`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ops.cache import ResponseCache, cache_key
from ops.config import Worker
from ops.core.errors import OverBudget
from ops.core.problem import Problem
from ops.core.response import Message, Sample
from ops.core.rows import ResponseRow
from ops.precaching.precache import solo_messages
from ops.spending.ledger import Ledger
from ops.workers.providers import most_tokens, worst_price

CHARACTERS_PER_TOKEN = 4.0
"""Of English text, roughly, for the workers whose tokens were never counted."""
TOOL_TOKENS = 19.0
"""Of a tool's answer: a value, a formula or a few lines of a program; the mean of the quickstart's 10,800 answers."""
ANSWER_TOKENS = {"choice": 300.0}
"""Of a language model's answer to one question, by grader; `OTHER_TOKENS` where none is named.

From arXiv:2512.04388, constrained workers: a router that asks one worker once takes 840 tokens a question in the mean
of the four training tasks, prompt included, so about 700 for the answer; on MMLU a workflow takes 735 tokens where it
takes 1,820 in the mean, so an answer there 0.4 of 700, and elsewhere (4 × 700 - 300) / 3.
"""
OTHER_TOKENS = 830.0
THINKING_TOKENS = 2000.0
"""Before the answer, of a worker that thinks and is not told how much: our assumption, the first responses mend it."""
SUBTASK_TOKENS = 25
"""Of a subtask: a sentence or two, which its own worker reads and every later step that sees it."""
_PURPOSES = ("serving", "training", "evaluation", "baseline", "precache")
"""Of the ledger's calls; a later one tells more about a worker that is asked alone."""


class Ask(NamedTuple):
    """One call to come."""

    worker: Worker
    benchmark: str
    messages: Sequence[Message]
    sample: int | Sample = 0
    grader: str = ""
    """Who grades the answer ("choice", "math" …), which says how long it is; "" where nobody does."""


class MeanTokens(NamedTuple):
    """Mean tokens per call."""

    prompt_tokens: float
    completion_tokens: float


Usages = Mapping[tuple[str, str], MeanTokens]
"""(worker, benchmark) → what its calls were measured to use; benchmark "": over all of them."""


@dataclass
class Share:
    """One worker's part of an estimate: calls, and USD for those that are not cached."""

    calls: int = 0
    cached: int = 0
    measured: int = 0
    """Calls to come whose tokens are those of earlier calls to this worker."""
    alike: int = 0
    """Calls to come whose answers are taken to be as long as those of other workers of its kind."""
    expected_usd: float = 0.0
    worst_usd: float = 0.0

    @property
    def to_make(self) -> int:
        """Calls that will be paid for."""
        return self.calls - self.cached


@dataclass
class CostEstimate:
    """What calls will cost, by worker and in all."""

    workers: dict[str, Share] = field(default_factory=dict)

    @property
    def total(self) -> Share:
        shares = self.workers.values()
        return Share(
            sum(s.calls for s in shares),
            sum(s.cached for s in shares),
            sum(s.measured for s in shares),
            sum(s.alike for s in shares),
            sum(s.expected_usd for s in shares),
            sum(s.worst_usd for s in shares),
        )

    def __str__(self) -> str:
        total = self.total
        if not total.to_make:
            return f"{total.calls:,} calls, all of them cached: nothing to pay"
        return (
            f"{total.calls:,} calls, {total.cached:,} of them cached: about ${total.expected_usd:,.2f}, "
            f"at most ${total.worst_usd:,.2f}{_basis(total)}"
        )

    def as_rows(self) -> list[dict[str, str | int | float]]:
        """A row per worker, for a table."""
        return [
            {
                "worker": name,
                "calls": share.calls,
                "cached": share.cached,
                "expected_usd": round(share.expected_usd, 6),
                "worst_usd": round(share.worst_usd, 6),
                "measured": share.measured,
            }
            for name, share in self.workers.items()
        ]


def precache_asks(problems: Iterable[Problem], workers: Sequence[Worker], samples: int) -> Iterator[Ask]:
    """What precaching asks: every worker every problem, `samples` times."""
    for problem in problems:
        messages = solo_messages(problem)
        for worker in workers:
            for sample in range(samples):
                yield Ask(worker, problem.benchmark, messages, sample, problem.grader)


def measured_usage(rows: Iterable[ResponseRow], ledger: Ledger | None = None) -> dict[tuple[str, str], MeanTokens]:
    """What answers used, by worker and benchmark, and by worker over all of them (benchmark "").

    `rows` are precached ones. A ledger knows of calls whose table was never finished, and of other purposes'.
    """
    tokens: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        if row.status == "ok":
            for benchmark in (row.benchmark, ""):
                tokens[row.worker, benchmark].append((row.response.prompt_tokens, row.response.completion_tokens))
    usages = {key: MeanTokens(*map(fmean, zip(*counts, strict=True))) for key, counts in tokens.items()}
    if ledger is not None:
        for purpose in _PURPOSES:
            usages |= {(worker, ""): MeanTokens(*means) for worker, means in ledger.mean_tokens(purpose).items()}
    return usages


def cost_estimate(
    asks: Iterable[Ask], cache: ResponseCache, usages: Usages | None = None, *, pool_file: Path | str = "config/pools"
) -> CostEstimate:
    """Count and price the calls. Raises `ConfigError` for a worker without a price."""
    todo = [(ask, cache_key(ask.worker.identity, ask.messages, ask.sample)) for ask in asks]
    cached = cache.holds([key for _, key in todo])
    total = CostEstimate()
    prices: dict[str, tuple[float, float]] = {}
    measured = usages or {}
    answers = _answers(measured, {ask.worker.name: _kind(ask.worker) for ask, _ in todo})
    for ask, key in todo:
        name = ask.worker.name
        share = total.workers.setdefault(name, Share())
        share.calls += 1
        if key in cached:
            share.cached += 1
            continue
        if name not in prices:
            prices[name] = worst_price(ask.worker, pool_file)
        usage = measured.get((name, ask.benchmark)) or measured.get((name, ""))
        share.measured += usage is not None
        if usage is None:
            kind = _kind(ask.worker)
            alike = answers.get((kind, ask.benchmark)) or answers.get((kind, ""))
            share.alike += alike is not None
            answer = usual_answer(ask.worker, ask.grader) if alike is None else alike
            usage = MeanTokens(_prompt_tokens(ask.messages), min(answer, ask.worker.max_tokens))
        share.expected_usd += _usd(usage, prices[name])
        share.worst_usd += _usd(MeanTokens(most_tokens(ask.messages), ask.worker.max_tokens), prices[name])
    return total


def usual_answer(worker: Worker, grader: str = "") -> float:
    """Tokens that a worker of this kind answers a question with, its thinking included, where none was measured."""
    if "tool" in worker.tags:
        return TOOL_TOKENS
    answer = ANSWER_TOKENS.get(grader, OTHER_TOKENS)
    if worker.thinking_budget is not None:
        return answer + min(worker.thinking_budget, THINKING_TOKENS)
    if worker.reasoning_effort is not None:
        return answer + (0 if worker.reasoning_effort in ("none", "minimal") else THINKING_TOKENS)
    return answer + (THINKING_TOKENS if "reasoning" in worker.tags else 0)


def stopped(error: OverBudget, rest: CostEstimate) -> OverBudget:
    """The error of a run that met its cap, saying what is done and what the rest would cost.

    `rest` is the estimate of *all* calls of the run, made after it stopped: what was
    answered is cached by then.
    """
    total = rest.total
    return OverBudget(
        f"stopped at the cap: {total.cached:,} of {total.calls:,} calls are done and stay cached; the other "
        f"{total.to_make:,} would cost about ${total.expected_usd:,.2f}, at most ${total.worst_usd:,.2f}"
        f"{_basis(total)}. Run the same command again to go on where it stopped ({error})"
    )


def _basis(total: Share) -> str:
    """Where the two figures come from."""
    shares = [
        (total.measured, "from measured tokens"),
        (total.alike, "as long as the other workers' answers"),
        (total.to_make - total.measured - total.alike, "from the prompts' lengths and usual answers"),
    ]
    parts = [(count / total.to_make, words) for count, words in shares if count]
    about = ", ".join(words if len(parts) == 1 else f"{part:.0%} {words}" for part, words in parts)
    nothing = "; nothing was measured yet" if not total.measured and not total.alike else ""
    return f" ({about}{nothing}; at most: every answer as long as max_tokens)"


def _kind(worker: Worker) -> str:
    """Workers of one kind answer at like length."""
    return next((tag for tag in ("tool", "reasoning") if tag in worker.tags), "")


def _answers(usages: Usages, kinds: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """(kind, benchmark or "" for all) → completion tokens, the mean over the workers that were measured."""
    tokens: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (worker, benchmark), usage in usages.items():
        if worker in kinds:
            tokens[kinds[worker], benchmark].append(usage.completion_tokens)
    return {key: fmean(means) for key, means in tokens.items()}


def _prompt_tokens(messages: Sequence[Message]) -> float:
    return sum(len(message["content"]) for message in messages) / CHARACTERS_PER_TOKEN


def _usd(usage: MeanTokens, price: tuple[float, float]) -> float:
    return usage.prompt_tokens * price[0] + usage.completion_tokens * price[1]
