"""Controls: tests made wrong on purpose. A program that passes them does not pass by being right.

Where test and program share a process, no check inside it can be trusted: the program may have changed the check.
But a program that patched the assertions, forged the report, returns an object that equals everything or reads
the expected values from its caller passes any test, so it passes the controls too. It cannot distinguish them
from the tests: both come from outside, in random order, each into a process of its own.
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
_UNLIKELY = "UnicodeTranslateError"
"""An error that no test expects."""


class Control(NamedTuple):
    """A module of wrong tests, and those of them that a correct program certainly fails."""

    code: str
    must_fail: frozenset[str]


Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=256)
def names_of_tests(code: str) -> frozenset[str]:
    """Return `Class.method` of every test in the module; empty if they cannot be determined from its text."""
    cases = _cases(_parsed(code))
    return frozenset(f"{case.name}.{f.name}" for case in cases for f in _functions(case) if f.name.startswith("test"))


def classes_of_tests(code: str) -> list[str]:
    """Return the test classes in the order of unittest's loader."""
    return sorted({case.name for case in _cases(_parsed(code))})


def control(code: str, random: Random) -> Control | None:
    """Return the module with wrong assertions; None if no test has an assertion that can be made wrong with
    certainty."""
    tree = _parsed(code)
    must_fail: set[str] = set()
    foreign = _foreign(tree)
    for case in _cases(tree):
        altered = {function.name: _Alteration(function, foreign, random) for function in _functions(case)}
        sure = {name for name, alteration in altered.items() if alteration.sure}
        while more := {name for name, alteration in altered.items() if name not in sure and alteration.helpers & sure}:
            sure |= more
        must_fail |= {f"{case.name}.{name}" for name in sure if name.startswith("test")}
    if not must_fail:
        return None
    return Control(ast.unparse(ast.fix_missing_locations(tree)), frozenset(must_fail))


def _parsed(code: str) -> ast.Module:
    try:
        tree: ast.Module = parse(code)
        return tree
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the sandbox reports it
        return ast.Module([], [])


def _cases(tree: ast.Module) -> list[ast.ClassDef]:
    """Return top-level classes derived from a class named …TestCase, or from such a class."""
    cases: dict[str, ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases]
            if any(base.endswith("TestCase") or base in cases for base in bases):
                cases[node.name] = node
    return list(cases.values())


def _functions(case: ast.ClassDef) -> list[Function]:
    return list({f.name: f for f in case.body if isinstance(f, Function)}.values())


def _foreign(tree: ast.Module) -> frozenset[str]:
    """Return names that the module uses without defining them: the program's."""
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


class _Alteration:
    """One function whose assertions are made wrong in place."""

    def __init__(self, function: Function, foreign: frozenset[str], random: Random) -> None:
        self.sure = False
        """Whether an assertion that every call reaches was made wrong."""
        self.helpers: set[str] = set()
        """Methods of its own class that every call calls."""
        self._random, self._program = random, set(foreign)
        for _ in range(2):
            self._program |= _assigned_from(function, self._program)
        self._block(function.body, always=True)

    def _block(self, body: Iterable[ast.stmt], always: bool) -> None:
        for statement in body:
            match statement:
                case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call)):
                    self._call(call, always)
                case ast.Assert():
                    statement.test = self._false(statement.test)
                    self.sure |= always
                case ast.With() | ast.AsyncWith():
                    if not self._expects_error(statement, always):
                        self._block(statement.body, always and not _may_swallow(statement))
                case ast.For() | ast.AsyncFor() | ast.While() | ast.If():
                    self._block([*statement.body, *statement.orelse], always=False)
                case ast.Return() | ast.Raise():
                    return
                case ast.Assign(value=ast.Call() as call) if _method(call):
                    self._helper(call, always)

    def _call(self, call: ast.Call, always: bool) -> None:
        if self._wrong(call):
            self.sure |= always
        else:
            self._helper(call, always)

    def _helper(self, call: ast.Call, always: bool) -> None:
        if always and (name := _method(call)):
            self.helpers.add(name)

    def _expects_error(self, statement: ast.With | ast.AsyncWith, always: bool) -> bool:
        for item in statement.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _method(call) in _RAISES and call.args:
                call.args[0] = ast.Name(_UNLIKELY, ast.Load())
                self.sure |= always
                return True
        return False

    def _wrong(self, call: ast.Call) -> bool:
        """Make one assertion wrong; return whether a correct program now certainly fails it."""
        name, args = _method(call), call.args
        if any(isinstance(arg, ast.Starred) for arg in args):
            return False
        if name in _EQUAL and len(args) >= 2:
            side = self._side(args[0], args[1])
            args[side] = self._other(args[side])
        elif name == "assertTrue" and args:
            args[0] = self._false(args[0])
        elif name == "assertFalse" and args:
            args[0] = ast.UnaryOp(ast.Not(), args[0])
        elif name == "assertIn" and len(args) >= 2:
            args[0] = self._other(args[0])
        elif name in _ORDER and len(args) >= 2:
            args[0], args[1] = args[1], args[0]
        elif name == "assertIsNone" and args:
            args[0] = ast.Tuple([args[0]], ast.Load())
        elif name == "assertIsNotNone" and args:
            args[0] = ast.BoolOp(ast.And(), [ast.Tuple([args[0]], ast.Load()), ast.Constant(None)])
        elif name == "assertIsInstance" and len(args) >= 2:
            args[1] = ast.Name("memoryview", ast.Load())
        elif name in _RAISES and args:
            args[0] = ast.Name(_UNLIKELY, ast.Load())
        else:
            return self._wrong_call_of_library(call)
        return True

    def _wrong_call_of_library(self, call: ast.Call) -> bool:
        """Make a library's assertion wrong: `np.testing.assert_allclose`, `mock.assert_called_with` and similar."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if not name.startswith("assert_"):
            return False
        if name in ("assert_called_with", "assert_called_once_with", "assert_any_call"):
            call.args.append(ast.Constant(self._number()))
        elif name in ("assert_called", "assert_called_once") and isinstance(call.func, ast.Attribute):
            call.func.attr = "assert_not_called"
        elif name.endswith(("_equal", "_allclose", "_array_almost_equal")) and len(call.args) >= 2:
            side = self._side(*call.args[:2])
            call.args[side] = self._other(call.args[side])
        else:
            return False
        return True

    def _side(self, first: ast.expr, second: ast.expr) -> int:
        """Return which of two values to change: not the program's, which may equal any value."""
        if _is_literal(second) or _is_literal(first):
            return int(_is_literal(second))
        return int(not _mentions(second, self._program) or _mentions(first, self._program))

    def _false(self, test: ast.expr) -> ast.expr:
        """Return an expression that is false if `test` is true."""
        match test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]) if not _is_literal(left):
                return ast.Compare(left, [ast.Eq()], [self._other(right)])
        return ast.UnaryOp(ast.Not(), test)

    def _other(self, value: ast.expr) -> ast.expr:
        """Return another value of the same type for a literal, else one that contains it."""
        match value:
            case ast.Constant(value=bool(flag)):
                return ast.Constant(not flag)
            case ast.Constant(value=int(number)):
                return ast.Constant(number + self._number() + abs(number))
            case ast.Constant(value=float(number)):
                return ast.Constant(number + self._number() + abs(number))
            case ast.Constant(value=str(text)):
                return ast.Constant(f"{text}{self._number()}")
            case ast.Constant(value=bytes(data)):
                return ast.Constant(data + str(self._number()).encode())
            case ast.UnaryOp(op=ast.USub()):
                return ast.BinOp(value, ast.Sub(), ast.Constant(self._number()))
            case ast.List(elts=items) | ast.Set(elts=items):
                return type(value)([*items, ast.Constant(self._number())], *([ast.Load()] if _ordered(value) else []))
            case ast.Dict(keys=keys, values=values):
                return ast.Dict([*keys, ast.Constant(self._number())], [*values, ast.Constant(None)])
        return ast.Tuple([value, ast.Constant(self._number())], ast.Load())

    def _number(self) -> int:
        return self._random.randrange(1_000, 100_000)


def _ordered(value: ast.expr) -> bool:
    return isinstance(value, ast.List)


def _method(call: ast.Call) -> str:
    """Return `name` of `self.name(…)`."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
            return name
    return ""


def _may_swallow(statement: ast.With | ast.AsyncWith) -> bool:
    """Return whether a failure inside the block may be suppressed."""
    text = " ".join(ast.unparse(item.context_expr) for item in statement.items)
    return "aises" in text or "suppress" in text or "assertWarns" in text


def _is_literal(value: ast.expr) -> TypeGuard[ast.expr]:
    return not any(isinstance(node, ast.Name | ast.Call | ast.Attribute) for node in ast.walk(value))


def _mentions(value: ast.expr, names: set[str]) -> bool:
    """Return whether a call of one of `names`, or a name with its result, is part of the expression."""
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(value))


def _assigned_from(function: Function, names: set[str]) -> set[str]:
    variables = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _mentions(node.value, names):
            targets = (leaf for target in node.targets for leaf in ast.walk(target))
            variables |= {leaf.id for leaf in targets if isinstance(leaf, ast.Name)}
    return variables
