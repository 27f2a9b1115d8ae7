"""Convert a program's values to plain data, and its errors to one line."""

# ruff: noqa: BLE001
# Any exception of a program is its verdict.

from __future__ import annotations

import _json  # json itself imports re: 5 ms
import builtins
import sys

TYPE_CHECKING = False  # `typing` would take 7 ms of every run
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

quote_json = _json.encode_basestring_ascii
"""Returns a text as a JSON string."""


def encode_value(value: Any, depth: int = 0) -> str:
    """Return `value` as JSON, with tags for types that JSON lacks; tuples are arrays, as the test's author wrote them.

    For a subclass of a plain type, the plain type's own methods read the value: a `Counter` is a dict, and an
    overridden `__eq__`, `__repr__` or `items` is not called.
    """
    if depth > 100:
        raise RecursionError("nested too deeply to report")
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return quote_json(str.__str__(value))
        case int():
            whole = int.__int__(value)
            return int.__repr__(whole) if -(10**15) < whole < 10**15 else f'{{"int": "{whole:#x}"}}'
        case float():
            text = float.__repr__(value)
            return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)
        case list():
            return _encode_array(list.__iter__(value), depth)
        case tuple():
            return _encode_array(tuple.__iter__(value), depth)
        case dict():
            pairs = (f"[{encode_value(k, depth + 1)}, {encode_value(v, depth + 1)}]" for k, v in dict.items(value))
            return '{"dict": [' + ", ".join(pairs) + "]}"
        case set():
            return f'{{"set": {_encode_array(set.__iter__(value), depth)}}}'
        case frozenset():
            return f'{{"set": {_encode_array(frozenset.__iter__(value), depth)}}}'
        case bytes():
            return f'{{"bytes": "{bytes.hex(value)}"}}'
        case bytearray():
            return f'{{"bytes": "{bytearray.hex(value)}"}}'
        case complex():
            real, imaginary = complex.real.__get__(value), complex.imag.__get__(value)
            return f'{{"complex": [{encode_value(real)}, {encode_value(imaginary)}]}}'
    return _encode_library_value(value, depth)


def _encode_array(items: Iterator[Any], depth: int) -> str:
    return "[" + ", ".join(encode_value(item, depth + 1) for item in items) + "]"


def _encode_library_value(value: Any, depth: int) -> str:
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("numpy", "pandas", "array") and callable(getattr(kind, "tolist", None)):
        return encode_value(value.tolist(), depth + 1)
    if (kind.__module__, kind.__name__) in (("fractions", "Fraction"), ("decimal", "Decimal")):
        return encode_value(float(value))
    return f'{{"other": {quote_json(type.__dict__["__name__"].__get__(kind))}}}'


def describe_error(error: BaseException) -> str:
    """Return one short line about `error`, whose own `__str__` may misbehave."""
    try:
        text = str(error)
    except Exception:  # the program's class: the report continues after any exception
        text = ""
    return f"{type(error).__name__}: {text}"[:200]


def make_module(name: str) -> ModuleType:
    """Return a new module, which dataclasses and pickles find by `name`."""
    made = type(sys)(name)
    vars(made)["__builtins__"] = builtins  # the shared builtins, not this module's own
    sys.modules[name] = made
    return made
