r"""Parse an answer into its parts: lists, sets, tuples, intervals, unions, matrices, equations, `\pm`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Literal, NamedTuple

from ops.grading import latex, numbers

_OPEN, _CLOSE = "([{", ")]}"
_RELATION = re.compile(r"(\\[lg]e(?![A-Za-z])|\\ne(?![A-Za-z])|<|>)")
_VARIABLE = re.compile(r"\\?[A-Za-z]+(?:_\{?\w{1,3}\}?|'|\(\\?[a-z]+\))?")
_ELEMENT = re.compile(r"^\\?[A-Za-z]+\\in(?![A-Za-z])\s*")
_CONDITION = re.compile(r"\\\{\\?[a-z]+(?:\\in\\mathbb\{R\})?(?:\\mid(?![A-Za-z])|:|\||\\:)(.+)\\\}")
_PUNCTURED = re.compile(r"(\\mathbb\{R\}|[(\[][^()\[\]]+[)\]])(?:\\(?:small)?setminus|\\backslash|-)\s*\\\{(.+)\\\}")
_REAL = re.compile(r"^\\mathbb\{R\}[,;:]\s*(?=\\?[A-Za-z])")
_MATRIX_BEGIN, _MATRIX_END = "\\begin{pmatrix}", "\\end{pmatrix}"
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?=, |$)")
_BINOMIAL = re.compile(r"\\binom\{([^{}]*)\}\{([^{}]*)\}")
_MAX_DEPTH = 6


class MathNode(NamedTuple):
    r"""A node of a parsed answer.

    A "list" is `1, 2` or `{1, 2}`, a "row" a tuple or interval in its brackets, an "equation" `a = b = c`.
    `is_interval` marks a row that is certainly an interval: `x \in [1, 2]`, `1 < x < 2`.
    """

    kind: Literal["leaf", "list", "row", "union", "matrix", "equation"]
    text: str = ""
    items: tuple[MathNode, ...] = ()
    brackets: str = ""
    shape: tuple[int, ...] = ()
    unit: str = ""
    is_percent: bool = False
    is_interval: bool = False


def parse_answer(spelled: str) -> MathNode:
    """Return the tree of a normalised answer; a unit after the whole answer belongs to the root."""
    if len(merged := _THOUSANDS.sub(lambda m: m.group(1).replace(",", ""), spelled)) and ", " in merged:
        spelled = merged
    clean = latex.split_off_unit(spelled)
    node = _parse_node(clean.value, 0)
    if node.kind == "list" and clean.unit:
        # `30^\circ, 150^\circ`: every member has a unit, not only the last one.
        return _parse_node(latex.remove_spaces(spelled), 0)
    if node.kind == "equation":
        last = node.items[-1]
        last = last._replace(unit=clean.unit or last.unit, is_percent=clean.is_percent or last.is_percent)
        return node._replace(items=(*node.items[:-1], last))
    return node._replace(unit=clean.unit or node.unit, is_percent=clean.is_percent or node.is_percent)


def parse_as_list(spelled: str) -> MathNode:
    """Parse a list whose commas could also be thousands separators."""
    if re.fullmatch(r"-?[1-9]\d{0,2}(?:,[1-9]\d{2})+", spelled):
        spelled = spelled.replace(",", ", ")
    return parse_answer(spelled)


def split_at(text: str, separators: Sequence[str]) -> list[str]:
    """Split `text` at separators outside all brackets; the two brackets of an interval may differ."""
    if not any(separator in text for separator in separators):
        return [text]
    parts, depth, start, position = [], 0, 0, 0
    while position < len(text):
        if text[position] == "\\" and text[position + 1 : position + 2] in ("{", "}"):
            depth += 1 if text[position + 1] == "{" else -1
            position += 2
            continue
        if text[position] in _OPEN:
            depth += 1
        elif text[position] in _CLOSE:
            depth -= 1
        separator = next((s for s in separators if text.startswith(s, position)), None) if depth == 0 else None
        if separator:
            parts.append(text[start:position])
            position += len(separator)
            start = position
        else:
            position += 1
    return [*parts, text[start:]]


def _split_brackets(text: str) -> tuple[str, str] | None:
    """Return (brackets, content) if one pair of brackets encloses all of `text`."""
    if text.startswith("\\{") and text.endswith("\\}"):
        brackets, inside = "{}", text[2:-2]
    elif len(text) > 2 and text[0] in "([" and text[-1] in ")]":
        brackets, inside = text[0] + text[-1], text[1:-1]
    else:
        return None
    depth = 0
    for char in inside.replace("\\{", "{").replace("\\}", "}"):
        depth += (char in _OPEN) - (char in _CLOSE)
        if depth < 0:
            return None
    return brackets, inside


def _parse_node(text: str, depth: int) -> MathNode:
    if depth > _MAX_DEPTH or not text:
        return MathNode("leaf", text)
    if _MATRIX_BEGIN in text and "=" not in text and (matrix := _parse_matrix(text, depth)):
        return matrix
    written, text = text, _rewrite_as_interval(_ELEMENT.sub("", text), depth)
    if len(union := split_at(text, ("\\cup",))) > 1:
        return MathNode("union", text, tuple(_parse_node(part.strip(), depth + 1) for part in union))
    parts = split_at(text, (",", ";"))
    if len(parts) > 1:
        return _parse_list([part for part in parts if part], "", depth)
    if len(parts := split_at(text, ("=",))) > 1 and all(parts):
        return MathNode("equation", text, tuple(_parse_node(part, depth + 1) for part in parts))
    if inner := _split_brackets(text):
        brackets, inside = inner
        parts = split_at(inside, (",", ";"))
        if brackets == "{}":
            return _parse_list(parts, "{}", depth) if inside else MathNode("leaf", "\\emptyset")
        if len(parts) > 1:
            cells = tuple(_parse_node(part, depth + 1) for part in parts)
            return MathNode("row", text, cells, brackets, is_interval=text != written)
        if brackets == "()" or inside.startswith(_MATRIX_BEGIN):
            return _parse_node(inside, depth + 1)
    if "\\pm" in text:
        return _parse_list([text], "", depth)
    if depth == 0:
        return MathNode("leaf", text)
    clean = latex.split_off_unit(text)
    return MathNode("leaf", clean.value, unit=clean.unit, is_percent=clean.is_percent)


def _parse_list(parts: Sequence[str], brackets: str, depth: int) -> MathNode:
    signed = [sign for part in parts for sign in _expand_plus_minus(part)]
    return MathNode("list", ",".join(parts), tuple(_parse_node(part, depth + 1) for part in signed), brackets)


def _expand_plus_minus(text: str) -> list[str]:
    if "\\pm" not in text:
        return [text]
    pattern = re.compile(r"\\pm\s*")
    return [pattern.sub("+", text).removeprefix("+").replace("=+", "="), pattern.sub("-", text)]


# ── matrices ─────────────────────────────────────────────────────────────────


def _parse_matrix(text: str, depth: int) -> MathNode | None:
    """Return a matrix, multiplied by a factor before it; None if `text` contains anything else."""
    if (inner := _split_brackets(text)) and inner[1].startswith(_MATRIX_BEGIN):
        text = inner[1]
    head, _, rest = text.partition(_MATRIX_BEGIN)
    if not rest.endswith(_MATRIX_END) or rest.count(_MATRIX_END) > 1 or _MATRIX_BEGIN in rest:
        return None
    factor = re.sub(r"(?:\\cdot|\\times)\s*$", "", head)
    if factor and len(split_at(factor, (",", ";", "+"))) > 1:
        return None
    inside = rest.removesuffix(_MATRIX_END)
    rows = [row.split("&") for row in re.split(r"\\\\(?:\[[^\]]*\])?", inside) if row.strip()]
    cells = tuple(_parse_node(_multiply_cell(factor, cell), depth + 1) for row in rows for cell in row)
    return MathNode("matrix", text, cells, "", tuple(len(row) for row in rows))


def _multiply_cell(factor: str, cell: str) -> str:
    if not factor:
        return cell
    left, right = numbers.parse_number({"-": "-1", "+": "1"}.get(factor, factor)), numbers.parse_number(cell)
    if left is None or right is None:
        return f"{factor}({cell})" if factor in "+-" else f"({factor})\\cdot({cell})"
    value: Fraction = left * right
    return f"{value.numerator}/{value.denominator}"


def convert_to_matrix(node: MathNode) -> MathNode | None:
    r"""Return `[[1,2],[3,4]]`, a tuple or `\binom{4}{-3}` as the matrix or column that it may represent; None
    otherwise."""
    if node.kind == "matrix":
        return node
    if node.kind == "row" and node.brackets == "()":
        return MathNode("matrix", node.text, node.items, "", (1,) * len(node.items))
    rows = node.kind == "row" and node.brackets == "[]" and node.items
    if rows and all(item.kind == "row" and item.brackets == "[]" for item in rows):
        cells = tuple(cell for row in rows for cell in row.items)
        return MathNode("matrix", node.text, cells, "", tuple(len(row.items) for row in rows))
    if node.kind == "leaf" and (column := _BINOMIAL.fullmatch(node.text)):
        return MathNode("matrix", node.text, tuple(_parse_node(cell, 1) for cell in column.groups()), "", (1, 1))
    return None


# ── intervals ────────────────────────────────────────────────────────────────


def _rewrite_as_interval(text: str, depth: int) -> str:
    r"""Return `[-2,7)` for `-2 \le x < 7` and `(3,\infty)` for `3 < x`; likewise for `x \ne 3` and `\mathbb{R}`."""
    if text == "\\mathbb{R}":
        return "(-\\infty,\\infty)"
    if "\\{" in text and (punctured := _PUNCTURED.fullmatch(text)):
        return _remove_points(*punctured.groups()) or text
    text = _REAL.sub("", text)
    if "\\{" in text and (condition := _CONDITION.fullmatch(text)):
        inside = _parse_inequality(condition.group(1)) or _join_rays(condition.group(1))
        return inside or text
    return _parse_inequality(text) or (depth == 0 and _join_rays(text)) or text


def _parse_inequality(text: str) -> str | None:
    parts = _RELATION.split(text)
    signs, sides = parts[1::2], [part.strip() for part in parts[::2]]
    if not signs or not all(sides) or len(signs) > 2 or "\\pm" in text or len(split_at(text, (",", ";"))) > 1:
        return None
    downwards = {"<": False, "\\le": False, ">": True, "\\ge": True}
    if len(signs) == 1:
        if _VARIABLE.fullmatch(sides[1]) and not _VARIABLE.fullmatch(sides[0]):
            sides.reverse()
            signs = [{"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "\\ne": "\\ne"}[signs[0]]]
        return _write_ray(signs[0], sides[1]) if _VARIABLE.fullmatch(sides[0]) else None
    if "\\ne" in signs or downwards[signs[0]] != downwards[signs[1]] or not _VARIABLE.fullmatch(sides[1]):
        return None
    if downwards[signs[0]]:
        sides.reverse()
        signs.reverse()
    return f"{'[' if 'e' in signs[0] else '('}{sides[0]},{sides[2]}{']' if 'e' in signs[1] else ')'}"


def _write_ray(sign: str, bound: str) -> str:
    if sign == "\\ne":
        return f"(-\\infty,{bound})\\cup({bound},\\infty)"
    closed = "e" in sign
    if sign in ("<", "\\le"):
        return f"(-\\infty,{bound}{']' if closed else ')'}"
    return f"{'[' if closed else '('}{bound},\\infty)"


def _remove_points(interval: str, points: str) -> str | None:
    r"""Return `(-\infty,2)\cup(2,\infty)` for `\mathbb{R} \setminus
    \{2\}`; None if a removed point may be outside the set.
    """
    if interval == "\\mathbb{R}":
        interval = "(-\\infty,\\infty)"
    ends, excluded = (
        split_at(interval[1:-1], (",",)),
        [p for part in split_at(points, (",", ";")) for p in _expand_plus_minus(part)],
    )
    if len(ends) != 2 or any("\\infty" in point for point in excluded):
        return None
    if len(excluded) > 1 or "\\infty" not in ends[0] or "\\infty" not in ends[1]:
        values = {point: numbers.parse_number(point) for point in (*excluded, *ends) if "\\infty" not in point}
        if None in values.values():
            return None
        excluded = sorted(set(excluded), key=lambda point: values[point] or 0)
        ordered = [values[point] or 0 for point in (ends[0], *excluded, ends[1]) if point in values]
        if any(left >= right for left, right in pairwise(ordered)):
            return None
    bounds = [ends[0], *excluded, ends[1]]
    pieces = [f"({left},{right})" for left, right in pairwise(bounds)]
    pieces[0], pieces[-1] = interval[0] + pieces[0][1:], pieces[-1][:-1] + interval[-1]
    return "\\cup".join(pieces)


def _join_rays(text: str) -> str | None:
    r"""Return a union for `x < 2, x > 3`; the intersection for `x \ge -2, x \le 7` and for `x \ne 2, 3`."""
    name, sign, points = text.partition("\\ne")
    if sign and _VARIABLE.fullmatch(name) and ("\\pm" in points or len(split_at(points, (",", ";"))) > 1):
        return _remove_points(
            "\\mathbb{R}", ",".join(p.removeprefix(f"{name}\\ne") for p in split_at(points, (",", ";")))
        )
    intervals = [_parse_inequality(part.strip()) for part in split_at(text, (",", ";"))]
    if len(intervals) < 2 or None in intervals:
        return None
    rays = sorted(str(interval) for interval in intervals)
    left = next((ray for ray in rays if ray.startswith("(-\\infty,")), "")
    right = next((ray for ray in rays if ray.endswith(",\\infty)")), "")
    if len(rays) == 2 and left and right and "\\cup" not in left + right:
        end, start = left[len("(-\\infty,") : -1], right[1 : -len(",\\infty)")]
        low, high = numbers.parse_number(start), numbers.parse_number(end)
        if low is not None and high is not None and low < high:
            return f"{right[0]}{start},{end}{left[-1]}"
    return "\\cup".join(str(interval) for interval in intervals)
