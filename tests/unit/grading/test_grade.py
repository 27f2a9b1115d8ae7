"""Properties of every grader: total for any text, deterministic, thread-safe, memoized."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.core.problem import CodeTest, Grade, Problem
from ops.grading import grade, grade_many, symbolic

ADD = "def f(a, b):\n    return a + b"
PROBLEMS = {
    "math": Problem("m", "math500", "math", "test", "?", r"\frac{\sqrt{2}}{2}", "math"),
    "choice": Problem("c", "mmlu", "mmlu", "test", "?", "B", "choice", ("one", "two", "three", "four")),
    "text": Problem("t", "rlpr", "rlpr", "test", "?", "12.5 km/h", "text"),
    "code": Problem("k", "livecodebench", "code", "test", "?", ADD, "code", tests=(CodeTest("call", "f(1, 2)", "3"),)),
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
    assert grade(PROBLEMS["code"], f"```python\n{response}\n```").score == 0.0


@given(gold=any_text | pieces)
@settings(max_examples=150, deadline=None)
def test_any_gold_answer_is_handled(gold: str) -> None:
    for name in ("math", "text"):
        case = Problem("g", "rlpr", "rlpr", "test", "?", gold, PROBLEMS[name].grader)
        assert grade(case, "Answer: 5 km").score in (0.0, 1.0)


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
    assert worker.equal("x+1", "1+x") is True
    worker.close()
    assert worker.equal("x+1", "2+x") is False
    worker.close()


def test_grade_many_keeps_the_order_and_mixes_graders() -> None:
    pairs = [
        (PROBLEMS["code"], f"```python\n{ADD}\n```"),
        (PROBLEMS["choice"], "Answer: B"),
        (PROBLEMS["code"], "```python\ndef f(a, b): return 0\n```"),
        (PROBLEMS["text"], "Answer: 12.5 km/h"),
        (PROBLEMS["math"], r"\boxed{\frac{1}{\sqrt{2}}}"),
        (PROBLEMS["text"], "Answer: 12.5"),
    ]
    assert [verdict.score for verdict in grade_many(pairs)] == [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    assert grade_many(pairs) == [grade(*pair) for pair in pairs]
    assert grade_many([]) == []


def test_a_repeated_program_runs_once(runs: list[Any]) -> None:
    response = f"```python\n{ADD}  # asked for many times\n```"
    verdicts = grade_many([(PROBLEMS["code"], response)] * 50)
    verdicts += [grade(PROBLEMS["code"], "Other words, same program.\n" + response)]
    assert {verdict.score for verdict in verdicts} == {1.0}
    assert len(runs) == 1
