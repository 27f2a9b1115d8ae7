"""CPU time in a verdict: scaled to the machine, repeated alone, reported, and never stored as final."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from ops.core.problem import CodeTest
from ops.grading import grade, grade_many, sandbox
from ops.grading.graders import code
from ops.grading.graders.code import SharedExclusiveLock
from tests.builders import fenced, make_code_problem, make_unit_test

# Uses CPU time until a run allows the wanted number of seconds.
WANTS = "import resource as r\nwhile r.getrlimit(r.RLIMIT_CPU)[0] < {seconds}: pass\n"
BURNS = WANTS + "def f():\n    return 42"
MAIN_BURNS = WANTS + "print(42)"
CALL, STDIN = CodeTest("call", "f()", "42"), CodeTest("stdin", "", "42")
SLOWNESS = code.measure_slowness
UNIT = make_unit_test("self.assertEqual(f(), 42)")


@pytest.fixture(autouse=True)
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """One CPU second for every kind, on a machine as fast as the reference."""
    for kind, limits in code.LIMITS.items():
        monkeypatch.setitem(code.LIMITS, kind, replace(limits, cpu_s=1, wall_s=200))
    monkeypatch.setattr(code, "measure_slowness", lambda: 1.0)


@pytest.mark.parametrize(("test", "program"), [(CALL, BURNS), (STDIN, MAIN_BURNS), (UNIT, BURNS)])
def test_out_of_cpu_time_is_said_and_never_remembered(
    test: CodeTest, program: str, late_programs_run_once: None, runs: list[Any]
) -> None:
    case, response = make_code_problem(test), fenced(program.format(seconds=1000))
    first = grade(case, response)
    assert first.score == 0.0
    assert "out of CPU time" in first.reason
    assert "not final" in first.reason
    assert not first.is_final
    once = len(runs)
    assert {run.limits.cpu_s for run in runs} == {1, code.RETRY_CPU_FACTOR}
    assert grade(case, response) == first
    assert len(runs) > once, "it was run again, not remembered"


@pytest.mark.parametrize(("test", "program"), [(CALL, BURNS), (STDIN, MAIN_BURNS)])
def test_a_program_near_the_limit_is_tried_again_by_itself(test: CodeTest, program: str, runs: list[Any]) -> None:
    verdict = grade(make_code_problem(test), fenced(program.format(seconds=2)))
    assert verdict.score == 1.0, verdict.reason
    assert [run.limits.cpu_s for run in runs] == [1, code.RETRY_CPU_FACTOR]


def test_no_program_runs_beside_one_that_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[float] = []
    together: list[tuple[float, int]] = []
    real = sandbox.run

    def noted(kind: Any, program: str, tests: Any, limits: sandbox.ProgramLimits, **more: Any) -> sandbox.SandboxResult:
        running.append(limits.cpu_s)
        try:
            return real(kind, program, tests, limits, **more)
        finally:
            together.append((limits.cpu_s, len(running)))
            running.remove(limits.cpu_s)

    monkeypatch.setattr(sandbox, "run", noted)
    monkeypatch.setitem(code.LIMITS, "stdin", replace(code.LIMITS["stdin"], wall_s=1))
    slow = [(make_code_problem(STDIN), fenced(f"import time\ntime.sleep(1000)\n# {i}")) for i in range(2)]
    quick = [
        (make_code_problem(CALL), fenced(f"import time\ndef f():\n    time.sleep(0.2)\n    return 42\n# {i}"))
        for i in range(8)
    ]
    verdicts = grade_many([*slow, *quick], workers=4)
    assert [verdict.score for verdict in verdicts] == [0.0, 0.0] + [1.0] * 8
    assert {count for cpu_s, count in together if cpu_s == code.RETRY_CPU_FACTOR} == {1}


def test_turns_alone_begin_when_the_others_have_ended() -> None:
    turns, order = SharedExclusiveLock(), []

    def alone() -> None:
        with turns.hold_exclusive():
            order.append("alone")

    waiting = threading.Thread(target=alone)
    with turns.hold_shared():
        waiting.start()
        waiting.join(0.2)
        order.append("beside")
    waiting.join(60)
    assert order == ["beside", "alone"]


def test_limits_grow_with_the_slowness_of_the_machine(monkeypatch: pytest.MonkeyPatch, runs: list[Any]) -> None:
    monkeypatch.setattr(code, "measure_slowness", lambda: 3.0)
    assert grade(make_code_problem(CALL), fenced(BURNS.format(seconds=3) + "\n# on a slow machine")).score == 1.0
    assert [run.limits.cpu_s for run in runs] == [3.0]


def test_slowness_is_a_ratio_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = iter([0.5, 0.4, 0.2, 0.9, 0.3])
    monkeypatch.setattr(code, "REFERENCE_LOOP_S", 0.1)
    monkeypatch.setattr(code, "_time_reference_loop", lambda: next(measured))
    SLOWNESS.cache_clear()
    try:
        assert SLOWNESS() == pytest.approx(2.0)
        assert SLOWNESS() == pytest.approx(2.0), "measured once a process"
    finally:
        SLOWNESS.cache_clear()
