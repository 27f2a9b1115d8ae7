"""Read YAML and JSON files that people edit, with limits on their size and without ambiguous values.

YAML 1.1 and 1.2 read some plain scalars differently (`010`, `1:30`, `no`). Such a scalar is rejected here. All others
are read by the core schema of YAML 1.2 (yaml.org/spec/1.2.2, section 10.3). Every error is a `ConfigError` that names
the file, the field and the line.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ops.core.errors import ConfigError

MAX_BYTES = 1_000_000
"""Maximum size of a file in bytes."""
MAX_VALUES = 100_000
"""Maximum number of values in a file. The values of an alias count at each use."""
MAX_DEPTH = 40
"""Maximum number of nesting levels in a file."""
_LARGEST_INT = 2**63 - 1

_CORE = {
    "null": re.compile(r"null|Null|NULL|~|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
}
"""Patterns of the plain scalars in YAML 1.2's core schema, without `0o17`, which is text in YAML 1.1."""
_TWO_READINGS = (
    (re.compile(r"yes|no|on|off", re.IGNORECASE), "is a truth value in YAML 1.1 and text in YAML 1.2",
     "Write true or false, or put it in quotes"),
    (re.compile(r"[-+]?0[0-7_]+|0[ob][0-7]+"), "is octal or binary in one version of YAML and not in the other",
     "Write it as a decimal number, or put it in quotes"),
    (re.compile(r"[-+]?0[0-9]+"), "begins with 0, which some readers take for octal",
     "Write it without the 0, or put it in quotes"),
    (re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"), "is a number to base 60 in YAML 1.1",
     "Write a decimal number, or put it in quotes"),
    (re.compile(r"[-+]?[0-9][0-9_.]*_[0-9_.]*"), "is a number in YAML 1.1 and text in YAML 1.2",
     "Write the number without _, or put it in quotes"),
)  # fmt: skip
"""Patterns of the plain scalars that YAML 1.1 and 1.2 read differently, each with its problem and remedy for the
message."""
_TAG = "tag:yaml.org,2002:"
_KINDS = ((stat.S_ISDIR, "is a folder"), (stat.S_ISFIFO, "is a pipe"), (stat.S_ISSOCK, "is a socket"))


def read_settings_text(file: Path) -> str:
    """Return the text of a regular UTF-8 file of at most `MAX_BYTES` bytes.

    Raises `FileNotFoundError` if there is none, and `ConfigError` if it cannot be read or is not such a file.
    """
    try:
        mode = file.stat().st_mode  # checked before it is opened, because opening a pipe waits for a writer
        if not stat.S_ISREG(mode):
            kind = next((what for is_kind, what in _KINDS if is_kind(mode)), "is a device")
            raise ConfigError(file, "", f"{kind}, not a text file", "Put a text file there")
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        remedy = "Make it a text file that this user may read"
        raise ConfigError(
            _shorten_path(file), "", f"cannot be read ({os.strerror(error.errno or 0)})", remedy
        ) from None
    if len(content) > MAX_BYTES:
        raise ConfigError(file, "", f"is larger than {MAX_BYTES:,} bytes", "Shorten it")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(file, "", f"is not UTF-8 ({error.reason})", "Save it as UTF-8") from None


def read_yaml(file: Path) -> Any:
    """Return the value of a YAML file. Raises the errors of `read_settings_text`, and `ConfigError` for invalid or
    ambiguous YAML."""
    return parse_yaml(read_settings_text(file), file)


def parse_yaml(text: str, file: Path) -> Any:
    """Return the value of YAML text, in which dates stay strings.

    `file` is named in the errors. Raises `ConfigError` for invalid or ambiguous YAML.
    """
    try:
        node = _compose_nodes(text, file)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f"line {where.line + 1}" if where else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise ConfigError(file, line, f"is not valid YAML ({problem})", "Correct it") from None
    return None if node is None else _ValueReader(file).convert(node, ())


def find_line(text: str, file: Path, place: Sequence[str | int]) -> int | None:
    """Return the line of the key or list item at `place` in valid YAML text, or of the nearest section around it; None
    if not even the first part of `place` is there. Parts of `place` that are no keys are skipped, such as the tags
    that pydantic adds for a choice between models."""
    node, line = _compose_nodes(text, file), None
    for part in place:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    node, line = value, key.start_mark.line + 1
                    break
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


@lru_cache(maxsize=32)
def _compose_nodes(text: str, file: Path) -> yaml.Node | None:
    """Return the root node of the text. It is cached, because a plan reads the same files repeatedly, so callers must
    not change it."""
    return _Composer(text, file).get_single_node()


def read_json(file: Path) -> Any:
    """Return the value of a JSON file.

    Raises the errors of `read_settings_text`, and `ConfigError` for invalid JSON, a key that occurs twice, and NaN or
    Infinity.
    """
    text = read_settings_text(file)

    def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [name for name, _ in pairs]
        if duplicates := [name for name in keys if keys.count(name) > 1]:
            raise ConfigError(file, duplicates[0], "is written twice", "Keep one of them")
        return dict(pairs)

    def reject_constant(constant: str) -> NoReturn:
        raise ConfigError(file, "", f"{constant} is not a finite number", "Write a number")

    try:
        return json.loads(text, object_pairs_hook=reject_duplicate_keys, parse_constant=reject_constant)
    except RecursionError:
        raise ConfigError(file, "", "is nested too deeply", "Write fewer levels") from None
    except ValueError as error:  # also for an integer of thousands of digits
        raise ConfigError(file, "", f"is not JSON ({error})", "Correct it") from None


class _Composer(yaml.SafeLoader):
    """Composes YAML nodes down to `MAX_DEPTH` levels, and resolves the tags of plain scalars by `_plain`."""

    def __init__(self, text: str, file: Path) -> None:
        super().__init__(text)
        self._file, self._depth = file, 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self._depth >= MAX_DEPTH:
            line = f"line {self.peek_event().start_mark.line + 1}"  # type: ignore[no-untyped-call]
            raise ConfigError(self._file, line, f"is nested more than {MAX_DEPTH} levels deep", "Write fewer levels")
        self._depth += 1
        try:
            node: yaml.Node | None = super().compose_node(parent, index)
            return node
        finally:
            self._depth -= 1

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        if kind is not yaml.ScalarNode:
            return f"{_TAG}{'map' if kind is yaml.MappingNode else 'seq'}"
        return f"{_TAG}{_plain(value) if implicit[0] else 'str'}"


def _plain(value: str) -> str:
    """Return the type of a plain scalar in YAML 1.2's core schema; "unclear" if the versions of YAML differ on it."""
    if any(pattern.fullmatch(value) for pattern, *_ in _TWO_READINGS):
        return "unclear"
    return next((name for name, pattern in _CORE.items() if pattern.fullmatch(value)), "str")


class _ValueReader:
    """Converts the YAML nodes of one file to Python values."""

    def __init__(self, file: Path) -> None:
        self._file, self._left = file, MAX_VALUES

    def convert(self, node: yaml.Node, path: tuple[str, ...]) -> Any:
        """Return the value of a node, where `path` are the keys that lead to it. Raises `ConfigError`."""
        self._left -= 1
        if self._left < 0 or len(path) > MAX_DEPTH:
            self._refuse(node, path, "expands to too many values", "Use fewer aliases")
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.convert(each, (*path, str(index))) for index, each in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        return self._refuse(node, path, f"has the tag {node.tag}", "Remove the tag")

    def _mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged_values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.style is None and key.value == "<<":
                merged_values |= {
                    name: each for name, each in self._merge_mappings(value, path).items() if name not in merged_values
                }
                continue
            name = self.convert(key, path)
            if not isinstance(name, str):
                self._refuse(key, path, f"the key {name!r:.40} is not text", "Put it in quotes")
            line = key.start_mark.line + 1
            if name in lines:
                where = f"{'.'.join((*path, name))} (lines {lines[name]} and {line})"
                raise ConfigError(self._file, where, "is written twice", "Keep one of them")
            lines[name] = line
            values[name] = self.convert(value, (*path, name))
        return merged_values | values

    def _merge_mappings(self, node: yaml.Node, path: tuple[str, ...]) -> dict[str, Any]:
        """Return the merged values of the merge key `<<`, in which an earlier mapping has precedence over a later
        one."""
        mapping_nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        values: dict[str, Any] = {}
        for mapping_node in mapping_nodes:
            merged = self.convert(mapping_node, (*path, "<<"))
            if not isinstance(merged, dict):
                self._refuse(mapping_node, path, "merges (<<) what is not a mapping", "Name a mapping")
            values |= {name: each for name, each in merged.items() if name not in values}
        return values

    def _scalar(self, node: yaml.ScalarNode, path: tuple[str, ...]) -> Any:
        kind, text = node.tag.removeprefix(_TAG), str(node.value)
        if kind == "unclear":
            _, problem, remedy = next(each for each in _TWO_READINGS if each[0].fullmatch(text))
            self._refuse(node, path, f"{text!r:.40} {problem}", remedy)
        if kind == "str":
            return text
        if kind not in _CORE or not _CORE[kind].fullmatch(text):
            self._refuse(node, path, f"{text!r:.40} has the tag {node.tag}", "Remove the tag")
        if kind in ("null", "bool"):
            return None if kind == "null" else text.lower() == "true"
        return self._number(node, path, kind, text)

    def _number(self, node: yaml.ScalarNode, path: tuple[str, ...], kind: str, text: str) -> int | float:
        if len(text) > 400:
            self._refuse(node, path, f"is a number of {len(text):,} characters", "Write a shorter one")
        if kind == "int":
            value = int(text, 16 if text.startswith("0x") else 10)
            if abs(value) > _LARGEST_INT:
                self._refuse(node, path, f"{text:.40} is beyond what 64 bits hold", "Write a smaller number")
            return value
        number = math.nan if text.lower().endswith(("inf", "nan")) else float(text)
        if not math.isfinite(number):
            self._refuse(node, path, f"{text:.40} is not a finite number", "Write a number")
        return number

    def _refuse(self, node: yaml.Node, path: tuple[str, ...], problem: str, remedy: str) -> NoReturn:
        where = f"{'.'.join(path)} (line {node.start_mark.line + 1})".strip()
        raise ConfigError(self._file, where, problem, remedy)


def _shorten_path(file: Path) -> str:
    """Return the path as text, shortened if its last part is longer than any file system permits."""
    return str(file) if len(str(file)) < 300 else f"{str(file)[:200]}…"
