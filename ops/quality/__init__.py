"""Data checks: Great Expectations suites over problems and responses, which name failing rows.

What belongs here: the suites of each data stage, grading of gold answers, the report and its pages. What does not:
removal of failing problems (`ops.curation`), checks of single rows during reading
(`ops.benchmarks.source_rows`), blocking (`assets.checks`).
"""

from ops.quality.gold import check_gold, format_gold_response
from ops.quality.problem_checks import MAX_ANSWER_CHARS, MAX_QUESTION_CHARS, DomainBalance, HeldOutQuestions, check_problems
from ops.quality.response_checks import check_responses
from ops.quality.suite import QualityReport

__all__ = [
    "MAX_ANSWER_CHARS",
    "MAX_QUESTION_CHARS",
    "Balance",
    "HeldOut",
    "QualityReport",
    "check_gold",
    "check_problems",
    "check_responses",
    "format_gold_response",
]
