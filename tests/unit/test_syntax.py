"""Parsing of Python texts from several threads."""

from __future__ import annotations

import ast
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from ops.core.cpython import literal, parse

TEXT = "def f(a):\n    return " + " + ".join(f"(a[{n}] * {{'k': [{n}, (1, 2)]}}['k'][0])" for n in range(60)) + "\n"


class Cycle:
    """An object whose collection runs Python code, which lets another thread in."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sum(range(100))


def parsed(text: str) -> str:
    Cycle()
    return ast.dump(parse(text))


def test_threads_that_parse_at_once_all_get_their_tree() -> None:
    expected, before = ast.dump(ast.parse(TEXT)), gc.get_threshold()
    gc.set_threshold(20, 1, 1)  # a collection in the middle of every parse
    try:
        with ThreadPoolExecutor(8) as threads:
            trees = set(threads.map(parsed, [TEXT] * 60))
    finally:
        gc.set_threshold(*before)
    assert trees == {expected}


def test_a_depth_that_another_library_has_confused_is_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, plain = [], ast.parse

    def confused(source: str, *, mode: str = "exec") -> ast.AST:
        if len(refused) < 3:
            refused.append(source)
            raise SystemError("AST constructor recursion depth mismatch (before=45, after=43)")
        return plain(source, mode=mode)

    monkeypatch.setattr(ast, "parse", confused)
    assert literal(" [1, 'a']") == [1, "a"]
    assert len(refused) == 3


@pytest.mark.parametrize("text", ["1 +", "x", "[1]()", "\0"])
def test_a_text_that_is_not_a_literal_raises_the_errors_of_literal_eval(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)) as ours:
        literal(text)
    with pytest.raises(type(ours.value)):
        ast.literal_eval(text)
