"""Properties of every grader: total for any text, deterministic, thread-safe, memoized. Clusters of equal answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.core.problem import CodeTest, Grade, Problem
from ops.grading import grade, grade_many, symbolic
from ops.grading.answer_clusters import cluster_answers
from tests.builders import fenced, make_code_problem, make_problem

ADD = "def f(a, b):\n    return a + b"
PROBLEMS = {
    "math": make_problem(grader="math", answer=r"\frac{\sqrt{2}}{2}"),
    "choice": make_problem(grader="choice", answer="B", choices=("one", "two", "three", "four")),
    "text": make_problem(grader="text", answer="12.5 km/h"),
    "code": make_code_problem(CodeTest("call", "f(1, 2)", "3"), answer=ADD),
}
any_text = st.text() | st.text(alphabet=list("\\{}$()[]^_/%,.;:*`\"'=<>|&~!?-+ \n0123456789aAbBxe"), max_size=300)
pieces = st.lists(
    st.sampled_from(
        [
            r"\boxed{", "}", r"\frac", "{", "Answer:", "(", ")", "$", "\n", "```", "```python\n", "&", r"\\",
            r"\begin{pmatrix}", r"\end{pmatrix}", r"\pm", r"\cup", ",", "1e9", "9^9^9", "!",
            r"\sqrt", r"\text{",
            "km", "/", "A", "or", "true", "=", "x", r"\{", r"\}", "_", "%", "−", "\ud800", "\x00", "½", "not",
        ]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("name", ["math", "choice", "text"])
@given(response=any_text | pieces, boxed=st.booleans())
@settings(max_examples=250, deadline=None)
def test_any_text_is_graded(name: str, response: str, boxed: bool) -> None:
    text = rf"\boxed{{{response}}}" if boxed else f"Answer: {response}"
    verdict = grade(PROBLEMS[name], text)
    assert verdict.score in (0.0, 1.0)
    assert verdict == grade(PROBLEMS[name], text)


@given(response=any_text | pieces)
@settings(max_examples=25, deadline=None)
def test_any_text_is_graded_as_a_program(response: str) -> None:
    assert grade(PROBLEMS["code"], response).score == 0.0
    assert grade(PROBLEMS["code"], fenced(response)).score == 0.0


@given(gold=any_text | pieces)
@settings(max_examples=150, deadline=None)
def test_any_gold_answer_is_handled(gold: str) -> None:
    for name in ("math", "text"):
        assert grade(replace(PROBLEMS[name], answer=gold), "Answer: 5 km").score in (0.0, 1.0)


@pytest.mark.parametrize("name", ["math", "choice", "text", "code"])
@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{" * 50_000, "{" * 200_000, "Answer: " * 40_000, "$" * 100_000, "```\n" * 50_000,
        "A or " * 50_000, "1" * 200_000, " " * 200_000, r"\frac" * 40_000, "(" * 100_000 + ")" * 100_000,
        r"\boxed{" + "(" * 1400 + "}", r"\boxed{" + "1+" * 190 + "1}", r"\boxed{" + "x^" * 150 + "x}",
        "Answer: " + "1," * 1900, "Answer: " + "a " * 1900,
    ],
    ids=range(15),
)  # fmt: skip
def test_long_text_takes_little_time(name: str, response: str) -> None:
    done: list[Grade] = []
    worker = threading.Thread(target=lambda: done.append(grade(PROBLEMS[name], response)), daemon=True)
    worker.start()
    worker.join(60)
    assert done, "still grading after a minute"
    assert done[0].score == 0.0


def test_threads_agree_with_each_other() -> None:
    responses = [rf"\boxed{{\frac{{{i}}}{{\sqrt{{{2 * i * i}}}}}}}" for i in range(1, 12)] * 3
    with ThreadPoolExecutor(8) as pool:
        scores = [verdict.score for verdict in pool.map(lambda r: grade(PROBLEMS["math"], r), responses)]
    assert scores == [1.0] * len(responses)


def test_the_symbolic_worker_comes_back_after_it_was_lost() -> None:
    worker = symbolic.SymbolicWorker()
    assert worker.is_equal("x+1", "1+x") is True
    worker.close()
    assert worker.is_equal("x+1", "2+x") is False
    worker.close()


def test_grade_many_keeps_the_order_and_mixes_graders() -> None:
    pairs = [
        (PROBLEMS["code"], fenced(ADD)),
        (PROBLEMS["choice"], "Answer: B"),
        (PROBLEMS["code"], fenced("def f(a, b): return 0")),
        (PROBLEMS["text"], "Answer: 12.5 km/h"),
        (PROBLEMS["math"], r"\boxed{\frac{1}{\sqrt{2}}}"),
        (PROBLEMS["text"], "Answer: 12.5"),
    ]
    assert [verdict.score for verdict in grade_many(pairs)] == [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    assert grade_many(pairs) == [grade(*pair) for pair in pairs]
    assert grade_many([]) == []


def test_a_repeated_program_runs_once(runs: list[Any]) -> None:
    response = fenced(f"{ADD}  # asked for many times")
    verdicts = grade_many([(PROBLEMS["code"], response)] * 50)
    verdicts += [grade(PROBLEMS["code"], "Other words, same program.\n" + response)]
    assert {verdict.score for verdict in verdicts} == {1.0}
    assert len(runs) == 1


# ── clusters, without a gold answer ──────────────────────────────────────────

FIRST = "Here:\n" + fenced("def f(x):\n    return x + 1")
SAME, OTHER = fenced("def f(x):  # one more\n\n    return (x+1)"), fenced("def f(x):\n    return 1 + x")
BROKEN = fenced("def f(x:\n    return x")


@pytest.mark.parametrize(
    ("asked", "responses", "groups"),
    [
        (PROBLEMS["math"], ["\\boxed{0.5}", "\\boxed{3}", "\\boxed{\\frac12}", None, "", "1/2"], [[0, 2, 5], [1]]),
        (PROBLEMS["choice"], ["Answer: B", "(A)", "two", "A or B?"], [[0, 2], [1]]),
        (PROBLEMS["text"], ["Answer: 3 km", "Answer: 3000 m", "Answer: Oslo", "the answer is oslo."], [[0, 1], [2, 3]]),
        (PROBLEMS["code"], [OTHER, FIRST, SAME, BROKEN, "none", BROKEN], [[0], [1, 2], [3, 5]]),
    ],
)
def test_equal_answers_form_one_cluster(asked: Problem, responses: list[str | None], groups: list[list[int]]) -> None:
    assert cluster_answers(asked, responses) == groups


def test_equality_is_asked_from_both_sides() -> None:
    # A rounded number equals an exact gold answer, and not the reverse.
    said = ["\\boxed{\\frac13}", "\\boxed{0.333333}"]
    assert [cluster_answers(PROBLEMS["math"], order) for order in (said, said[::-1])] == [[[0, 1]]] * 2


@pytest.mark.parametrize("gold", ["7", "7\n8", ""])
def test_the_gold_answer_is_not_used(gold: str) -> None:
    said = ["Answer: 7\n8", "Answer: 7", "Answer: 7\n9"]
    problem = PROBLEMS["text"]
    assert cluster_answers(replace(problem, answer=gold), said) == cluster_answers(replace(problem, answer="?"), said)
