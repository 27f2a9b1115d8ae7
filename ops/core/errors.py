"""The exception hierarchy, the causes of an error, and the names and numbers of messages.

Every error that a user may meet derives from `PodiumError`, whose text names what is
wrong, where, and what to do. Errors that only a bug can cause stay Python's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


class PodiumError(Exception):
    """Base of every error that carries a message meant for the user."""


class ConfigError(PodiumError):
    """A setting is wrong: names the file, the field ("" if the whole file is meant), its line if known, and the
    remedy."""

    def __init__(self, file: Path | str, field: str, problem: str, remedy: str, line: int | None = None) -> None:
        place = field if line is None else f"{field} (line {line})".strip()
        super().__init__(_format_location(file, place, problem, remedy))
        self.file, self.field, self.problem, self.remedy = str(file), field, problem, remedy


class AccountError(ConfigError):
    """A provider's account has no credit or is closed. The run stops, since the worker cannot answer any question."""


class DataError(PodiumError):
    """A data file cannot be used: names the file, the row or column ("" if the whole file is meant) and the remedy."""

    def __init__(self, file: Path | str, where: str, problem: str, remedy: str) -> None:
        super().__init__(_format_location(file, where, problem, remedy))
        self.file, self.where, self.problem, self.remedy = str(file), where, problem, remedy


class WorkerError(PodiumError):
    """Base of the errors of one call to a worker."""


class WorkerUnreachable(WorkerError):
    """Infrastructure failed (time-out, 429, 5xx, connection) after every retry: the rollout is unscorable."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}. {remedy}" if remedy else problem)
        self.problem, self.remedy = problem, remedy


class ReplayMiss(WorkerUnreachable):
    """A rehearsal needs a response that was never recorded: unscorable, like an outage."""


class WorkerRefused(WorkerError):
    """The provider refuses to answer these messages (for example a content filter): not retried."""


class ContextTooLong(WorkerRefused):
    """The messages and the answer together exceed the worker's context length: not retried."""


class RequestRejected(WorkerRefused):
    """The provider rejects this request, and not because of the key, the account or the model name: not retried."""


class OverBudget(WorkerError):
    """The highest possible cost of the next call would exceed the cap: nothing was sent."""


class LedgerUnavailable(PodiumError):
    """The shared ledger does not answer. No call is made, since its cost could not be recorded."""


class LimitsUnavailable(PodiumError):
    """The server of a team's shared worker limits does not answer; no worker is called without it."""


class CacheUnavailable(PodiumError):
    """The server with the store does not answer. No call is made, since its response could not be stored."""


def _format_location(file: Path | str, place: str, problem: str, remedy: str) -> str:
    end = "" if problem.endswith("?") else "."
    return f"{file}: {place}: {problem}{end} {remedy}" if place else f"{file}: {problem}{end} {remedy}"


def iterate_causes(error: BaseException, *, drivers: bool = False) -> Iterator[BaseException]:
    """Return the error and its causes, each once, because contexts may form a cycle.

    `drivers`: follow `orig` of SQLAlchemy's errors too, the database driver's error, which remains when pickling has
    removed the cause.
    """
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (getattr(each, "orig", None) if drivers else None) or each.__context__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type's name where it has none."""
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
    """Return a size in the unit that shows it, for example “12 GiB”, “1.5 GiB”, “340 MiB” or “3 KiB”."""
    if gib >= 1:
        return f"{gib:,.0f} GiB" if gib >= 10 else f"{gib:.1f} GiB"
    return f"{gib * 2**10:,.0f} MiB" if gib * 2**10 >= 1 else f"{gib * 2**20:,.0f} KiB"


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Return for example “1 process” or “1,200 processes”; `plural` is needed only for irregular nouns."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "ch")) else "s"
    return f"{number:,} {plural or noun + ending}"
