"""Names in docstrings and comments: what is renamed or deleted in the code is renamed or deleted there, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [file for folder in ("ops", "assets", "pipelines") for file in sorted((ROOT / folder).rglob("*.py"))]
QUOTED = re.compile(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`")
COMMENT = re.compile(r"(?m)(?:^|  )\s*#.*")
OF_SEVERAL_WORDS = re.compile(r"[a-z][a-z0-9]+(_[a-z0-9]+)+|([A-Z][a-z]{2,}){2,}|[A-Z0-9]{2,}(_[A-Z0-9]+)+")
"""Names of one word are not checked, because text in backticks also quotes answers and values."""


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                yield text


def names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node of a syntax tree has or mentions."""
    for field in ("id", "attr", "arg", "name", "asname", "module"):
        if isinstance(name := getattr(node, field, None), str):
            yield from name.split(".")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from re.findall(r"\w+", node.value)


def defined(kind: ast.ClassDef) -> Iterator[str]:
    """Yield the names of a class's methods and attributes."""
    for node in ast.walk(kind):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
            ):
                yield name


def test_names_in_docstrings_and_comments_exist() -> None:
    """Names of other libraries are not checked if they are written with the library's: `statistics.StatisticsError`."""
    settings = [*ROOT.glob("*.yaml"), *(ROOT / "config").rglob("*.yaml")]
    known = {word for file in settings for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}
    known |= {file.stem for file in SOURCES}
    members, quoted = dict[str, set[str]](), set[tuple[str, str]]()
    for file in SOURCES:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
        texts = set(docstrings(tree))
        for text in (*(str(one.value) for one in texts), *COMMENT.findall(source)):
            quoted |= {(str(file.relative_to(ROOT)), name) for name in QUOTED.findall(text)}
        for node in ast.walk(tree):
            if node not in texts:
                known.update(names(node))
            if isinstance(node, ast.ClassDef) and {*map(ast.unparse, node.bases)} <= {"NamedTuple", "Protocol"}:
                members.setdefault(node.name, set()).update(defined(node))
    missing = [
        f"{file}: {name}"
        for file, name in sorted(quoted)
        for first, *rest in [name.split(".")]
        if (rest[0] not in members.get(first, rest) if rest else OF_SEVERAL_WORDS.fullmatch(name) and name not in known)
    ]
    assert missing == []
