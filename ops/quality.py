"""The thin edge to Great Expectations: is a set of problems fit to train or evaluate on?

What belongs here: expectations over problems, and that every gold answer scores 1.
What does not: mending what fails (`ops.curation`), or checks of single rows while
they are read (`ops.benchmarks.rows`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from ops.curation.duplicates import reference
from ops.curation.text import exact_key, full_text
from ops.problem import Domain, GraderName, Problem

if TYPE_CHECKING:
    import pandas as pd

MAX_QUESTION_CHARS = 20_000
MAX_ANSWER_CHARS = 20_000
NAMED_ROWS = 8
"""How many rows one failure names."""


@dataclass(frozen=True)
class QualityReport:
    """The verdict: what failed, in sentences that name rows. `skipped` problems could not be checked."""

    success: bool
    failures: list[str]
    checked: int
    skipped: int = 0

    def __bool__(self) -> bool:
        return self.success


def check_problems(
    problems: Sequence[Problem], *, per_domain: int | None = None, evaluation: Iterable[Problem] = ()
) -> QualityReport:
    """Schema, unique ids, texts present and of sane length, gold choices among those offered, tests for code.

    `per_domain`: each of the four domains must have exactly so many. `evaluation`: questions that none may
    repeat. Nothing to check is a failure.
    """
    if not problems:
        return QualityReport(False, ["there are no problems"], 0)
    frame = _frame(problems, {exact_key(full_text(problem)) for problem in evaluation})
    named = [*_expectations(), *(_balance(per_domain) if per_domain is not None else ())]
    failures = _run(frame, named)
    return QualityReport(not failures, failures, len(problems))


def check_gold(problems: Sequence[Problem]) -> QualityReport:
    """Every gold answer, given as a worker would give it, must score 1.

    Skipped is what has no gold answer: code without a reference program.
    """
    from ops.grading import grade_many

    gradable = [problem for problem in problems if problem.answer.strip()]
    grades = grade_many([(problem, gold_response(problem)) for problem in gradable])
    failures = [
        f"{reference(problem)}: gold answer {problem.answer!r:.80} scores {grade.score:g} ({grade.reason})"
        for problem, grade in zip(gradable, grades, strict=True)
        if not grade.correct
    ]
    return QualityReport(not failures, failures, len(gradable), len(problems) - len(gradable))


def gold_response(problem: Problem) -> str:
    """The gold answer in the form that the worker prompt asks for."""
    if problem.grader == "math":
        return rf"\boxed{{{problem.answer}}}"
    if problem.grader == "code":
        return f"```python\n{problem.answer}\n```"
    return f"Answer: {problem.answer}"


def _frame(problems: Sequence[Problem], held_out: set[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([_facts(problem, held_out) for problem in problems])


def _facts(problem: Problem, held_out: set[str]) -> dict[str, Any]:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(problem.choices)]
    return {
        "row": reference(problem),
        "id": problem.id,
        "domain": problem.domain,
        "grader": problem.grader,
        "split": problem.split,
        "question": problem.question.strip() or None,
        "answer": problem.answer if problem.grader == "code" else problem.answer.strip() or None,
        "answer_is_offered": problem.grader != "choice" or (bool(letters) and problem.answer in [*letters]),
        "choices_fit_grader": bool(problem.choices) == (problem.grader == "choice"),
        "has_tests": problem.grader != "code" or bool(problem.tests),
        "repeats_evaluation": exact_key(full_text(problem)) in held_out,
    }


def _expectations() -> list[tuple[str, Any]]:
    """(what is wrong when it fails, the expectation)."""
    gxe = _gallery()

    def true(column: str, wanted: bool = True) -> Any:
        return gxe.ExpectColumnValuesToBeInSet(column=column, value_set=[wanted])

    def short(column: str, most: int) -> Any:
        return gxe.ExpectColumnValueLengthsToBeBetween(column=column, min_value=0, max_value=most)

    return [
        ("id used twice in a benchmark", gxe.ExpectColumnValuesToBeUnique(column="row")),
        ("no id", gxe.ExpectColumnValueLengthsToBeBetween(column="id", min_value=1)),
        ("unknown domain", _among("domain", get_args(Domain))),
        ("unknown grader", _among("grader", get_args(GraderName))),
        ("unknown split", _among("split", ("train", "test"))),
        ("empty question", gxe.ExpectColumnValuesToNotBeNull(column="question")),
        ("no gold answer", gxe.ExpectColumnValuesToNotBeNull(column="answer")),
        (f"question over {MAX_QUESTION_CHARS} characters", short("question", MAX_QUESTION_CHARS)),
        (f"gold answer over {MAX_ANSWER_CHARS} characters", short("answer", MAX_ANSWER_CHARS)),
        ("gold answer that is none of the choices", true("answer_is_offered")),
        ("choices without the grader for them, or the reverse", true("choices_fit_grader")),
        ("program without tests", true("has_tests")),
        ("repeats an evaluation question", true("repeats_evaluation", wanted=False)),
    ]


def _among(column: str, values: Sequence[str]) -> Any:
    gxe = _gallery()

    return gxe.ExpectColumnValuesToBeInSet(column=column, value_set=list(values))


def _balance(per_domain: int) -> list[tuple[str, Any]]:
    from great_expectations.expectations.row_conditions import Column

    gxe = _gallery()
    return [
        (
            f"domain {domain!r}, which needs exactly {per_domain} problems",
            gxe.ExpectTableRowCountToEqual(value=per_domain, row_condition=Column("domain") == domain),
        )
        for domain in get_args(Domain)
    ]


def _gallery() -> Any:
    # Untyped on purpose: the library does not export these names in a way that type checkers accept.
    import great_expectations as gx

    return gx.expectations


def _run(frame: pd.DataFrame, named: Sequence[tuple[str, Any]]) -> list[str]:
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    batch = context.data_sources.add_pandas("problems").add_dataframe_asset("problems")
    suite = gx.ExpectationSuite("problems")
    for _, expectation in named:
        suite.add_expectation(expectation)
    definition = gx.ValidationDefinition(
        name="problems",
        data=batch.add_batch_definition_whole_dataframe("all"),
        suite=context.suites.add(suite),
    )
    context.validation_definitions.add(definition)
    result = definition.run(
        batch_parameters={"dataframe": frame},
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["row"]},
    )
    if bool(result.success):
        return []
    words_of = {expectation.id: words for expectation, (words, _) in zip(suite.expectations, named, strict=True)}
    return [
        _sentence(words_of[found.expectation_config.id], found)
        for found in result.results
        if found.expectation_config is not None and not bool(found.success)
    ]


def _sentence(words: str, found: Any) -> str:
    if (found.exception_info or {}).get("raised_exception"):
        return f"{words}: could not be checked ({found.exception_info.get('exception_message')})"
    if "observed_value" in found.result:
        return f"{words}: found {found.result['observed_value']}"
    rows = sorted({str(item["row"]) for item in found.result.get("unexpected_index_list") or ()})
    more = f" and {len(rows) - NAMED_ROWS} more" if len(rows) > NAMED_ROWS else ""
    return f"{words}: {', '.join(rows[:NAMED_ROWS])}{more}"
