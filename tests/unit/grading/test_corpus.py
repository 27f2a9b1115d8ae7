"""The near-miss corpus: for each benchmark, forms of the gold answer that must count and near misses that must not.

A case says why it is there. The files in `corpus/` are the table; code has its own file, for its cases are programs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ops.benchmarks.registry import BENCHMARKS
from ops.core.problem import CodeTest, Problem
from ops.grading import grade
from ops.grading.graders import code

CORPUS = Path(__file__).with_name("corpus")
LEAST = {"math": 25, "text": 15, "choice": 12, "code": 10}
"""Cases of each kind that every grader has at least, over its benchmarks."""


class Case(NamedTuple):
    """One line of the corpus."""

    benchmark: str
    score: float
    gold: str
    given: str
    why: str
    choices: tuple[str, ...] = ()
    tests: tuple[CodeTest, ...] = ()


def read(file: Path) -> list[Case]:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    choices = tuple(content.get("choices", ()))
    if "problems" in content:
        return [case for entry in content["problems"] for case in programs(file.stem, entry)]
    return [
        Case(file.stem, score, gold, given, why, choices)
        for name, score in (("right", 1.0), ("wrong", 0.0))
        for gold, given, why in content[name]
    ]


def programs(benchmark: str, entry: dict[str, Any]) -> list[Case]:
    tests = tuple(CodeTest(**test) for test in entry["tests"])
    return [
        Case(benchmark, score, "", f"```python\n{program}\n```", f"{entry['name']}: {why}", (), tests)
        for name, score in (("right", 1.0), ("wrong", 0.0))
        for why, program in entry[name].items()
    ]


CASES = [case for file in sorted(CORPUS.glob("*.yaml")) for case in read(file)]


def response(case: Case) -> str:
    """What a worker would write: answers that are no whole responses are put into the form that is asked for."""
    grader = BENCHMARKS[case.benchmark].grader
    if case.benchmark == "math500":
        return rf"So it is $\boxed{{{case.given}}}$."
    return f"Some thought.\nAnswer: {case.given}" if grader == "text" else case.given


@pytest.fixture(autouse=True)
def one_second(monkeypatch: pytest.MonkeyPatch, late_programs_run_once: None) -> None:
    """Limit the CPU time: the programs take microseconds, but for one that never ends."""
    for kind in ("call", "stdin"):
        monkeypatch.setitem(code.LIMITS, kind, replace(code.LIMITS[kind], cpu_s=1))


@pytest.mark.parametrize("case", CASES, ids=[f"{c.benchmark}-{'right' if c.score else 'wrong'}-{c.why}" for c in CASES])
def test_the_grader_agrees_with_the_corpus(case: Case) -> None:
    entry = BENCHMARKS[case.benchmark]
    problem = Problem(
        "p", case.benchmark, entry.domain, "test", "?", case.gold, entry.grader, case.choices, case.tests
    )
    verdict = grade(problem, response(case))
    assert verdict.score == case.score, (case.why, verdict)


def test_every_benchmark_and_grader_has_cases_of_both_kinds() -> None:
    for name in BENCHMARKS:
        assert {case.score for case in CASES if case.benchmark == name} == {0.0, 1.0}, name
    for grader, least in LEAST.items():
        for score in (0.0, 1.0):
            cases = [c for c in CASES if BENCHMARKS[c.benchmark].grader == grader and c.score == score]
            assert len(cases) >= least, (grader, score, len(cases))
