"""The exception hierarchy, and helpers that format errors, names, figures and counts for messages.

Every error that a user may see derives from `PodiumError`. Its text says what is wrong, where it is, and what to do
about it. Errors that only a bug can cause keep Python's own types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


class PodiumError(Exception):
    """Base class of all errors whose message is meant for the user."""


class ConfigError(PodiumError):
    """A setting is wrong. The message names the file, the field ("" if the whole file is meant) and its line if that is
    known, the problem and the remedy."""

    def __init__(self, file: Path | str, field: str, problem: str, remedy: str, line: int | None = None) -> None:
        place = field if line is None else f"{field} (line {line})".strip()
        super().__init__(_format_location(file, place, problem, remedy))
        self.file, self.field, self.problem, self.remedy = str(file), field, problem, remedy


class AccountError(ConfigError):
    """A provider's account has no credit or is closed. The run stops, because the worker cannot answer any question."""


class DataError(PodiumError):
    """A data file cannot be used. The message names the file, the row or column ("" for the whole file), the problem
    and the remedy."""

    def __init__(self, file: Path | str, where: str, problem: str, remedy: str) -> None:
        super().__init__(_format_location(file, where, problem, remedy))
        self.file, self.where, self.problem, self.remedy = str(file), where, problem, remedy


class WorkerError(PodiumError):
    """Base class of the errors of a single call to a worker."""


class WorkerUnreachable(WorkerError):
    """A call failed because of the infrastructure (time-out, HTTP 429 or 5xx, connection) after all retries.

    The rollout is unscorable: it gets no reward and is excluded from all averages.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}. {remedy}" if remedy else problem)
        self.problem, self.remedy = problem, remedy


class ReplayMiss(WorkerUnreachable):
    """A rehearsal, which makes no paid calls, needs a response that was never recorded. It is treated like an
    outage."""


class WorkerRefused(WorkerError):
    """The provider refuses to answer these messages, for example because of a content filter. The call is not
    retried."""


class ContextTooLong(WorkerRefused):
    """The messages and the answer together exceed the worker's context length. The call is not retried."""


class RequestRejected(WorkerRefused):
    """The provider rejects this request for a reason other than the key, the account or the model name. The call is not
    retried."""


class OverBudget(WorkerError):
    """The highest possible cost of the next call would exceed the cap. The call was not sent."""


class LedgerUnavailable(PodiumError):
    """The team's ledger server does not answer. No call is made, because its cost could not be recorded."""


class LimitsUnavailable(PodiumError):
    """The Redis server with a team's shared worker limits does not answer. No worker is called without it."""


class CacheUnavailable(PodiumError):
    """The server that holds the store does not answer. No call is made, because its response could not be stored."""


def _format_location(file: Path | str, place: str, problem: str, remedy: str) -> str:
    end = "" if problem.endswith("?") else "."
    return f"{file}: {place}: {problem}{end} {remedy}" if place else f"{file}: {problem}{end} {remedy}"


def iterate_causes(error: BaseException, *, drivers: bool = False) -> Iterator[BaseException]:
    """Yield the error and then its causes, each one once, because the contexts of exceptions may form a cycle.

    With `drivers`, the attribute `orig` of SQLAlchemy's errors is followed as well. It holds the error of the database
    driver, which remains there after pickling has removed the cause.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (getattr(current, "orig", None) if drivers else None) or current.__context__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; the name of its type if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def find_similar_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a possibly misspelt one; None if none is similar."""
    from difflib import get_close_matches

    by_lower_case = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[found[0]] if found else None


def suggest_name(name: str, known: Iterable[str], what: str, listing: str = "") -> str:
    """Return the remedy for an unknown name.

    It asks for the most similar known name, or lists all of them if none is similar. `what` is the plural of what is
    named, for example "recipes", and `listing` is the command that lists them, if there is one.
    """
    known = list(known)
    if (similar := find_similar_name(name, known)) is not None:
        return f"Did you mean {similar}?{f' `{listing}` lists all {what}' * bool(listing)}"
    separator = "; " if any("," in each for each in known) else ", "
    return f"The {what} are: {separator.join(known) or 'none'}"


def format_figure(value: float) -> str:
    """Return a number with at most four significant digits and no exponent, for example “1,234”, “0.9971” or
    “< 0.0001”; a dash for NaN."""
    if value != value:  # NaN
        return "–"
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "-∞"
    if 0 < abs(value) < 1e-4:
        return "< 0.0001" if value > 0 else "> -0.0001"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def format_p_value(value: float) -> str:
    """Return the p-value of a test with the sign before it, for example “= 0.012” or “< 0.0001”."""
    return "< 0.0001" if value < 1e-4 else f"= {value:.2g}"


def format_size(gib: float) -> str:
    """Return a size given in GiB as text in a suitable unit, for example "12 GiB", "1.5 GiB", "340 MiB" or "3 KiB"."""
    if gib >= 1:
        return f"{gib:,.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB"
    return f"{gib * 2**10:,.0f} MiB" if gib * 2**10 >= 1 else f"{gib * 2**20:,.0f} KiB"


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, for example "1 process" or "1,200 processes". `plural` is needed for irregular
    nouns only."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "ch")) else "s"
    return f"{number:,} {plural or noun + ending}"
