"""Run tests of kind "unittest" and interpret their reports and those of their negative controls."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from ops.core.problem import FailedTest
from ops.grading import sandbox
from ops.grading.isolation import Libraries
from ops.grading.negative_controls import list_tests, make_negative_control
from ops.grading.values import ProgramFailure

_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class UnitTestReport(NamedTuple):
    """The report of one fork on one module of tests."""

    results: Mapping[str, tuple[str, str]]
    """Test → (status, reason)."""
    tampered: str
    """The part of unittest, of the builtins or of the tests that the program changed; "" if none."""
    stop_reason: str
    """The reason why no tests ran; "" if they ran."""


def run_unit_tests(program: str, code: str, limits: sandbox.ProgramLimits, libraries: Libraries) -> ProgramFailure:
    """Run the module of tests `code` on `program`, and its negative control, each in a separate sandbox.

    The order is random, because without bubblewrap a program can leave a mark for its next run.
    """
    chance = Random(secrets.randbits(64))
    wrong = make_negative_control(code, chance)
    modules = [code] if wrong is None else [code, wrong.code]
    runs: dict[int, sandbox.SandboxResult] = {}
    for place in chance.sample(range(len(modules)), len(modules)):
        run = runs[place] = sandbox.run("unittest", program, [modules[place]], limits, libraries=libraries)
        if run.results is None or len(run.results) != 1:
            return ProgramFailure(run.error or "ended without an answer", run.has_timed_out)
        if place == 0 and (failed := _read_failure(run, code)).reason:
            return failed
    if wrong is not None and (fooled := _find_wrongly_passed_test(runs[1].results, wrong.must_fail)):
        return ProgramFailure(f"passes tests that were made wrong: {fooled}")
    return ProgramFailure("")


def _read_failure(run: sandbox.SandboxResult, code: str) -> ProgramFailure:
    [(status, text)] = run.results or [("error", run.error)]
    return _find_failure(_parse_report(text), code) if status == "ran" else ProgramFailure(text, run.has_timed_out)


def _find_failure(report: UnitTestReport | None, code: str) -> ProgramFailure:
    if report is None:
        return ProgramFailure("a malformed report")
    if report.tampered:
        return ProgramFailure(f"changed {report.tampered}")
    if report.stop_reason or not report.results:
        return ProgramFailure(
            f"no test ran: {_shorten_error(report.stop_reason)}" if report.stop_reason else "no test ran"
        )
    fine = ("ok", "expected") if "expectedFailure" in code else ("ok",)
    bad = [number for number, (status, _) in enumerate(report.results.values(), 1) if status not in fine]
    if bad:
        name, (status, why) = list(report.results.items())[bad[0] - 1]
        first = FailedTest(bad[0], len(report.results), "unittest", f"{name}: {_shorten_error(why) or status}")
        return ProgramFailure(f"{first}" + (f"; {len(bad)} fail" if len(bad) > 1 else ""), failed_test=first)
    if missing := list_tests(code) - set(report.results):
        return ProgramFailure(f"{len(missing)} tests did not run: {min(missing)}")
    return ProgramFailure("")


def _shorten_error(why: str) -> str:
    """Return the error's first line; if it contains only the type (as
    in NLTK's frame of asterisks), also the next text.
    """
    lines = [text for line in _COLOURS.sub("", why).splitlines() if (text := line.strip(" *"))]
    return " ".join(lines[: 1 if lines and not lines[0].endswith(":") else 2])


def _find_wrongly_passed_test(results: list[Any] | None, must_fail: frozenset[str]) -> str:
    """Return a test that every correct program fails and that this program passed; "" if there is none."""
    [(status, text)] = results or [("error", "")]
    report = _parse_report(text) if status == "ran" else None
    became = report.results if report else {}
    return min((name for name in must_fail if became.get(name, ("", ""))[0] == "ok"), default="")


def _parse_report(text: str) -> UnitTestReport | None:
    """Return the fork's report; None unless the output is exactly one well-formed report."""
    try:
        match json.loads(text):
            case ["stopped", str(why)]:
                return UnitTestReport({}, "", why or "stopped")
            case ["tests", list(rows), str(tampered)]:
                became = {name: (status, why) for name, status, why in rows}
                if len(became) == len(rows) and all(
                    isinstance(part, str) for name, row in became.items() for part in (name, *row)
                ):
                    return UnitTestReport(became, tampered, "")
    except (ValueError, TypeError, RecursionError):
        return None
    return None
