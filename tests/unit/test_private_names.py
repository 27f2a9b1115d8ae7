"""Private names of TRL, transformers, LiteLLM, MLflow and Dagster are imported in one module per library."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_architecture import FORBIDDEN, ROOT, imported, sources, tree_of

MODULES = {
    "trl": "ops/training/step/trl_private.py",
    "transformers": "ops/training/step/trl_private.py",
    "litellm": "ops/workers/litellm_private.py",
    "mlflow": "ops/release/tracing.py",
    "dagster": "assets/dagster_private.py",
}
"""Library → the module that imports its private names."""
UNDOCUMENTED = re.compile(
    r"trl\.trainer\.|transformers\.trainer_callback|litellm\.|mlflow\.tracing\.(client|constant)|mlflow\.utils"
)
"""Modules that their libraries do not document, beside those whose path has a part with a leading underscore."""
FILES = [*(file for layer in FORBIDDEN for file in sources(layer)), *sources("mlflow")]


def private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split(".")) or UNDOCUMENTED.match(module) is not None


def test_private_modules_are_imported_in_one_place() -> None:
    wrong = [
        f"{file}:{line} imports {module}; only {MODULES[library]} may"
        for file in FILES
        for module, line in imported(tree_of(file))
        if (library := module.partition(".")[0]) in MODULES and private(module) and str(file) != MODULES[library]
    ]
    assert wrong == []


@pytest.mark.parametrize(("library", "module"), MODULES.items())
def test_each_private_module_states_the_version_it_was_written_against(library: str, module: str) -> None:
    pins = dict(re.findall(r"(?m)^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8")))
    [against] = [
        ast.literal_eval(node.value)
        for node in tree_of(Path(module)).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "WRITTEN_AGAINST"
    ]
    assert against[library] == pins[library]


def methods(file: Path, kind: str) -> set[str]:
    """The private names that a class of a file without an import defines or sets on itself."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind]
    return {name for name in of_self(found) if name.startswith("_") and not name.startswith("__")}


def of_self(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "super()"):
            yield node.attr


def test_no_trainer_of_ours_touches_a_private_name_of_its_base() -> None:
    theirs: set[str] = set()
    bases = ("trl", "trainer/grpo_trainer.py", "GRPOTrainer"), ("transformers", "trainer.py", "Trainer")
    for library, module, kind in bases:
        spec = importlib.util.find_spec(library)
        assert spec is not None and spec.submodule_search_locations
        theirs |= methods(Path(spec.submodule_search_locations[0]) / module, kind)
    assert "_compute_loss" in theirs and "_save_rng_state" in theirs
    wrong = [
        f"{file}: {node.name}.{name}"
        for file in sources("ops/training")
        if str(file) != MODULES["trl"]
        for node in tree_of(file).body
        if isinstance(node, ast.ClassDef) and ("Trainer" in node.name or node.name == "InRounds")
        for name in sorted(theirs & set(of_self(node)))
    ]
    assert wrong == []
