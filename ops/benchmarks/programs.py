"""Tests of programs as benchmark files write them, turned into `CodeTest`s."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ops.core.errors import DataError
from ops.core.problem import CodeTest

Fail = Callable[[str, str, str], DataError]
KINDS = ("stdin", "call", "unittest")


def code_tests(value: Any, fail: Fail) -> tuple[CodeTest, ...]:
    """The tests of a code row. `fail(column, problem, remedy)` makes the error that is raised.

    `value` is a list of our own `{kind, input, output, hidden}`, or `{kind: "unittest", code}`, or
    `{kind: "stdin" | "functional", fn_name, method, public, private}` with lists of `{input, output}`:
    a functional input holds one JSON value a line, the arguments in order. Those under `private` are hidden.
    """
    if isinstance(value, list):
        tests = tuple(_own(test, fail) for test in value)
    elif isinstance(value, Mapping) and value.get("kind") == "unittest":
        tests = (CodeTest("unittest", _text(value, "code", fail)),)
    elif isinstance(value, Mapping):
        tests = tuple(
            replace(_case(value, case, fail), hidden=part == "private")
            for part in ("public", "private")
            for case in _cases(value, part, fail)
        )
    else:
        raise fail("tests", f"is {type(value).__name__}, not a list or an object", "Give the program's tests")
    if not tests:
        raise fail("tests", "holds no test", "Add at least one: without it nothing can be graded")
    return tests


def _cases(group: Mapping[str, Any], part: str, fail: Fail) -> list[Any]:
    cases = group.get(part) or []
    if not isinstance(cases, list):
        raise fail("tests", f"has {part} tests that are no list", "Write a list of {input, output}")
    return cases


def _own(test: Any, fail: Fail) -> CodeTest:
    if not isinstance(test, Mapping) or test.get("kind") not in KINDS:
        raise fail("tests", f"has a test that is not of kind {', '.join(KINDS)}", "Give each its kind and input")
    output = test.get("output", "")
    if not isinstance(output, str):
        raise fail("tests", "has a test whose output is not text", "Write it as a JSON string")
    hidden = test.get("hidden", False)
    if not isinstance(hidden, bool):
        raise fail("tests", "has a test whose 'hidden' is neither true nor false", "Write true, false or nothing")
    return CodeTest(test["kind"], _text(test, "input", fail), output, hidden)


def _case(group: Mapping[str, Any], case: Any, fail: Fail) -> CodeTest:
    if not isinstance(case, Mapping):
        raise fail("tests", "has a test that is no object", "Write {input, output}")
    given, wanted = _text(case, "input", fail), _text(case, "output", fail)
    if group.get("kind") == "stdin":
        return CodeTest("stdin", given, wanted)
    if group.get("kind") != "functional":
        raise fail("tests", f"is of unknown kind {group.get('kind')!r}", "Use stdin, functional or unittest")
    name = _text(group, "fn_name", fail)
    called = f"Solution().{name}" if group.get("method") else name
    try:
        arguments = ", ".join(repr(json.loads(line)) for line in given.split("\n") if line.strip())
        return CodeTest("call", f"{called}({arguments})", repr(json.loads(wanted)))
    except ValueError as error:
        raise fail("tests", f"has a value that is not JSON ({error})", "Write one JSON value a line") from None


def _text(values: Mapping[str, Any], key: str, fail: Fail) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise fail("tests", f"has no text under {key!r}", "Add it")
    return value
