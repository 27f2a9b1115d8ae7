"""Names in `ops`, `assets` and `pipelines`: one name, one thing."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.unit.test_architecture import FORBIDDEN, sources, tree_of


def test_a_public_class_name_occurs_once() -> None:
    places = defaultdict(list)
    for layer in FORBIDDEN:
        for file in sources(layer):
            for node in ast.walk(tree_of(file)):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(f"{file}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
