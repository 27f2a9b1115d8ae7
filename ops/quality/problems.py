"""The rules that problems must keep: schema, ids, readable gold answers, sizes, balance, nothing of evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, get_args

from ops.benchmarks.registry import BENCHMARKS, training_domains
from ops.core.problem import Domain, GraderName, Problem
from ops.core.workspace import Workspace
from ops.curation.decontaminate import leaks
from ops.curation.text import exact_key, full_text
from ops.grading import unreadable
from ops.quality.suite import QualityReport, Rule, among, between, gallery, run, true, unique

MAX_QUESTION_CHARS = 20_000
MAX_ANSWER_CHARS = 20_000
MAX_TESTS_CHARS = 20_000_000
"""Of one problem together: hidden tests run to megabytes, and beyond this a row is damaged."""


def check_problems(
    problems: Sequence[Problem],
    *,
    per_domain: int | None = None,
    at_least: int | None = None,
    domains: Sequence[Domain] | None = None,
    evaluation: Iterable[Problem] = (),
    threshold: float = 1.0,
    distinct: bool = False,
    name: str = "problems",
    workspace: Workspace | None = None,
) -> QualityReport:
    """Whether every problem is well formed and readable by its grader, and the set as a whole is as asked.

    `per_domain`: each of the `domains` (None: all that are trained on) has exactly so many; `at_least`: no
    fewer. `evaluation`: questions that none may repeat, in text, by id or with a word 5-gram similarity of at least
    `threshold` (1.0: the same text). `distinct`: no two have the same text. With a workspace, Data
    Docs get the page `name`. Nothing to check is a failure.
    """
    held_out = list(evaluation)
    repeated = {item.problem: item.other for item in leaks(problems, held_out, threshold)} if held_out else {}
    ids = {problem.key for problem in held_out}
    rows = [_facts(problem, repeated, ids) for problem in problems]
    rules = _rules()
    if held_out:
        rules += [
            Rule("repeats an evaluation question", true("repeats_evaluation", wanted=False)),
            Rule("id of an evaluation question", true("id_is_held_out", wanted=False)),
        ]
    if distinct:
        _mark_repeats(rows, problems)
        rules.append(Rule("the text of another problem", true("repeats_another", wanted=False)))
    rules += _balance(per_domain, at_least, training_domains() if domains is None else domains)
    return run(name, rows, rules, workspace=workspace)


def _facts(problem: Problem, repeated: dict[str, str], held_out_ids: set[str]) -> dict[str, Any]:
    """Numbers and names only: no question or answer enters the table."""
    name = problem.key
    return {
        "row": name,
        "id_chars": len(problem.id.strip()),
        "domain": problem.domain,
        "grader": problem.grader,
        "split": problem.split,
        "question_chars": len(problem.question.strip()),
        "answer_chars": len(problem.answer.strip()),
        "tests_chars": sum(len(test.input) + len(test.output) for test in problem.tests),
        "has_gold": problem.grader == "code" or bool(problem.answer.strip()),
        "answer_parses": not problem.answer.strip() or problem.grader == "choice" or not unreadable(problem),
        "answer_is_offered": problem.grader != "choice" or not unreadable(problem),
        "choices_fit_grader": bool(problem.choices) == (problem.grader == "choice"),
        "has_tests": problem.grader != "code" or bool(problem.tests),
        "repeats_evaluation": name in repeated,
        "id_is_held_out": name in held_out_ids,
    }


def _mark_repeats(rows: list[dict[str, Any]], problems: Sequence[Problem]) -> None:
    seen: set[str] = set()
    for row, problem in zip(rows, problems, strict=True):
        key = exact_key(full_text(problem))
        row["repeats_another"] = key in seen
        seen.add(key)


def _rules() -> list[Rule]:
    return [
        Rule("id used twice in a benchmark", unique("row")),
        Rule("no id", between("id_chars", 1)),
        Rule("unknown domain", among("domain", list(dict.fromkeys(entry.domain for entry in BENCHMARKS.values())))),
        Rule("unknown grader", among("grader", get_args(GraderName))),
        Rule("unknown split", among("split", ("train", "test"))),
        Rule("empty question", between("question_chars", 1)),
        Rule("no gold answer", true("has_gold")),
        Rule(f"question over {MAX_QUESTION_CHARS} characters", between("question_chars", None, MAX_QUESTION_CHARS)),
        Rule(f"gold answer over {MAX_ANSWER_CHARS} characters", between("answer_chars", None, MAX_ANSWER_CHARS)),
        Rule(f"tests over {MAX_TESTS_CHARS} characters", between("tests_chars", None, MAX_TESTS_CHARS)),
        Rule("gold answer that its grader cannot read", true("answer_parses")),
        Rule("gold answer that is none of the choices", true("answer_is_offered")),
        Rule("choices without the grader for them, or the reverse", true("choices_fit_grader")),
        Rule("program without tests", true("has_tests")),
    ]


def _balance(per_domain: int | None, at_least: int | None, domains: Sequence[Domain]) -> list[Rule]:
    from great_expectations.expectations.row_conditions import Column

    gxe = gallery()
    rules = []
    for domain in domains:
        here = Column("domain") == domain
        if per_domain is not None:
            words = f"not {per_domain} problems of domain {domain!r}"
            rules.append(Rule(words, gxe.ExpectTableRowCountToEqual(value=per_domain, row_condition=here)))
        if at_least is not None:
            words = f"fewer than {at_least} problems of domain {domain!r}"
            rules.append(Rule(words, gxe.ExpectTableRowCountToBeBetween(min_value=at_least, row_condition=here)))
    return rules
