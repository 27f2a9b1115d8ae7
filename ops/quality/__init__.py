"""Data checks: Great Expectations suites over problems and responses, whose reports name the failing rows.

This package has the suites of each data stage, the grading of gold answers, and the reports with their pages. The
removal of failing problems belongs in `ops.curation`, checks of single rows during reading in
`ops.benchmarks.source_rows`, and blocking on failed checks in `assets.checks`.
"""

from ops.quality.gold import check_gold, format_gold_response
from ops.quality.problem_checks import (
    MAX_ANSWER_CHARS,
    MAX_QUESTION_CHARS,
    DomainBalance,
    HeldOutQuestions,
    check_problems,
)
from ops.quality.response_checks import check_responses
from ops.quality.suite import QualityReport

__all__ = [
    "MAX_ANSWER_CHARS",
    "MAX_QUESTION_CHARS",
    "DomainBalance",
    "HeldOutQuestions",
    "QualityReport",
    "check_gold",
    "check_problems",
    "check_responses",
    "format_gold_response",
]
