"""The rules that problems must satisfy.

They concern the schema, ids, readable gold answers, sizes, the balance of domains, and overlap with evaluation
questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ops.benchmarks.registry import BENCHMARKS
from ops.core.problem import Domain, Problem
from ops.core.workspace import Workspace
from ops.curation.decontaminate import find_leaks
from ops.curation.question_text import join_question_and_choices, make_exact_key
from ops.grading import GRADERS, find_gold_error, hidden_tests
from ops.quality.suite import (
    QualityReport,
    Rule,
    expect_among,
    expect_between,
    expect_flag,
    expect_unique,
    load_expectations,
    run_suite,
)

MAX_QUESTION_CHARS = 20_000
MAX_ANSWER_CHARS = 20_000
MAX_TESTS_CHARS = 512 << 20
"""The maximum size of one problem's tests, in characters. LiveCodeBench's tests are unpacked up to the same number of
bytes."""


@dataclass(frozen=True)
class DomainBalance:
    """The required number of problems in each of `domains`."""

    domains: Sequence[Domain]
    exactly: int | None = None
    at_least: int | None = None


@dataclass(frozen=True)
class HeldOutQuestions:
    """Evaluation questions that no problem may repeat: in its text, by its id, or by similarity.

    `threshold` is the word 5-gram similarity from which a problem counts as a repetition; at 1.0 only equal texts
    count.
    """

    questions: Sequence[Problem] = ()
    threshold: float = 1.0


def check_problems(
    problems: Sequence[Problem],
    *,
    balance: DomainBalance | None = None,
    held_out: HeldOutQuestions | None = None,
    require_distinct: bool = False,
    name: str = "problems",
    workspace: Workspace | None = None,
) -> QualityReport:
    """Check that every problem is well formed and readable by its grader, and that the whole set satisfies the given
    rules.

    With `require_distinct` no two problems may have the same text. With a workspace, the page `name` of Data Docs is
    written. An empty set fails.
    """
    evaluation, threshold = (held_out.questions, held_out.threshold) if held_out else ((), 1.0)
    repeated = {item.problem for item in find_leaks(problems, evaluation, threshold)} if evaluation else set()
    ids = {problem.key for problem in evaluation}
    rows = [_describe_problem(problem, repeated, ids) for problem in problems]
    rules = _problem_rules()
    if any(problem.hidden for problem in problems):
        rules.append(Rule("hidden tests whose file is missing or damaged", expect_flag("hidden_tests_intact")))
    if evaluation:
        rules += [
            Rule("repeats an evaluation question", expect_flag("repeats_evaluation", expected=False)),
            Rule("id of an evaluation question", expect_flag("id_is_held_out", expected=False)),
        ]
    if require_distinct:
        _mark_repeated_texts(rows, problems)
        rules.append(Rule("the text of another problem", expect_flag("repeats_another", expected=False)))
    if balance is not None:
        rules += _balance_rules(balance)
    return run_suite(name, rows, rules, workspace=workspace)


def _describe_problem(problem: Problem, repeated: set[str], held_out_ids: set[str]) -> dict[str, Any]:
    """Return the checked facts about a problem as numbers and names; no question or answer enters the table."""
    name = problem.key
    return {
        "row": name,
        "id_chars": len(problem.id.strip()),
        "domain": problem.domain,
        "grader": problem.grader,
        "split": problem.split,
        "question_chars": len(problem.question.strip()),
        "answer_chars": len(problem.answer.strip()),
        "tests_chars": sum(len(test.input) + len(test.output) for test in problem.tests)
        + (problem.hidden.characters if problem.hidden else 0),
        "has_gold": bool(problem.answer.strip()) or not _needs_gold(problem.grader),
        "answer_parses": not problem.answer.strip() or problem.grader == "choice" or not find_gold_error(problem),
        "answer_is_offered": problem.grader != "choice" or not find_gold_error(problem),
        "choices_fit_grader": bool(problem.choices) == (problem.grader == "choice"),
        "has_tests": problem.grader != "code" or bool(problem.test_count),
        "hidden_tests_intact": not hidden_tests.find_damage(problem),
        "repeats_evaluation": name in repeated,
        "id_is_held_out": name in held_out_ids,
    }


def _needs_gold(grader: str) -> bool:
    return grader not in GRADERS or GRADERS[grader].needs_gold


def _mark_repeated_texts(rows: list[dict[str, Any]], problems: Sequence[Problem]) -> None:
    seen: set[str] = set()
    for row, problem in zip(rows, problems, strict=True):
        key = make_exact_key(join_question_and_choices(problem))
        row["repeats_another"] = key in seen
        seen.add(key)


def _problem_rules() -> list[Rule]:
    return [
        Rule("id used twice in a benchmark", expect_unique("row")),
        Rule("no id", expect_between("id_chars", 1)),
        Rule(
            "unknown domain", expect_among("domain", list(dict.fromkeys(entry.domain for entry in BENCHMARKS.values())))
        ),
        Rule(
            "unknown grader",
            expect_among(
                "grader", [each.name for each in GRADERS.values() if each.grade_answer or each.build_judge_messages]
            ),
        ),
        Rule("unknown split", expect_among("split", ("train", "test"))),
        Rule("empty question", expect_between("question_chars", 1)),
        Rule("no gold answer", expect_flag("has_gold")),
        Rule(
            f"question over {MAX_QUESTION_CHARS} characters", expect_between("question_chars", None, MAX_QUESTION_CHARS)
        ),
        Rule(f"gold answer over {MAX_ANSWER_CHARS} characters", expect_between("answer_chars", None, MAX_ANSWER_CHARS)),
        Rule(f"tests over {MAX_TESTS_CHARS} characters", expect_between("tests_chars", None, MAX_TESTS_CHARS)),
        Rule("gold answer that its grader cannot read", expect_flag("answer_parses")),
        Rule("gold answer that is not among the choices", expect_flag("answer_is_offered")),
        Rule("choices without the grader for them, or the reverse", expect_flag("choices_fit_grader")),
        Rule("program without tests", expect_flag("has_tests")),
    ]


def _balance_rules(balance: DomainBalance) -> list[Rule]:
    from great_expectations.expectations.row_conditions import Column

    gxe = load_expectations()
    rules = []
    for domain in balance.domains:
        here = Column("domain") == domain
        if (exactly := balance.exactly) is not None:
            words = f"not {exactly} problems of domain {domain!r}"
            rules.append(Rule(words, gxe.ExpectTableRowCountToEqual(value=exactly, row_condition=here)))
        if (least := balance.at_least) is not None:
            words = f"fewer than {least} problems of domain {domain!r}"
            rules.append(Rule(words, gxe.ExpectTableRowCountToBeBetween(min_value=least, row_condition=here)))
    return rules
