"""Grading: short programs beside their bare start in the same sandbox, 14,042 responses to choices beside a bare
pattern, and 5,000 responses to MATH, including hostile ones, beside bare math-verify.

The rows are real ones if their files exist beside the project, and embedded ones otherwise.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ops.core.problem import CodeTest, Problem
from ops.grading import grade_many
from ops.grading.isolation import build_bubblewrap_command, find_available_isolation, podium_libraries
from tests.bench.forms import bare_math_verify, cpu_s
from tests.bench.real_data import RowsFile, problems_of
from tests.bench.row import Absent, Row, sized

PROGRAMS, AT_ONCE, ROUNDS = sized(40, 4), 2, sized(4, 1)
CHOICES, FORMULAS, EVERY = sized(14_042, 500), sized(5_000, 100), 10
"""Sizes of MMLU's test split and of ten runs of MATH500; math-verify reads every tenth."""
ENDS = ("Answer: {}", "The answer is ({}).", r"So it is \boxed{{{}}}.", "**{}**", "Therefore, option {} is correct.")
LETTER = re.compile(r"\b[A-Z]\b")
HOSTILE = (
    r"\boxed{9^{9^{9^{9}}}}", r"\boxed{10^{10^{10}} + 1}", r"\boxed{(((1000!)!)!)}", r"\boxed{\frac" * 2_000,
    r"\boxed{" + "{" * 20_000, r"\boxed{" + r"\sqrt{" * 3_000 + "2" + "}" * 3_000 + "}", "$" * 50_000,
    r"\boxed{" + "+".join(f"x^{{{n}}}" for n in range(1_000)) + "}", r"\boxed{\sum_{n=1}^{10^{12}} \frac{1}{n^7}}",
    r"\boxed{" + "1" * 50_000 + "}",
)  # fmt: skip
SEED = 0
MMLU = [RowsFile(name, "mmlu", "mmlu", "choice") for name in ("mmlu_test_part", "mmlu_val", "mmlu_dev")]
MATH = [RowsFile("math_train", "math500", "math", "math")]


# ── programs ─────────────────────────────────────────────────────────────────


def _programs() -> Iterator[Row]:
    """Measure a program's wall-clock time: `AT_ONCE` run at a time on both sides, and the fastest of alternating rounds
    counts, since other work only adds.
    """
    if find_available_isolation() != "bubblewrap":
        raise Absent("bubblewrap")
    ours, bare = [], []
    for number in range(ROUNDS):
        sources = [_source(number * PROGRAMS + i) for i in range(PROGRAMS)]
        ours.append(_wall_s(lambda sources=sources: _grade_programs(sources)))
        bare.append(_wall_s(lambda sources=sources: _start_programs(sources)))
    name = f"grading: a short program, {AT_ONCE} at once"
    yield Row(name, min(ours) * 1e3, "the same in bare bwrap", min(bare) * 1e3, 3.0, "ms")


def _source(number: int) -> str:
    return f"n = int(input())\ntotal = sum(k * k % {number + 2} for k in range(n))\nprint(total)"


def _expected(number: int) -> str:
    return str(sum(k * k % (number + 2) for k in range(50)))


def _grade_programs(sources: list[str]) -> None:
    first = int(sources[0].split("% ")[1].split(" ")[0]) - 2
    pairs = []
    for place, source in enumerate(sources):
        tests = (CodeTest("stdin", "50\n", _expected(first + place)),)
        problem = Problem(str(first + place), "livecodebench", "code", "test", "?", "", "code", tests=tests)
        pairs.append((problem, f"```python\n{source}\n```"))
    assert all(grade.correct for grade in grade_many(pairs, workers=AT_ONCE))


def _start_programs(sources: list[str]) -> None:
    python = os.path.realpath(sys.executable)

    def start(source: str) -> None:
        command = [*build_bubblewrap_command(podium_libraries()), python, "-I", "-S", "-c", source]
        subprocess.run(command, input="50\n", env={}, capture_output=True, text=True, check=True, timeout=240)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(start, sources))


def _wall_s(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) / PROGRAMS


# ── choices and formulas ─────────────────────────────────────────────────────


def _choices() -> Iterator[Row]:
    """Measure the CPU time of reading the letter of a choice in many responses."""
    problems = problems_of(MMLU, "test", 1000, SEED)
    chance = random.Random(SEED)
    pairs = []
    for number in range(CHOICES):
        problem = problems[number % len(problems)]
        letters = "ABCDEFGHIJ"[: len(problem.choices)]
        thought = f"{problem.question} Let me go through what is offered. {' '.join(problem.choices)} "
        pairs.append((problem, f"{thought}\n{chance.choice(ENDS).format(chance.choice(letters))}\n{number}"))
    ours = _cpu_s(lambda: grade_many(pairs))
    bare = _cpu_s(lambda: [LETTER.findall(response)[-1:] for _, response in pairs])
    name = f"grading: {CHOICES:,} responses to MMLU"
    yield Row(name, ours, "the last capital letter, by re", bare, 60, "CPU s")


def _formulas() -> Iterator[Row]:
    """Read all responses, including hostile ones, with Podium's
    grader; math-verify reads every tenth other one, times ten.
    """
    problems = [problem for problem in problems_of(MATH, "test", 1000, SEED) if problem.answer.strip()]
    chance, pairs = random.Random(SEED), []
    for number in range(FORMULAS):
        problem, other = problems[number % len(problems)], chance.choice(problems)
        answer = problem.answer if chance.random() < 0.6 else other.answer
        pairs.append((problem, f"{problem.question}\nWe compute step by step. So it is $\\boxed{{{answer}}}$."))
    hostile = [(problems[number], text) for number, text in enumerate(HOSTILE)]
    ours = _cpu_s(lambda: grade_many([*pairs, *hostile]))
    sampled = pairs[::EVERY]
    bare = EVERY * _cpu_s(lambda: [bare_math_verify(problem.answer, response) for problem, response in sampled])
    name = f"grading: {FORMULAS:,} responses to MATH and {len(HOSTILE)} hostile ones"
    yield Row(name, ours, "math-verify without those", bare, 0.3, "CPU s")


def _cpu_s(work: Callable[[], Any]) -> float:
    """Return the CPU seconds of one execution; short ones are repeated because the clock has a resolution of 10 ms."""
    began, times = cpu_s(), 0
    while times == 0 or cpu_s() - began < 0.1:
        work()
        times += 1
    return (cpu_s() - began) / times


PARTS = (_programs, _choices, _formulas)
"""The measurements of `make bench`."""
