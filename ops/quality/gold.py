"""Does every gold answer, given as a worker would give it, score 1? Proof and report that a grader fits a benchmark."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ops.benchmarks.registry import is_confidential, shown_reason
from ops.config import digest
from ops.core.atomic import write_text
from ops.core.documents import markdown_table
from ops.core.problem import GraderName, Problem
from ops.core.workspace import Workspace
from ops.grading.grader import GRADERS
from ops.quality.suite import QualityReport, Rule, between, run

PASSED_BEFORE = "passed before"
"""The reason of a gold answer that is not graded again."""


class GoldGrade(NamedTuple):
    """The grader's verdict on one gold answer. `score` is None where there is no gold answer."""

    row: str
    benchmark: str
    grader: GraderName
    score: float | None
    answer: str
    reason: str


def check_gold(problems: Sequence[Problem], *, name: str = "gold", workspace: Workspace | None = None) -> QualityReport:
    """Every gold answer must score 1.

    Skipped is what has no gold answer: code without a reference program. With a workspace, Data Docs
    get the page `name`, and a reference program that has passed there is run again only when the problem, the grader,
    the sandbox or Python has changed.
    """
    passed = PassedPrograms(workspace) if workspace is not None else None
    verdicts = grade_gold(problems, passed=passed.of(problems) if passed else ())
    if passed is not None:
        passed.keep(problems, verdicts)
    given = [verdict for verdict in verdicts if verdict.score is not None]
    rows = [{"row": verdict.row, "gold_score": verdict.score} for verdict in given]
    rules = [Rule("gold answer that does not score 1", between("gold_score", 1, 1))]
    skipped = len(verdicts) - len(given)
    if not given:
        return QualityReport(True, [], 0, skipped)
    report = run(name, rows, rules, workspace=workspace, skipped=skipped)
    failures = [_sentence(verdict) for verdict in given if verdict.score != 1]
    return QualityReport(report.success, failures, len(given), skipped, report.page)


class PassedPrograms:
    """The reference programs that have passed in this workspace, in `.podium/gold.json`.

    A failure is never stored: it may end with a library that is installed.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._file = workspace.state / "gold.json"
        try:
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            self._keys = {key for key in stored if isinstance(key, str)}
        except (OSError, ValueError, TypeError):  # none yet, or unreadable: the programs run again
            self._keys = set()

    def of(self, problems: Sequence[Problem]) -> set[Problem]:
        """Those of `problems` that have passed."""
        return {problem for problem in problems if GRADERS[problem.grader].runs and self._key(problem) in self._keys}

    def keep(self, problems: Sequence[Problem], verdicts: Sequence[GoldGrade]) -> None:
        """Add the programs that passed now."""
        pairs = zip(problems, verdicts, strict=True)
        keys = {self._key(problem) for problem, given in pairs if GRADERS[problem.grader].runs and given.score == 1}
        if keys <= self._keys:
            return
        self._keys |= keys
        write_text(self._file, json.dumps(sorted(self._keys)))

    def _key(self, problem: Problem) -> str:
        from ops.grading import isolation

        return digest([problem.as_row(), _grader_version(), isolation(), sys.version])


@lru_cache(maxsize=1)
def _grader_version() -> str:
    """Hash of the graders' source."""
    import ops.grading

    files = sorted(Path(ops.grading.__path__[0]).rglob("*.py"))
    return digest([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])


def grade_gold(
    problems: Sequence[Problem], *, workers: int | None = None, passed: Collection[Problem] = ()
) -> list[GoldGrade]:
    """Grade every gold answer, in order; programs `workers` at a time (default: one per processor).

    `passed`: problems whose gold answer is known to score 1 and is not graded again.
    """
    from ops.grading import grade_many

    gradable = [problem for problem in problems if _has_gold(problem) and problem not in passed]
    grades = grade_many([(problem, gold_response(problem)) for problem in gradable], workers=workers)
    left = iter(grades)
    verdicts = []
    for problem in problems:
        name, hidden = problem.key, is_confidential(problem.benchmark)
        answer = "" if hidden else problem.answer
        if problem in passed:
            verdicts.append(GoldGrade(name, problem.benchmark, problem.grader, 1.0, answer, PASSED_BEFORE))
            continue
        grade = next(left) if _has_gold(problem) else None
        reason = shown_reason(problem.benchmark, grade) if grade else "no gold answer, or a judge grades it"
        score = grade.score if grade else None
        verdicts.append(GoldGrade(name, problem.benchmark, problem.grader, score, answer, reason))
    return verdicts


def _has_gold(problem: Problem) -> bool:
    """Whether there is a gold answer that its grader judges without asking a worker (`ops.quality.agreement`)."""
    return bool(problem.answer.strip()) and GRADERS[problem.grader].judge is not None


def gold_response(problem: Problem) -> str:
    """The gold answer in the form that the worker prompt asks for."""
    return GRADERS[problem.grader].gold_response(problem)


def _sentence(verdict: GoldGrade) -> str:
    gold = f" {verdict.answer!r:.80}" if verdict.answer else ""
    return f"{verdict.row}: gold answer{gold} scores {verdict.score:g} ({verdict.reason})"


_ABSENT = re.compile(r"No module named '([\w.]+)'")
SHOWN_REASON = 160
"""Characters of a reason that are shown."""


class Golds(NamedTuple):
    """One set of problems: its verdicts, how many of its rows were no problems, and how long grading took (s).

    `graded_on`: which tests its scores are of (`benchmarks.registry.graded_on`).
    """

    verdicts: Sequence[GoldGrade]
    malformed: int = 0
    seconds: float = 0.0
    graded_on: str = ""

    @property
    def given(self) -> list[GoldGrade]:
        """Those with a gold answer to grade."""
        return [verdict for verdict in self.verdicts if verdict.score is not None]

    @property
    def missed(self) -> list[GoldGrade]:
        return [verdict for verdict in self.given if verdict.score != 1]

    @property
    def share(self) -> float:
        """Share of gold answers that score 1; 1 where there is none."""
        return 1 - len(self.missed) / len(self.given) if self.given else 1.0


def gold_report(sets: Mapping[str, Golds], sandbox: str) -> str:
    """A table of the sets, then the misses of each, in markdown. `sandbox`: the isolation of programs."""
    head = ("set", "problems", "malformed rows", "with a gold answer", "score 1", "share", "s")
    rows = [
        (
            name,
            len(golds.verdicts),
            golds.malformed,
            len(golds.given),
            len(golds.given) - len(golds.missed),
            f"{100 * golds.share:.2f} %" if golds.given else "–",
            f"{golds.seconds:.0f}",
        )
        for name, golds in sets.items()
    ]
    parts = [markdown_table(head, rows), f"Programs ran in the sandbox `{sandbox}`."]
    parts += [f"{name} is graded on {golds.graded_on}." for name, golds in sets.items() if golds.graded_on]
    parts += [_misses(name, golds.missed) for name, golds in sets.items() if golds.missed]
    return "\n\n".join(parts) + "\n"


def _misses(name: str, missed: Sequence[GoldGrade]) -> str:
    absent: dict[str, list[str]] = defaultdict(list)
    others = []
    for verdict in missed:
        if match := _ABSENT.search(verdict.reason):
            absent[match.group(1).partition(".")[0]].append(_id(verdict))
        else:
            others.append((_id(verdict), f"`{verdict.reason[:SHOWN_REASON]}`"))
    lines = [f"Missed in {name}:"]
    if absent:
        ranked = sorted(absent.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        lines.append(markdown_table(("library that is not installed", "problems", "ids"), [
            (f"`{library}`", len(ids), ", ".join(ids)) for library, ids in ranked
        ]))  # fmt: skip
    if others:
        lines.append(markdown_table(("id", "why"), others))
    return "\n\n".join(lines)


def _id(verdict: GoldGrade) -> str:
    return verdict.row.partition("/")[2]
