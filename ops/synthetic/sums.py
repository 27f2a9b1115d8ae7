"""Recognize questions that consist only of arithmetic with numbers, in figures or in ordinary words.

Examples are "What is 17 * 23?", "17 times 23", "Subtract 7 from fifteen." and "How much is 20 % of 150?". Every word of
the question must be understood. Otherwise it does not count as a sum, so that a longer question is never mistaken for
one.
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction

from ops.core import cpython
from ops.synthetic.formula import MAX_LENGTH

MAX_POWER = 64
"""The largest exponent of a power in a sum."""
MAX_DIGITS = 60
"""The largest number of digits of a number that a sum contains or gives."""

_SIGNS = str.maketrans({
    "×": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*", "÷": "/", "−": "-", "–": "-", "—": "-", "’": "'", "$": " ",
    "²": "^2", "³": "^3",
})  # fmt: skip
_LATEX = {r"\cdot": "*", r"\times": "*", r"\div": "/", "**": "^"}
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,]|\.\d*,)")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|\.\d+|[a-z]+(?:'[a-z]+)?|[^\s\w]")

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_VALUES = {word: value for value, word in enumerate(_SMALL)} | {word: 10 * i for i, word in enumerate(_TENS, 2)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}

_N = r"(\([^()]*\)|-?\d*\.?\d+)"
_PHRASES: tuple[tuple[str, str], ...] = (
    (rf"{_N} (?:%|percent) of {_N}", r"(\1/100*\2)"),
    (rf"half of {_N}", r"(\1/2)"),
    (rf"(?:twice|double) {_N}", r"(2*\1)"),
    (rf"(?:the )?square of {_N}", r"(\1^2)"),
    (rf"(?:the )?sum of {_N} and {_N}", r"(\1+\2)"),
    (rf"(?:the )?sum of {_N} , {_N} ,? ?and {_N}", r"(\1+\2+\3)"),
    (rf"(?:the )?product of {_N} and {_N}", r"(\1*\2)"),
    (rf"(?:the )?quotient of {_N} and {_N}", r"(\1/\2)"),
    (rf"add {_N} (?:and|to) {_N}", r"(\1+\2)"),
    (rf"(?:subtract|take) {_N} (?:away )?from {_N}", r"(\2-\1)"),
    (rf"multiply {_N} (?:by|with|and) {_N}", r"(\1*\2)"),
    (rf"divide {_N} by {_N}", r"(\1/\2)"),
    (r"(?:raised )?to the power(?: of)?", "^"),
    (r"squared", "^2"),
    (r"cubed", "^3"),
    (r"plus|added to", "+"),
    (r"minus|less|take away", "-"),
    (r"times|multiplied (?:by|with)", "*"),
    (r"divided by|over", "/"),
    (r"(?<=[\d)]) x (?=[\d(])", " * "),
)
_DIFFERENCE = re.compile(rf"(?:the )?difference (?:between|of) {_N} and {_N}")
_OPENING = (
    r"(?:please|hi|hello|hey|ok|okay|so|quick|question|and|,|:|!|\.|can|could|would|will|do|does|did|you|i|we|to|me|us|"
    r"know|want|need|like|tell|say|give|show|help|with|what|what's|whats|that's|which|number|how|much|many|is|are|be|"
    r"makes?|gets?|if|when|by|calculate|compute|evaluate|work|out|find|determine|solve|simplify|answer|the|exact|value|"
    r"result|calculation|this|following|of|for|expression)"
)
_ENDING = (
    r"(?:please|\?|\.|!|:|,|=|is|are|equals?|equal|to|what|makes?|make|gives?|give|me|us|you|thanks|thank|exactly|"
    r"altogether|in|total|be|now|then|the|answer|result)"
)
_EDGES = re.compile(rf"^(?:{_OPENING} )*|(?: {_ENDING})*$")


def find_sum(question: str) -> str | None:
    """Return the sum that the question consists of, in the grammar of `ops.synthetic.formula`.

    Returns None for any other question.
    """
    if len(question) > MAX_LENGTH:
        return None
    text = question.lower().translate(_SIGNS)
    for written, sign in _LATEX.items():
        text = text.replace(written, sign)
    text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != "".join(text.split()):
        return None  # the text has a character that is not part of a token
    text = _in_figures(tokens)
    text = _EDGES.sub("", _signed(_EDGES.sub("", text)))
    body = text.replace(" ", "").replace("^", "**")
    if not re.fullmatch(r"[-+*/().\d]+", body) or not re.search(r"[\d)][-+*/]", body):
        return None
    if re.search(r"[\d.] [\d.]", text):  # two numbers without an operation between them
        return None
    return body if evaluate_sum(body) is not None else None


def sum_value(question: str) -> Fraction | None:
    """Return the exact value of the sum that the question consists of, or None for any other question."""
    body = find_sum(question)
    return None if body is None else evaluate_sum(body)


def evaluate_sum(body: str) -> Fraction | None:
    """Return the exact value of a formula of numbers.

    Returns None if the formula has no value, or a value with more than `MAX_DIGITS` digits.
    """
    try:
        return _value(cpython.parse(body, "eval").body, body)
    except (SyntaxError, RecursionError, ZeroDivisionError, ValueError):
        return None


def _value(node: ast.expr, text: str) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()):
            found = Fraction(ast.get_source_segment(text, node) or "")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = -_value(operand, text)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))) if power <= MAX_POWER:
            found = _value(left, text) ** power
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = _value(left, text) + _value(right, text)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            found = _value(left, text) - _value(right, text)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            found = _value(left, text) * _value(right, text)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            found = _value(left, text) / _value(right, text)
        case _:
            raise ValueError("not a sum")
    if max(abs(found.numerator), found.denominator) >= 10**MAX_DIGITS:
        raise ValueError("too large")
    return found


def _in_figures(tokens: list[str]) -> str:
    """Return the tokens in one line with number words as figures, such as 23 for "twenty - three"."""
    words: list[str] = []
    place = 0
    while place < len(tokens):
        total, part, end = 0, 0, place
        while end < len(tokens):
            word = tokens[end]
            after = tokens[end + 1] if end + 1 < len(tokens) else ""
            if word == "a" and end == place and after in _SCALES:
                part = 1
            elif word in _VALUES and (
                part % 100 == 0 or (part % 10 == 0 and part % 100 >= 20 and 0 < _VALUES[word] < 10)
            ):
                part += _VALUES[word]
            elif word == "hundred" and 0 < part < 10:
                part *= 100
            elif word in _SCALES and word != "hundred" and part:
                total, part = total + part * _SCALES[word], 0
            elif not (end > place and _joins(tokens[end - 1], word, after)):
                break
            end += 1
        if end > place:
            words.append(str(total + part))
            place = end
        else:
            words.append(tokens[place])
            place += 1
    return " ".join(words)


def _joins(before: str, word: str, after: str) -> bool:
    """Return whether a hyphen or "and" between two number words is a part of one number."""
    if word == "-":
        return before in _TENS and after in _VALUES and 0 < _VALUES[after] < 10
    return word == "and" and before in _SCALES and after in _VALUES


def _signed(text: str) -> str:
    """Return the text with words such as "plus" replaced by the signs of arithmetic."""
    text = _DIFFERENCE.sub(
        lambda match: f"({max(match.groups(), key=_number)}-{min(match.groups(), key=_number)})", text
    )
    for words, signs in _PHRASES:
        text = re.sub(words if words.startswith("(?<") else rf"(?<!\w)(?:{words})(?!\w)", signs, text)
    return text


def _number(text: str) -> Fraction:
    return evaluate_sum(text.replace(" ", "").replace("^", "**")) or Fraction(0)
