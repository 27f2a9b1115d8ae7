"""Random pairs of expressions: unequal ones, proven so by exact values at a point, and equal ones by construction."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import factorial
from typing import NamedTuple

LETTERS = "abcdkmnprstvwxyzFGHQ"
"""No letter in both cases: an answer that differs from the gold one in case alone counts as the same."""
POINTS = 3
ANSWERS = 5
"""The most answers to one gold answer, which is read once."""
MAX_DEPTH = 3
_SIGNS = {"add": " + ", "sub": " - "}


class Tree(NamedTuple):
    """A rational expression: `number` and `letter` are leaves, the others have arguments."""

    kind: str
    arguments: tuple[Tree, ...] = ()
    number: int = 0
    letter: str = ""


Pair = tuple[str, str]
"""A gold answer and another one in LaTeX."""


def unequal(seed: int) -> Iterator[Pair]:
    """Endless pairs that differ: two expressions have different values at a rational point."""
    chance = random.Random(seed)
    while True:
        letters = chance.sample(LETTERS, chance.randint(1, 4)) if chance.random() < 0.85 else []
        left = _form(chance, letters) if letters and chance.random() < 0.4 else _tree(chance, letters, MAX_DEPTH)
        wrapping = chance.choice(_WRAPPINGS)
        for _ in range(ANSWERS):
            right = _changed(chance, left, letters) if chance.random() < 0.8 else _tree(chance, letters, MAX_DEPTH)
            values = _different_values(chance, left, right)
            if values and wrapping.separates(*values):
                yield wrapping.template % latex(left), wrapping.template % latex(right)


def equal(seed: int) -> Iterator[Pair]:
    """Endless pairs that are equal: terms and factors turned round, sums distributed, a factor put above and below."""
    chance = random.Random(seed)
    while True:
        letters = chance.sample(LETTERS.replace("d", ""), chance.randint(1, 3))
        tree = _tree(chance, letters, 2)
        if tree.arguments and _values(_point(chance), tree) and (other := _rewritten(chance, tree)) != tree:
            yield latex(tree), latex(other)


# ── random trees ─────────────────────────────────────────────────────────────


def _tree(chance: random.Random, letters: list[str], depth: int) -> Tree:
    if depth == 0 or chance.random() < 0.2:
        return _leaf(chance, letters)
    kinds = ["add", "add", "sub", "mul", "mul", "div", "pow"] + (["factorial", "power"] if not letters else [])
    kind = chance.choice(kinds)
    if kind == "factorial":
        return Tree(kind, number=chance.choice((3, 5, 7, 12, 50, 200)))
    if kind == "power":
        return Tree(kind, (Tree("number", number=chance.randint(2, 12)),), chance.choice((2, 3, 30, 400, 1002)))
    if kind == "pow":
        return Tree(kind, (_tree(chance, letters, depth - 1),), chance.randint(2, 4))
    return Tree(kind, (_tree(chance, letters, depth - 1), _tree(chance, letters, depth - 1)))


def _form(chance: random.Random, letters: list[str]) -> Tree:
    """A linear or quadratic form with small coefficients, such as contests have for answers."""
    terms = []
    for _ in range(chance.randint(1, 4)):
        term = Tree("letter", letter=chance.choice(letters))
        if chance.random() < 0.4:
            term = Tree("mul", (term, Tree("letter", letter=chance.choice(letters))))
        if chance.random() < 0.4:
            term = Tree("mul", (Tree("number", number=chance.randint(2, 4)), term))
        terms.append(term)
    if chance.random() < 0.3:
        terms.append(Tree("number", number=chance.randint(1, 4)))
    tree = terms[0]
    for term in terms[1:]:
        tree = Tree(chance.choice(("add", "add", "sub")), (tree, term))
    return Tree("div", (tree, Tree("number", number=chance.randint(2, 4)))) if chance.random() < 0.2 else tree


def _leaf(chance: random.Random, letters: list[str]) -> Tree:
    if letters and chance.random() < 0.65:
        return Tree("letter", letter=chance.choice(letters))
    return Tree("number", number=chance.choice((1, 1, 2, 2, 3, 4, 5, 7, 10, 12, 100, 999)))


def _changed(chance: random.Random, tree: Tree, letters: list[str]) -> Tree:
    """A near miss: one place of the tree is another."""
    if tree.arguments and chance.random() < 0.75:
        place = chance.randrange(len(tree.arguments))
        arguments = list(tree.arguments)
        arguments[place] = _changed(chance, arguments[place], letters)
        return tree._replace(arguments=tuple(arguments))
    if tree.kind in ("factorial", "power", "pow") and chance.random() < 0.7:
        return tree._replace(number=tree.number + 1)
    change = chance.randrange(4)
    if change == 0 and len(tree.arguments) == 2:
        other = chance.choice([kind for kind in ("add", "sub", "mul", "div") if kind != tree.kind])
        return Tree(other, tree.arguments)
    if change == 1 and len(tree.arguments) == 2:
        return tree._replace(arguments=tree.arguments[::-1])
    if change == 2:
        return Tree(chance.choice(("add", "sub", "mul")), (tree, _leaf(chance, letters)))
    return _leaf(chance, letters)


# ── values ───────────────────────────────────────────────────────────────────


def value(tree: Tree, at: dict[str, Fraction]) -> Fraction:
    """The exact value. Raises `ArithmeticError` where there is none, or one too large to work with."""
    if tree.kind == "number":
        return Fraction(tree.number)
    if tree.kind == "letter":
        return at[tree.letter]
    if tree.kind == "factorial":
        return Fraction(factorial(tree.number))
    values = [value(argument, at) for argument in tree.arguments]
    if any(max(abs(v.numerator), v.denominator).bit_length() > 20_000 for v in values):
        raise OverflowError
    if tree.kind in ("pow", "power"):
        return Fraction(values[0] ** tree.number)
    left, right = values
    if tree.kind == "div":
        return left / right
    return left + right if tree.kind == "add" else left - right if tree.kind == "sub" else left * right


def _point(chance: random.Random) -> dict[str, Fraction]:
    return {letter: Fraction(chance.randint(1, 99), chance.randint(1, 9)) for letter in LETTERS}


def _values(at: dict[str, Fraction], *trees: Tree) -> list[Fraction]:
    """The values at one point; none if one of them is undefined."""
    try:
        return [value(tree, at) for tree in trees]
    except ArithmeticError:
        return []


def _different_values(chance: random.Random, left: Tree, right: Tree) -> list[Fraction]:
    """Two different values at one point; none if none was found."""
    for _ in range(POINTS):
        values = _values(_point(chance), left, right)
        if len(set(values)) == 2:
            return values
    return []


# ── LaTeX ────────────────────────────────────────────────────────────────────


def latex(tree: Tree) -> str:
    if tree.kind == "number":
        return str(tree.number)
    if tree.kind == "letter":
        return tree.letter
    if tree.kind == "factorial":
        return f"{tree.number}!"
    texts = [latex(argument) for argument in tree.arguments]
    if tree.kind in ("pow", "power"):
        return f"{_bracketed(tree.arguments[0], texts[0], leaf_only=True)}^{{{tree.number}}}"
    if tree.kind == "div":
        return rf"\frac{{{texts[0]}}}{{{texts[1]}}}"
    if tree.kind == "mul":
        left, right = (_bracketed(argument, text) for argument, text in zip(tree.arguments, texts, strict=True))
        # Four letters side by side would be a word.
        adjacent = (right[0].isalpha() or right[0] == "(") and not re.search(r"[A-Za-z]{2}$|[A-Za-z]{3}", left + right)
        return f"{left}{right}" if adjacent and left[-1].isalnum() else rf"{left} \cdot {right}"
    if tree.kind == "sub":
        texts[1] = _bracketed(tree.arguments[1], texts[1])
    return _SIGNS[tree.kind].join(texts)


def _bracketed(tree: Tree, text: str, *, leaf_only: bool = False) -> str:
    needs = bool(tree.arguments) or tree.kind == "factorial" if leaf_only else tree.kind in _SIGNS
    return f"({text})" if needs else text


class _Wrapping(NamedTuple):
    """A template, and whether two different values stay apart in it."""

    template: str
    separates: Callable[[Fraction, Fraction], bool] = lambda left, right: True


_WRAPPINGS = (
    *(_Wrapping("%s"),) * 4, _Wrapping(r"\frac{1}{3}\left(%s\right)"), _Wrapping("w = %s"),
    _Wrapping(r"\left(%s, 7\right)"),
    _Wrapping(r"{(%s)}\pi"), _Wrapping("e^{%s}", lambda *values: max(map(abs, values)) < 40),
    _Wrapping(r"\arctan\left(%s\right)", lambda *values: max(map(abs, values)) < 40),
    _Wrapping(r"\sqrt{%s}", lambda *values: min(values) > 0),
    _Wrapping(r"\ln\left(%s\right)", lambda *values: min(values) > 0),
)  # fmt: skip


# ── equal by construction ────────────────────────────────────────────────────


def _rewritten(chance: random.Random, tree: Tree) -> Tree:
    arguments = tuple(_rewritten(chance, argument) for argument in tree.arguments)
    tree = tree._replace(arguments=arguments)
    if tree.kind in ("add", "mul"):
        left, right = arguments
        if tree.kind == "mul" and right.kind in _SIGNS and chance.random() < 0.5:
            return Tree(right.kind, tuple(Tree("mul", (left, term)) for term in right.arguments))
        return Tree(tree.kind, (right, left))
    if tree.kind == "div" and chance.random() < 0.5:
        factor = Tree("number", number=chance.randint(2, 5))
        return Tree("div", tuple(Tree("mul", (factor, argument)) for argument in arguments))
    if tree.kind == "pow" and tree.number == 2 and chance.random() < 0.5:
        return Tree("mul", (arguments[0], arguments[0]))
    return tree
