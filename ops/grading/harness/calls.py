"""Run tests of kind "call": evaluate expressions in the program's module and send their values as plain data."""

# ruff: noqa: BLE001
# Any exception of a program is its verdict.

from __future__ import annotations

from ops.grading.harness.guard import install_guard, set_limits
from ops.grading.harness.plain import describe_error, encode_value, make_module, quote_json

TYPE_CHECKING = False  # `typing` would take 7 ms of every run
if TYPE_CHECKING:
    from typing import Any

_PRELUDE = (
    "from typing import *\nfrom collections import *\nfrom heapq import *\nfrom bisect import *\n"
    "from math import *\nfrom functools import *\nfrom itertools import *\n"
    "import collections, heapq, bisect, math, functools, itertools\n"
    "import string, re, random, operator\ndel pow\n"
)
"""The imports that a `class Solution` may rely on, as on the contest site."""


def run(job: dict[str, Any]) -> str:
    """Evaluate every call in one copy of the program; stop at the first one that fails."""
    set_limits(job, job["cpu_s"])
    install_guard(job)
    names = make_module("solution").__dict__
    results = []
    try:
        if "class Solution" in job["program"]:
            exec(_PRELUDE, names)
        exec(compile(job["program"], "program.py", "exec", dont_inherit=True), names)
    except BaseException as error:  # SystemExit too: a program that exits has not answered
        return f'[["error", {quote_json(describe_error(error))}]]'
    for expression in job["tests"]:
        try:
            results.append(f'["ok", {encode_value(eval(expression, names))}]')
        except BaseException as error:  # as above
            results.append(f'["error", {quote_json(describe_error(error))}]')
            break
    return "[" + ", ".join(results) + "]"
