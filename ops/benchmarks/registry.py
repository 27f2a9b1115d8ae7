"""The benchmarks by name, read from the files in `catalogue`, and the rules for confidential ones."""

from __future__ import annotations

from collections.abc import Iterable

from ops.benchmarks.base import Benchmark
from ops.core.problem import Domain, Grade, Problem
from ops.core.registry import Registry

BENCHMARKS = Registry(
    "ops.benchmarks.catalogue", Benchmark, lambda entry: (not entry.has_training_split, entry.position)
)
"""Name → benchmark; those with a training split come first."""


def training_benchmarks(among: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return the names of the benchmarks with a training split, in order; with `among`, only those of these names."""
    wanted = BENCHMARKS if among is None else set(among)
    return tuple(name for name, entry in BENCHMARKS.items() if entry.has_training_split and name in wanted)


def ood_benchmarks() -> tuple[str, ...]:
    """Return the names of the benchmarks that are used for evaluation only, in order; no problem of theirs is trained
    on."""
    return tuple(name for name, entry in BENCHMARKS.items() if not entry.has_training_split)


def training_domains(among: Iterable[str] | None = None) -> tuple[Domain, ...]:
    """Return the domains of `training_benchmarks`, in order."""
    return tuple(dict.fromkeys(BENCHMARKS[name].domain for name in training_benchmarks(among)))


def describe_graded_tests(problems: Iterable[Problem]) -> str:
    """Return in words whether scores on these problems are measured on hidden tests; "" if no benchmark hides tests.

    The result is like "public tests only (3 in 2 problems)" or "hidden tests (40, and 3 public ones, in 2 problems)".
    Embedded problems have no hidden tests and are graded on all tests.
    """
    rows = [problem for problem in problems if not problem.family and BENCHMARKS[problem.benchmark].has_hidden_tests]
    if not rows:
        return ""
    public, hidden = sum(len(row.tests) for row in rows), sum(row.hidden.count for row in rows if row.hidden)
    if not hidden:
        return f"public tests only ({public:,} in {len(rows):,} problems)"
    bare = sum(row.hidden is None for row in rows)
    without = f", {bare:,} of which have public ones only" if bare else ""
    return f"hidden tests ({hidden:,}, and {public:,} public ones, in {len(rows):,} problems{without})"


def is_confidential(benchmark: str) -> bool:
    """Return whether questions, subtasks and responses of `benchmark` are kept out of everything that is shown.

    Its embedded stand-in is treated alike, so that the quickstart exercises the rule. Names that are no benchmark (a
    user's own question) are not confidential.
    """
    entry = BENCHMARKS.get(benchmark)
    return entry is not None and entry.is_confidential


def displayable_question(problem: Problem) -> str:
    """Return the question; for a confidential benchmark only the problem's key and a note."""
    if is_confidential(problem.benchmark):
        return f"{problem.key} (not shown: its authors ask that no question be republished)"
    return problem.question


def storable_response(benchmark: str, text: str, extracted: str) -> str:
    """Return the part of a response that a table on disk may hold.

    This is the whole response, or for a confidential benchmark only the chosen letter. A rehearsal needs the letter to
    be graded like the real run; the reasoning quotes the question.
    """
    if not is_confidential(benchmark):
        return text
    return f"Answer: {extracted}" if len(extracted) == 1 else ""


def displayable_reason(benchmark: str, grade: Grade) -> str:
    """Return the reason of a grade; for a confidential benchmark only the number of the failed test, because reasons
    quote."""
    if not is_confidential(benchmark):
        return grade.reason
    return f"{grade.failed.label} failed (not shown)" if grade.failed else "not shown"
