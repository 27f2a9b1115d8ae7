"""Check that every gold answer, in the form in which a worker would give it, scores 1.

A gold answer that fails shows a wrong gold answer, or a grader that does not suit the benchmark.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ops.benchmarks.registry import displayable_reason, is_confidential
from ops.core.documents import format_markdown_table
from ops.core.problem import GraderName, Problem
from ops.core.workspace import Workspace
from ops.grading.grader import GRADERS
from ops.quality.suite import QualityReport, Rule, expect_between, run_suite


class GoldGrade(NamedTuple):
    """The grader's verdict on one gold answer; `score` is None if there is no gold answer."""

    row: str
    benchmark: str
    grader: GraderName
    score: float | None
    answer: str
    reason: str


def check_gold(problems: Sequence[Problem], *, name: str = "gold", workspace: Workspace | None = None) -> QualityReport:
    """Check that every gold answer scores 1; return the report.

    Problems without a gold answer (code without a reference program) are skipped. With a workspace, the page `name` of
    Data Docs is written. A reference program that failed before runs again, because a library that it needs may have
    been installed since.
    """
    verdicts = grade_gold(problems)
    given = [verdict for verdict in verdicts if verdict.score is not None]
    rows = [{"row": verdict.row, "gold_score": verdict.score} for verdict in given]
    rules = [Rule("gold answer that does not score 1", expect_between("gold_score", 1, 1))]
    skipped = len(verdicts) - len(given)
    if not given:
        return QualityReport(True, [], 0, skipped)
    report = run_suite(name, rows, rules, workspace=workspace, skipped=skipped)
    failures = [_describe_failure(verdict) for verdict in given if verdict.score != 1]
    return QualityReport(report.success, failures, len(given), skipped, report.page)


def grade_gold(problems: Sequence[Problem]) -> list[GoldGrade]:
    """Grade every gold answer, in order."""
    from ops.grading import grade_many

    gradable = [problem for problem in problems if _has_gold(problem)]
    pairs = [(problem, format_gold_response(problem)) for problem in gradable]
    left = iter(grade_many(pairs, rerun_failures=True))
    verdicts = []
    for problem in problems:
        name, hidden = problem.key, is_confidential(problem.benchmark)
        answer = "" if hidden else problem.answer
        grade = next(left) if _has_gold(problem) else None
        reason = displayable_reason(problem.benchmark, grade) if grade else "no gold answer, or a judge grades it"
        score = grade.score if grade else None
        verdicts.append(GoldGrade(name, problem.benchmark, problem.grader, score, answer, reason))
    return verdicts


def _has_gold(problem: Problem) -> bool:
    """Return whether the problem has a gold answer that its grader grades without asking a worker."""
    return bool(problem.answer.strip()) and GRADERS[problem.grader].grade_answer is not None


def format_gold_response(problem: Problem) -> str:
    """Return the gold answer in the form that the worker prompt asks for."""
    return GRADERS[problem.grader].format_gold_response(problem)


def _describe_failure(verdict: GoldGrade) -> str:
    gold = f" {verdict.answer!r:.80}" if verdict.answer else ""
    return f"{verdict.row}: gold answer{gold} scores {verdict.score:g} ({verdict.reason})"


_ABSENT = re.compile(r"No module named '([\w.]+)'")
MAX_REASON_CHARACTERS = 160
"""The maximum length of a reason in the report, in characters."""


class GoldGrades(NamedTuple):
    """The verdicts on the gold answers of one set of problems.

    `malformed` is the number of rows that were no problems, and `seconds` the time that grading took. `graded_on` says
    which tests the scores are of (`benchmarks.registry.describe_graded_tests`).
    """

    verdicts: Sequence[GoldGrade]
    malformed: int = 0
    seconds: float = 0.0
    graded_on: str = ""

    @property
    def graded(self) -> list[GoldGrade]:
        """The verdicts on problems that have a gold answer."""
        return [verdict for verdict in self.verdicts if verdict.score is not None]

    @property
    def failed(self) -> list[GoldGrade]:
        """The verdicts on gold answers that do not score 1."""
        return [verdict for verdict in self.graded if verdict.score != 1]

    @property
    def pass_rate(self) -> float:
        """The share of gold answers that score 1; 1 if there are none."""
        return 1 - len(self.failed) / len(self.graded) if self.graded else 1.0


def render_gold_report(sets: Mapping[str, GoldGrades], sandbox: str) -> str:
    """Return a Markdown report: a table of the sets, then the failing gold answers of each.

    `sandbox` is the isolation of programs.
    """
    head = ("set", "problems", "malformed rows", "with a gold answer", "score 1", "share", "s")
    rows = [
        (
            name,
            len(golds.verdicts),
            golds.malformed,
            len(golds.graded),
            len(golds.graded) - len(golds.failed),
            f"{100 * golds.pass_rate:.2f} %" if golds.graded else "–",
            f"{golds.seconds:.0f}",
        )
        for name, golds in sets.items()
    ]
    parts = [format_markdown_table(head, rows), f"Programs ran in the sandbox `{sandbox}`."]
    parts += [f"{name} is graded on {golds.graded_on}." for name, golds in sets.items() if golds.graded_on]
    parts += [_render_failures(name, golds.failed) for name, golds in sets.items() if golds.failed]
    return "\n\n".join(parts) + "\n"


def _render_failures(name: str, missed: Sequence[GoldGrade]) -> str:
    absent: dict[str, list[str]] = defaultdict(list)
    others = []
    for verdict in missed:
        if match := _ABSENT.search(verdict.reason):
            absent[match.group(1).partition(".")[0]].append(_problem_id(verdict))
        else:
            others.append((_problem_id(verdict), f"`{verdict.reason[:MAX_REASON_CHARACTERS]}`"))
    lines = [f"Missed in {name}:"]
    if absent:
        ranked = sorted(absent.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        lines.append(format_markdown_table(("library that is not installed", "problems", "ids"), [
            (f"`{library}`", len(ids), ", ".join(ids)) for library, ids in ranked
        ]))  # fmt: skip
    if others:
        lines.append(format_markdown_table(("id", "why"), others))
    return "\n\n".join(lines)


def _problem_id(verdict: GoldGrade) -> str:
    return verdict.row.partition("/")[2]
