"""Does every gold answer, given as a worker would give it, score 1? The proof that a grader fits a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ops.benchmarks.privacy import is_confidential, shown_reason
from ops.core.problem import GraderName, Problem
from ops.core.workspace import Workspace
from ops.quality.suite import QualityReport, Rule, between, run


class GoldGrade(NamedTuple):
    """What the grader said of one gold answer. `score` is None where there is no gold answer to give."""

    row: str
    benchmark: str
    grader: GraderName
    score: float | None
    answer: str
    reason: str


def check_gold(
    problems: Sequence[Problem], *, name: str = "gold", workspace: Workspace | None = None
) -> QualityReport:
    """Every gold answer must score 1.

    Skipped is what has no gold answer: code without a reference program. With a workspace, Data Docs
    get the page `name`.
    """
    verdicts = grade_gold(problems)
    given = [verdict for verdict in verdicts if verdict.score is not None]
    rows = [{"row": verdict.row, "gold_score": verdict.score} for verdict in given]
    rules = [Rule("gold answer that does not score 1", between("gold_score", 1, 1))]
    skipped = len(verdicts) - len(given)
    if not given:
        return QualityReport(True, [], 0, skipped)
    report = run(name, rows, rules, workspace=workspace, skipped=skipped)
    failures = [_sentence(verdict) for verdict in given if verdict.score != 1]
    return QualityReport(report.success, failures, len(given), skipped, report.page)


def grade_gold(problems: Sequence[Problem], *, workers: int | None = None) -> list[GoldGrade]:
    """Grade every gold answer, in order; programs `workers` at a time (default: one per processor)."""
    from ops.grading import grade_many

    gradable = [problem for problem in problems if problem.answer.strip()]
    grades = grade_many([(problem, gold_response(problem)) for problem in gradable], workers=workers)
    left = iter(grades)
    verdicts = []
    for problem in problems:
        name, hidden = problem.key, is_confidential(problem.benchmark)
        grade = next(left) if problem.answer.strip() else None
        reason = shown_reason(problem.benchmark, grade) if grade else "no gold answer"
        score, answer = grade.score if grade else None, "" if hidden else problem.answer
        verdicts.append(GoldGrade(name, problem.benchmark, problem.grader, score, answer, reason))
    return verdicts


def gold_response(problem: Problem) -> str:
    """The gold answer in the form that the worker prompt asks for."""
    if problem.grader == "math":
        return rf"\boxed{{{problem.answer}}}"
    if problem.grader == "code":
        return f"```python\n{problem.answer}\n```"
    return f"Answer: {problem.answer}"


def _sentence(verdict: GoldGrade) -> str:
    gold = f" {verdict.answer!r:.80}" if verdict.answer else ""
    return f"{verdict.row}: gold answer{gold} scores {verdict.score:g} ({verdict.reason})"
