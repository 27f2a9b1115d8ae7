"""Mathematics: decide whether the response's final answer equals the gold answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ops.core.problem import Grade, Problem
from ops.grading import domains, extract, latex, numbers, numerals, statement, symbolic, units
from ops.grading.domains import VariableDomains
from ops.grading.grader import Grader
from ops.grading.structure import MathNode, convert_to_matrix, parse_answer, parse_as_list, split_at

MAX_CHARACTERS = 1_500
"""Longer answers are compared as strings only."""

_NAMED = re.compile(
    r"\\?[A-Za-z]+(?:_\{?\w{1,3}\}?|'|\((?:\\?[a-z]|-?\d{1,4})\)|(?:\+[A-Za-z]){1,4})?|\\angle\s*[A-Z]{1,3}|\[[A-Z]{3,6}\]"
)
"""A name in a gold answer that stands for its value: `x`, `x_1`, `f(x)`, `f(3)`, the `m+n` of contests."""
_LENGTH = re.compile(r"\|?\\overline\{([A-Z]{2})\}\|?|\|([A-Z]{2})\||(\\angle\s*[A-Z]{3}|[A-Z]{2})")
r"""The length of a segment, written `|AB|`, `\overline{AB}` or `AB`, or an angle."""
_OF_POINTS = re.compile(r"(?:\\[a-z]+\s*|\[)?[A-Z]{2,6}\]?")
_BASED = re.compile(r"([-+]?)\(?(\d[\dA-Fa-f.]*|\\frac\{\d+\}\{\d+\})\)?_\{?(\d+)\}?")
_MODULUS = re.compile(r"(?:\\p?mod|\\bmod)\s*(?:\d+|\{[^{}]*\})$|\(\\?(?:text\{)?mod\}?\s*\d+\)$")
_NAME = re.compile(
    r"(?:m|\\measured|\\text\{m\})?\\(?:angle|triangle|overline|vec|hat|widehat|bar|overrightarrow)\{?\s*\w+\}?"
    r"|\\?[A-Za-z]+(?:_\{?\w+\}?)?'*(?:\^\{?(?:-1|\\circ|T|')\}?)?(?:\(.{1,40}\))?(?:\^\\circ)?"
    r"|\|\\?\w+\||\[\w+\]|\\(?:sin|cos|tan|cot|sec|csc)\^?2?\s*\(?(?:\\?[A-Za-z]+)\)?"
    r"|\\[A-Za-z]+\{\w+\}"
)
_VARIABLE = re.compile(r"\\text\{[^{}]*\}|\\([A-Za-z]+)|[A-Za-z]")
_CONCLUSION = re.compile(r"\\(?:Long)?[Rr]ightarrow(?![A-Za-z])|\\implies(?![A-Za-z])|\\therefore(?![A-Za-z])")
_APPROXIMATE = ("\\approx", "\\simeq")
_SET = re.compile(
    r"\bsets? of\b|separated by (?:a )?commas?|\blist\b"
    r"|\b(?:all|what are the|find the)\b[^.?]{0,80}\b(?:values|solutions|roots|zeros|integers|numbers)\b",
    re.IGNORECASE,
)
_ORDERED = re.compile(r"\b(?:ordered|pairs?|triples?|tuples?|points?|coordinates|vectors?|interval)\b", re.I)


def find_answer(_problem: Problem, response: str) -> str:
    """Return the answer that the response states last, in a box or after "Answer:" (see
    `statement.extract_stated_answer`)."""
    return statement.extract_stated_answer(response)


def grade_answer(problem: Problem, answer: str) -> Grade:
    """Compare `answer` with the gold answer."""
    if not answer.strip():
        return Grade(0.0, "", "no answer found")
    if answer.strip() == problem.answer.strip():
        return Grade(1.0, answer, "same text")
    if len(answer) > MAX_CHARACTERS:
        return Grade(0.0, answer[:200], "far longer than an answer")
    if is_same_answer(problem.answer, answer, problem.question):
        return Grade(1.0, answer, "equal")
    return Grade(0.0, answer, f"not equal to {problem.answer[:80]}")


def is_same_answer(gold: str, answer: str, question: str = "") -> bool:
    """Return whether two answers are mathematically equal.

    `question` says whether a set was asked for, and which values the unknowns can have.
    """
    left, right = (latex.normalize_spelling(numerals.write_in_figures(text)) for text in (gold, answer))
    if left and left.replace(" ", "") == right.replace(" ", ""):
        return True
    right = _CONCLUSION.split(right)[-1].replace("\\equiv", "=")
    left, right = _remove_modulus(left), _remove_modulus(right)
    gold_node = parse_answer(left.removeprefix("\\approx").strip())
    if gold_node == MathNode("leaf"):
        return False
    domain = domains.find_variable_domains(question)
    for reading in _split_exact_values(right):
        node = parse_answer(reading)
        if _is_same_node(gold_node, node, domain) or _is_same_set(gold_node, node, question, domain):
            return True
        # `30,150` is a number or two; beside a list it is two.
        if {gold_node.kind, node.kind} == {"leaf", "list"} and _is_same_node(
            parse_as_list(left), parse_as_list(reading), domain
        ):
            return True
    return False


def _remove_modulus(text: str) -> str:
    return _MODULUS.sub("", text).strip()


def _split_exact_values(text: str) -> list[str]:
    r"""Return the values that an answer states: `2\sqrt5` and `4.47` for `2\sqrt5 \approx 4.47`.

    For `x \approx 4.47` the only value is `4.47`.
    """
    parts = [part.strip() for part in split_at(text, _APPROXIMATE)]
    return [part for part in parts if part and not _NAME.fullmatch(part)] if len(parts) > 1 else parts


def _is_same_set(gold: MathNode, answer: MathNode, question: str, domain: VariableDomains) -> bool:
    """Return whether a list and a tuple have the same members in any order, if the question asks for a set.

    Two numbers in brackets in a gold answer may be an interval, so they do not count as a set.
    """
    if {gold.kind, answer.kind} != {"list", "row"} or (gold.kind == "row" and len(gold.items) == 2):
        return False
    if gold.is_interval or answer.is_interval:
        return False
    wants_set = _SET.search(question) is not None and _ORDERED.search(question) is None
    return wants_set and _is_same_multiset(gold.items, answer.items, domain)


# ── units ────────────────────────────────────────────────────────────────────


def _are_units_compatible(gold: str, answer: str) -> bool:
    """Return whether two units are compatible; a missing unit is accepted, since the question often states it."""
    if not gold or not answer or gold == answer:
        return True
    left, right = units.parse_unit(gold), units.parse_unit(answer)
    if left is not None and right is not None:
        return left == right
    # Counted nouns are reduced: `positive integers` to `integers`, `units^2` to `square units`.
    left_nouns, right_nouns = _split_nouns(gold), _split_nouns(answer)
    return left_nouns <= right_nouns or right_nouns <= left_nouns


def _split_nouns(text: str) -> set[str]:
    text = re.sub(r"(\w+)\^2", r"square \1", text.lower()).replace("sq ", "square ").replace("sq. ", "square ")
    return {word.strip(".").removesuffix("es").removesuffix("s") for word in text.split()}


def _is_same_percent(gold: MathNode, answer: MathNode, domain: VariableDomains) -> bool:
    if gold.unit or answer.unit:
        return False
    left, right = numbers.parse_number(gold.text), numbers.parse_number(answer.text)
    if left is None or right is None:
        return _is_same_text(gold.text, answer.text, domain)
    if left == right:
        return True
    if answer.is_percent:
        return not gold.is_percent and left == right / 100
    return left / 100 == right


# ── comparing ────────────────────────────────────────────────────────────────


def _is_same_node(gold: MathNode, answer: MathNode, domain: VariableDomains) -> bool:
    if not _are_units_compatible(gold.unit, answer.unit):
        return False
    kinds = (gold.kind, answer.kind)
    if "equation" in kinds:
        return _is_same_equation(gold, answer, domain)
    if kinds == ("leaf", "leaf"):
        if gold.is_percent or answer.is_percent:
            return _is_same_percent(gold, answer, domain)
        return _is_same_text(gold.text, answer.text, domain)
    if "matrix" in kinds:
        left, right = convert_to_matrix(gold), convert_to_matrix(answer)
        return (
            left is not None
            and right is not None
            and left.shape == right.shape
            and _is_same_sequence(left, right, domain)
        )
    if kinds == ("row", "row"):
        return gold.brackets == answer.brackets and _is_same_sequence(gold, answer, domain)
    if gold.kind == answer.kind and gold.kind in ("list", "union"):
        return _is_same_multiset(gold.items, answer.items, domain)
    by_kind = {gold.kind: gold, answer.kind: answer}
    if set(by_kind) == {"list", "row"}:
        # `1, -2` written as `(1, -2)` or `[1, -2]`: the order matters; a set in braces is not a tuple.
        row = by_kind["row"]
        if row.is_interval or (row is gold and row.brackets == "[]" and len(row.items) == 2):
            return False
        return not by_kind["list"].brackets and row.brackets in ("()", "[]") and _is_same_sequence(gold, answer, domain)
    if kinds == ("leaf", "list") or (gold.kind == "list" and len(gold.items) == 1):
        # `-b+2` or `2-b`: two spellings of one value.
        items = by_kind["list"].items
        return bool(items) and all(
            _is_same_node(gold, item, domain) if gold.kind == "leaf" else _is_same_node(item, answer, domain)
            for item in items
        )
    return False


def _is_same_sequence(gold: MathNode, answer: MathNode, domain: VariableDomains) -> bool:
    return len(gold.items) == len(answer.items) and all(
        _is_same_node(left, right, domain) for left, right in zip(gold.items, answer.items, strict=True)
    )


def _is_same_multiset(gold: Sequence[MathNode], answer: Sequence[MathNode], domain: VariableDomains) -> bool:
    if len(gold) != len(answer) or len(gold) > 40:
        return False
    left = list(answer)
    for item in gold:
        match = next((other for other in left if _is_same_node(item, other, domain)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _is_same_text(gold: str, answer: str, domain: VariableDomains) -> bool:
    if gold == answer:
        return True
    if not gold or not answer:
        return False
    left, right = latex.extract_words(gold), latex.extract_words(answer)
    if left is not None or right is not None:
        return (left or latex.extract_letters(gold)) == (right or latex.extract_letters(answer))
    a, b = numbers.parse_number(gold), numbers.parse_number(answer)
    if a is not None and b is not None:
        return a == b or numbers.is_rounded_form(a, answer)
    if "_" in gold + answer and (_BASED.fullmatch(gold) or _BASED.fullmatch(answer)):
        return _is_same_based_number(gold, answer)
    if (a is None) != (b is None) and _find_unknowns(gold + " " + answer) - {"e", "i"}:
        return False
    return symbolic.is_equal(gold, answer, domain) is True


def _is_same_based_number(gold: str, answer: str) -> bool:
    """Return whether values are equal up to a base that the question states: `52_8` and `52`, but not `70` and
    `70_7`."""
    left, right = _BASED.fullmatch(gold), _BASED.fullmatch(answer)
    if left is None:
        return False
    if right is None:
        return left.group(1) + left.group(2).lower() == answer.lower().strip("()")
    return [part.lower() for part in left.groups()] == [part.lower() for part in right.groups()]


# ── equations ────────────────────────────────────────────────────────────────


def _is_same_equation(gold: MathNode, answer: MathNode, domain: VariableDomains) -> bool:
    if gold.kind == "equation" and gold.items[0].kind == "row" and (wanted := _values_by_name(gold)):
        given = _values_by_name(answer)
        if given or "equation" in (answer.kind, *(item.kind for item in answer.items)):
            return given.keys() == wanted.keys() and all(
                _is_same_node(wanted[name], given[name], domain) for name in wanted
            )
        return _is_same_node(gold.items[-1], answer, domain)
    if gold.kind == answer.kind:
        if all(numbers.parse_number(side.text) is not None for side in gold.items):
            return all(_is_same_node(gold.items[-1], side, domain) for side in answer.items)
        names = _canonical_name(gold.items[0]), _canonical_name(answer.items[0])
        if all(map(_OF_POINTS.fullmatch, names)) and names[0] not in (names[1], _canonical_name(answer.items[-1])):
            # SymPy reads `ABC` as a product, in which the order has no meaning.
            return False
        if names[0] == names[1] or len(gold.items) + len(answer.items) > 4:
            # The last member of a chain `x = 2 + 3 = 5` is its value.
            return _is_same_node(gold.items[-1], answer.items[-1], domain)
        return symbolic.is_equal(gold.text, answer.text, domain) is True
    if gold.kind == "equation":
        # `x + y = 0` is the equation of a line, not a requested sum.
        if _NAMED.fullmatch(_canonical_name(gold.items[0])) and not (
            "+" in gold.items[0].text and gold.items[-1].text == "0"
        ):
            return _is_same_node(gold.items[-1], answer, domain)
        return all(numbers.parse_number(side.text) is not None for side in gold.items) and _is_same_node(
            gold.items[-1], answer, domain
        )
    if _is_same_node(gold, answer.items[-1], domain):
        # The last member of a chain is its value; `2x = 70` does not give a value of x.
        other = answer.items[0]
        return (
            len(answer.items) > 2
            or _is_name_of_value(other)
            or not _find_unknowns(other.text)
            or _is_consistent(gold, other, domain)
        )
    # `70 = 50 + 20` has the value first.
    first, others = answer.items[0], answer.items[1:]
    return (
        not _is_name_of_value(first)
        and _is_same_node(gold, first, domain)
        and all(_is_consistent(gold, side, domain) for side in others)
    )


def _canonical_name(side: MathNode) -> str:
    r"""Return a side of an equation with one spelling for `AB`, `BA` or `|AB|`, and one for `\angle ABC` or `\angle
    CBA`."""
    if (match := _LENGTH.fullmatch(side.text)) is None:
        return side.text
    name: str = match[1] or match[2] or match[3]
    points = name.removeprefix("\\angle").strip()
    return name.removesuffix(points) + min(points, points[::-1])


def _values_by_name(node: MathNode) -> dict[str, MathNode]:
    """Return the values of `(p, q) = (3, 2)` or of `p = 3, q = 2`; empty if a value has no plain name."""
    if node.kind == "list":
        named = [_values_by_name(item) for item in node.items]
        values = {name: value for item in named for name, value in item.items()}
        return values if all(named) and len(values) == sum(map(len, named)) else {}
    if node.kind != "equation":
        return {}
    left, right = node.items[0], node.items[-1]
    if left.kind == "row" and right.kind == "row" and len(left.items) == len(right.items):
        names, cells = [_canonical_name(item) for item in left.items], right.items
    else:
        names, cells = [_canonical_name(left)], (right,)
    plain = all(_NAMED.fullmatch(name) for name in names) and len(set(names)) == len(names)
    return dict(zip(names, cells, strict=True)) if plain else {}


def _is_name_of_value(side: MathNode) -> bool:
    r"""Return whether a side is only the name of the value: `AB`, `f(3)`, `\angle APC`, `100m+n`, `(x, y)`.

    `2x` and `x^2` are not names, because such an equation is not solved.
    """
    if side.kind in ("row", "list") and side.items:
        return all(_is_name_of_value(item) for item in side.items)
    text = side.text
    if side.kind != "leaf" or numbers.parse_number(text) is not None:
        return False
    if "\\text{" in text or _NAME.fullmatch(text):
        return bool(_find_unknowns(text)) or "\\text{" in text
    unknowns = _find_unknowns(text)
    return len(unknowns) > 1 or ("\\pi" in text and len(unknowns) == 1)


def _find_unknowns(text: str) -> set[str]:
    unknowns = set()
    for match in _VARIABLE.finditer(text):
        command = match.group(1)
        if match.group().startswith("\\text") or (command and command not in latex.GREEK) or command == "pi":
            continue
        unknowns.add(command or match.group())
    return unknowns


def _is_consistent(gold: MathNode, side: MathNode, domain: VariableDomains) -> bool:
    """Return whether a side that is not a name equals the value; True if this cannot be decided."""
    if gold.kind != "leaf" or side.kind != "leaf":
        return _is_same_node(gold, side, domain)
    left, right = numbers.parse_number(gold.text), numbers.parse_number(side.text)
    if left is not None and right is not None:
        left, right = (left / 100 if gold.is_percent else left), (right / 100 if side.is_percent else right)
        return abs(left - right) * 100 <= abs(left)
    if right is not None and "." in side.text:
        return True
    verdict = symbolic.is_equal(gold.text, side.text, domain)
    return verdict is True or (verdict is None and not _find_unknowns(side.text))


def _find_gold_error(problem: Problem) -> str:
    boxed = extract.extract_last_box(rf"\boxed{{{problem.answer}}}")
    if boxed != problem.answer.strip():
        return "its braces do not pair up"
    return "" if latex.normalize_answer(problem.answer).value else "nothing is left of it but spacing and units"


GRADER = Grader(
    "math", r"Give the final answer in \boxed{}.", find_answer, grade_answer,
    find_gold_error=_find_gold_error,
    is_same_answer=lambda one, other, problem: is_same_answer(one, other, problem.question),
    gold_template=r"\boxed{{{}}}",
)  # fmt: skip
