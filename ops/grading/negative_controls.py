"""Negative controls: tests that are falsified on purpose. A program that passes them does not pass because it is right.

Where a test and the program share a process, no check inside that process can be trusted, because the program may have
changed the check. But a program that patched the assertions, forged the report, returns an object that equals
everything or reads the expected values from its caller passes any test, so it passes the controls too. It cannot
distinguish them from the tests: both come from outside, in random order, each into a process of its own.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from functools import lru_cache
from random import Random
from typing import NamedTuple, TypeGuard

from ops.core.cpython import parse

_EQUAL = frozenset(
    f"assert{name}"
    for name in (
        "Equal", "Equals", "AlmostEqual", "AlmostEquals", "ListEqual", "DictEqual", "TupleEqual", "SetEqual",
        "SequenceEqual", "MultiLineEqual", "CountEqual",
    )
)  # fmt: skip
_ORDER = frozenset({"assertGreater", "assertLess"})
_RAISES = frozenset({"assertRaises", "assertRaisesRegex"})
_UNEXPECTED_ERROR = "UnicodeTranslateError"
"""The name of an error that no test expects."""


class NegativeControl(NamedTuple):
    """A module of falsified tests, and the names of those tests that a correct program certainly fails."""

    code: str
    must_fail: frozenset[str]


Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=256)
def list_tests(code: str) -> frozenset[str]:
    """Return `Class.method` of every test in the module; empty if they cannot be determined from its text."""
    cases = _find_test_classes(_parse_or_empty(code))
    return frozenset(
        f"{case.name}.{f.name}" for case in cases for f in _list_functions(case) if f.name.startswith("test")
    )


def list_test_classes(code: str) -> list[str]:
    """Return the names of the test classes in the order of unittest's loader."""
    return sorted({case.name for case in _find_test_classes(_parse_or_empty(code))})


def make_negative_control(code: str, random: Random) -> NegativeControl | None:
    """Return the module with falsified assertions; None if no assertion can be falsified with certainty."""
    tree = _parse_or_empty(code)
    must_fail: set[str] = set()
    foreign = _find_program_names(tree)
    for case in _find_test_classes(tree):
        altered = {function.name: _AssertionMutator(function, foreign, random) for function in _list_functions(case)}
        sure = {name for name, alteration in altered.items() if alteration.must_fail}
        while more := {name for name, alteration in altered.items() if name not in sure and alteration.helpers & sure}:
            sure |= more
        must_fail |= {f"{case.name}.{name}" for name in sure if name.startswith("test")}
    if not must_fail:
        return None
    return NegativeControl(ast.unparse(ast.fix_missing_locations(tree)), frozenset(must_fail))


def _parse_or_empty(code: str) -> ast.Module:
    try:
        tree: ast.Module = parse(code)
        return tree
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the sandbox reports it
        return ast.Module([], [])


def _find_test_classes(tree: ast.Module) -> list[ast.ClassDef]:
    """Return the top-level classes that are derived from a class named …TestCase, or from such a class."""
    cases: dict[str, ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases]
            if any(base.endswith("TestCase") or base in cases for base in bases):
                cases[node.name] = node
    return list(cases.values())


def _list_functions(case: ast.ClassDef) -> list[Function]:
    return list({f.name: f for f in case.body if isinstance(f, Function)}.values())


def _find_program_names(tree: ast.Module) -> frozenset[str]:
    """Return the names that the module uses without defining them, which are the program's."""
    made = set(dir(builtins))
    used = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                made.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                made.add(name)
            case ast.alias(name=name, asname=short):
                made.add(short or name.partition(".")[0])
    return frozenset(used - made)


class _AssertionMutator:
    """Falsifies the assertions of one function in place."""

    def __init__(self, function: Function, foreign: frozenset[str], random: Random) -> None:
        self.must_fail = False
        """Whether an assertion that every call reaches was made wrong."""
        self.helpers: set[str] = set()
        """Methods of its own class that every call calls."""
        self._random, self._program = random, set(foreign)
        for _ in range(2):
            self._program |= _find_assigned_variables(function, self._program)
        self._visit_block(function.body, always=True)

    def _visit_block(self, body: Iterable[ast.stmt], always: bool) -> None:
        for statement in body:
            match statement:
                case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call)):
                    self._visit_call(call, always)
                case ast.Assert():
                    statement.test = self._negate(statement.test)
                    self.must_fail |= always
                case ast.With() | ast.AsyncWith():
                    if not self._expects_error(statement, always):
                        self._visit_block(statement.body, always and not _may_suppress_failure(statement))
                case ast.For() | ast.AsyncFor() | ast.While() | ast.If():
                    self._visit_block([*statement.body, *statement.orelse], always=False)
                case ast.Return() | ast.Raise():
                    return
                case ast.Assign(value=ast.Call() as call) if _called_method(call):
                    self._record_helper(call, always)

    def _visit_call(self, call: ast.Call, always: bool) -> None:
        if self._falsify_assertion(call):
            self.must_fail |= always
        else:
            self._record_helper(call, always)

    def _record_helper(self, call: ast.Call, always: bool) -> None:
        if always and (name := _called_method(call)):
            self.helpers.add(name)

    def _expects_error(self, statement: ast.With | ast.AsyncWith, always: bool) -> bool:
        for item in statement.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _called_method(call) in _RAISES and call.args:
                call.args[0] = ast.Name(_UNEXPECTED_ERROR, ast.Load())
                self.must_fail |= always
                return True
        return False

    def _falsify_assertion(self, call: ast.Call) -> bool:
        """Falsify one assertion; return whether a correct program now certainly fails it."""
        name, args = _called_method(call), call.args
        if any(isinstance(arg, ast.Starred) for arg in args):
            return False
        if name in _EQUAL and len(args) >= 2:
            side = self._choose_operand(args[0], args[1])
            args[side] = self._change_value(args[side])
        elif name == "assertTrue" and args:
            args[0] = self._negate(args[0])
        elif name == "assertFalse" and args:
            args[0] = ast.UnaryOp(ast.Not(), args[0])
        elif name == "assertIn" and len(args) >= 2:
            args[0] = self._change_value(args[0])
        elif name in _ORDER and len(args) >= 2:
            args[0], args[1] = args[1], args[0]
        elif name == "assertIsNone" and args:
            args[0] = ast.Tuple([args[0]], ast.Load())
        elif name == "assertIsNotNone" and args:
            args[0] = ast.BoolOp(ast.And(), [ast.Tuple([args[0]], ast.Load()), ast.Constant(None)])
        elif name == "assertIsInstance" and len(args) >= 2:
            args[1] = ast.Name("memoryview", ast.Load())
        elif name in _RAISES and args:
            args[0] = ast.Name(_UNEXPECTED_ERROR, ast.Load())
        else:
            return self._falsify_library_assertion(call)
        return True

    def _falsify_library_assertion(self, call: ast.Call) -> bool:
        """Falsify an assertion of a library: `np.testing.assert_allclose`, `mock.assert_called_with` and similar."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if not name.startswith("assert_"):
            return False
        if name in ("assert_called_with", "assert_called_once_with", "assert_any_call"):
            call.args.append(ast.Constant(self._draw_number()))
        elif name in ("assert_called", "assert_called_once") and isinstance(call.func, ast.Attribute):
            call.func.attr = "assert_not_called"
        elif name.endswith(("_equal", "_allclose", "_array_almost_equal")) and len(call.args) >= 2:
            side = self._choose_operand(*call.args[:2])
            call.args[side] = self._change_value(call.args[side])
        else:
            return False
        return True

    def _choose_operand(self, first: ast.expr, second: ast.expr) -> int:
        """Return the index of the operand to change: the one that is not the program's value, which may equal any
        value."""
        if _is_literal(second) or _is_literal(first):
            return int(_is_literal(second))
        return int(not _mentions(second, self._program) or _mentions(first, self._program))

    def _negate(self, test: ast.expr) -> ast.expr:
        """Return an expression that is false if `test` is true."""
        match test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]) if not _is_literal(left):
                return ast.Compare(left, [ast.Eq()], [self._change_value(right)])
        return ast.UnaryOp(ast.Not(), test)

    def _change_value(self, value: ast.expr) -> ast.expr:
        """Return another value of the same type for a literal; otherwise a tuple that contains the value."""
        match value:
            case ast.Constant(value=bool(flag)):
                return ast.Constant(not flag)
            case ast.Constant(value=int(number)):
                return ast.Constant(number + self._draw_number() + abs(number))
            case ast.Constant(value=float(number)):
                return ast.Constant(number + self._draw_number() + abs(number))
            case ast.Constant(value=str(text)):
                return ast.Constant(f"{text}{self._draw_number()}")
            case ast.Constant(value=bytes(data)):
                return ast.Constant(data + str(self._draw_number()).encode())
            case ast.UnaryOp(op=ast.USub()):
                return ast.BinOp(value, ast.Sub(), ast.Constant(self._draw_number()))
            case ast.List(elts=items) | ast.Set(elts=items):
                return type(value)(
                    [*items, ast.Constant(self._draw_number())], *([ast.Load()] if _is_list(value) else [])
                )
            case ast.Dict(keys=keys, values=values):
                return ast.Dict([*keys, ast.Constant(self._draw_number())], [*values, ast.Constant(None)])
        return ast.Tuple([value, ast.Constant(self._draw_number())], ast.Load())

    def _draw_number(self) -> int:
        return self._random.randrange(1_000, 100_000)


def _is_list(value: ast.expr) -> bool:
    return isinstance(value, ast.List)


def _called_method(call: ast.Call) -> str:
    """Return `name` of `self.name(…)`."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
            return name
    return ""


def _may_suppress_failure(statement: ast.With | ast.AsyncWith) -> bool:
    """Return whether a failure inside the block may be suppressed."""
    text = " ".join(ast.unparse(item.context_expr) for item in statement.items)
    return "aises" in text or "suppress" in text or "assertWarns" in text


def _is_literal(value: ast.expr) -> TypeGuard[ast.expr]:
    return not any(isinstance(node, ast.Name | ast.Call | ast.Attribute) for node in ast.walk(value))


def _mentions(value: ast.expr, names: set[str]) -> bool:
    """Return whether a call of one of `names`, or a name with its result, is part of the expression."""
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(value))


def _find_assigned_variables(function: Function, names: set[str]) -> set[str]:
    variables = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _mentions(node.value, names):
            targets = (leaf for target in node.targets for leaf in ast.walk(target))
            variables |= {leaf.id for leaf in targets if isinstance(leaf, ast.Name)}
    return variables
