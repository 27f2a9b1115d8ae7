"""Every answer of the two corpora gets its stated verdict; known misses are listed in their files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from ops.benchmarks.registry import BENCHMARKS
from ops.grading import grade
from ops.grading.graders import code
from tests.unit.grading.forms import CORPUS, Form, load

FORMS, ANSWERS = load(), load(CORPUS)
MOST_MISSES = 0.01
"""Maximum share of the forms under `misses`."""
MOST_ACCEPTED_WRONG = 0.003
"""Maximum share of wrong forms there."""
LEAST = {"math": 25, "text": 15, "choice": 12, "code": 10}
"""Answers of a corpus, right and wrong ones each, that every grader has at least, over its benchmarks."""


def kind(form: Form) -> str:
    return f"{form.kind}-{'right' if form.right else 'wrong'}"


@pytest.mark.parametrize("of", sorted({kind(form) for form in FORMS}))
def test_every_form_of_a_kind_gets_its_verdict(of: str) -> None:
    forms = [form for form in FORMS if kind(form) == of and not form.miss]
    graded = [(form, grade(form.problem, form.response)) for form in forms]
    others = [(form.why, form.problem.answer, form.response, got) for form, got in graded if got.score != form.score]
    assert others == []


def test_a_known_error_of_the_grader_still_occurs() -> None:
    mended = [form for form in FORMS if form.miss and grade(form.problem, form.response).score == form.score]
    assert mended == [], "no misses any more: take them off the list"


def test_known_misses_are_few() -> None:
    wrong = [form for form in FORMS if not form.right]
    assert sum(form.miss for form in FORMS) <= MOST_MISSES * len(FORMS)
    assert sum(form.miss for form in wrong) <= MOST_ACCEPTED_WRONG * len(wrong)


@pytest.mark.parametrize("form", ANSWERS, ids=[f"{kind(form)}-{form.why}" for form in ANSWERS])
def test_an_answer_of_a_benchmarks_corpus_gets_its_verdict(
    form: Form, monkeypatch: pytest.MonkeyPatch, late_programs_run_once: None
) -> None:
    for name in ("call", "stdin"):  # the programs take microseconds, but for one that never ends
        monkeypatch.setitem(code.LIMITS, name, replace(code.LIMITS[name], cpu_s=1))
    verdict = grade(form.problem, form.response)
    assert verdict.score == form.score, (form.why, verdict)


def test_every_benchmark_and_grader_has_answers_of_both_kinds() -> None:
    assert {(form.kind, form.score) for form in ANSWERS} == set(product(BENCHMARKS, (0.0, 1.0)))
    counts = Counter((form.problem.grader, form.score) for form in ANSWERS)
    assert [key for key in product(LEAST, (0.0, 1.0)) if counts[key] < LEAST[key[0]]] == []
