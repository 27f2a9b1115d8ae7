"""Which benchmarks must not be shown, and what is shown in their place."""

from __future__ import annotations

from ops.benchmarks.registry import BENCHMARKS
from ops.core.problem import Grade, Problem


def is_confidential(benchmark: str) -> bool:
    """Whether questions, subtasks and responses of `benchmark` are kept out of everything that is shown.

    Its embedded stand-in is treated alike, so that the quickstart exercises the rule. Names that are
    no benchmark (a user's own question) are not confidential.
    """
    entry = BENCHMARKS.get(benchmark)
    return entry is not None and entry.confidential


def shown(problem: Problem) -> str:
    """The question; of a confidential benchmark only `BENCHMARK/ID (not shown: …)`."""
    if is_confidential(problem.benchmark):
        return f"{problem.key} (not shown: its authors ask that no question be republished)"
    return problem.question


def shown_response(benchmark: str, text: str, extracted: str) -> str:
    """What a table on disk keeps of a response: all of it; of a confidential benchmark only the letter chosen.

    The letter is what a rehearsal needs to be graded as the real run was; the reasoning quotes the question.
    """
    if not is_confidential(benchmark):
        return text
    return f"Answer: {extracted}" if len(extracted) == 1 else ""


def shown_reason(benchmark: str, grade: Grade) -> str:
    """Why a grade is what it is; of a confidential benchmark only which test failed, since reasons quote."""
    if not is_confidential(benchmark):
        return grade.reason
    return f"{grade.failed.which} failed (not shown)" if grade.failed else "not shown"
