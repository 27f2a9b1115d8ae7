"""The layers `ops ← assets ← pipelines`, read from the source: imports inside functions count too."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAINING_LIBRARIES = {"torch", "trl", "transformers", "deepspeed"}
FORBIDDEN = {
    "ops": {"dagster", "assets", "pipelines", "tests"},
    "assets": {"pipelines", "tests"},
    "pipelines": {"tests"},
}

OPS_LAYERS = (
    {"core"},
    {"grading", "spending", "synthetic", "config"},
    {"benchmarks", "local_models", "alerts"},
    {"cache", "curation", "versioning"},
    {"workers"},
    {"workflow"},
    {"conductor", "precaching"},
    {"evaluation", "quality"},
    {"serving"},
    {"training", "release"},
    {"planning", "reports"},
    {"stages"},
    {"retraining"},
)
"""The packages of `ops` by layer, lowest first: a package imports only packages of lower layers."""

TRAINING_LAYERS = ({"run"}, {"rewards", "cold_start"}, {"step"}, {"stages"}, {"grpo"})
"""The layers of the packages in `ops/training`; its own modules are above the first of them."""


def sources(layer: str) -> list[Path]:
    """The layer's modules, from the project's root."""
    return [file.relative_to(ROOT) for file in sorted((ROOT / layer).rglob("*.py"))]


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module imported anywhere under `tree`, with its line; relative imports stay in their layer."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"}:
                yield str(node.args[0].value), node.lineno


def at_import(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The modules that importing this one imports: not those in functions or under TYPE_CHECKING."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield from imported(node)


def tree_of(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), filename=str(file))


def top(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_a_layer_imports_nothing_above_it(layer: str) -> None:
    files = sources(layer)
    assert files, f"{layer}/ holds no module"
    wrong = [
        f"{file}:{line} imports {module}"
        for file in files
        for module, line in imported(tree_of(file))
        if top(module) in FORBIDDEN[layer]
    ]
    assert wrong == []


def packages_imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The packages of `ops` that are imported anywhere under `tree`, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "ops":
            yield from ((alias.name, node.lineno) for alias in node.names)
    for module, line in imported(tree):
        if module.startswith("ops."):
            yield module.split(".")[1], line


def test_every_package_has_a_layer() -> None:
    packages = {file.parent.name for file in (ROOT / "ops").glob("*/__init__.py")}
    assert packages == set().union(*OPS_LAYERS)
    assert [file.name for file in (ROOT / "ops").glob("*.py")] == ["__init__.py"]


def test_a_package_imports_only_packages_of_lower_layers() -> None:
    layer_of = {package: number for number, packages in enumerate(OPS_LAYERS, start=1) for package in packages}
    wrong = [
        f"{file}:{line} (layer {layer_of[file.parts[1]]}) imports ops.{package} (layer {layer_of[package]})"
        for file in sources("ops")
        if len(file.parts) > 2
        for package, line in packages_imported(tree_of(file))
        if package != file.parts[1] and layer_of[package] >= layer_of[file.parts[1]]
    ]
    assert wrong == []


def test_a_package_of_training_imports_only_packages_of_lower_layers() -> None:
    layer_of = {package: number for number, packages in enumerate(TRAINING_LAYERS, start=1) for package in packages}
    files = sources("ops/training")
    assert {file.parts[2] for file in files if len(file.parts) > 3} == set(layer_of)
    wrong = [
        f"{file}:{line} imports {module}"
        for file in files
        for module, line in imported(tree_of(file))
        if module.startswith("ops.training.") and (package := module.split(".")[2]) != file.parts[2]
        if layer_of.get(package, len(layer_of)) >= layer_of.get(file.parts[2], 2)
    ]
    assert wrong == []


def test_only_training_imports_its_libraries_at_module_level() -> None:
    wrong = [
        f"{file}:{line} imports {module}"
        for layer in FORBIDDEN
        for file in sources(layer)
        if not file.is_relative_to("ops/training")
        for module, line in at_import(tree_of(file))
        if top(module) in TRAINING_LIBRARIES
    ]
    assert wrong == []


def test_only_training_uses_dagster_pipes() -> None:
    wrong = [
        f"{file}:{line}"
        for file in sources("ops")
        if not file.is_relative_to("ops/training")
        for module, line in imported(tree_of(file))
        if top(module) == "dagster_pipes"
    ]
    assert wrong == []


def test_nothing_outside_names_a_plugin_but_the_registry_of_plugins() -> None:
    outside = [file for layer in FORBIDDEN for file in sources(layer) if not file.is_relative_to("ops/synthetic")]
    naming = [str(file) for file in outside if "ops.synthetic" in (ROOT / file).read_text(encoding="utf-8")]
    assert naming == ["ops/core/registry.py"]  # by name, for `import_module`
    assert [module for module, _ in imported(tree_of(Path(naming[0]))) if module.startswith("ops.synthetic")] == []


def test_the_folder_mlflow_does_not_hide_the_library() -> None:
    spec = importlib.util.find_spec("mlflow")
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).is_relative_to(Path(sys.prefix))
    assert "site-packages" in Path(spec.origin).parts
    assert not (ROOT / "mlflow" / "__init__.py").exists()
    assert not (ROOT / "mlflow.py").exists()


def test_the_walk_sees_lazy_and_dynamic_imports() -> None:
    tree = ast.parse("def f():\n    import dagster.core\n    importlib.import_module('assets.x')\n")
    assert [top(module) for module, _ in imported(tree)] == ["dagster", "assets"]
    assert list(at_import(tree)) == []
    lazy = ast.parse("def f():\n    from ops import training\n    from ops.stages.problems import x\n")
    assert [package for package, _ in packages_imported(lazy)] == ["training", "stages"]
