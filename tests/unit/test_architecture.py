"""The layers `ops ← assets ← pipelines` and private names of libraries, read from the source.

Imports inside functions count too.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
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
    {"store", "config"},
    {"grading", "spending", "synthetic", "providers"},
    {"benchmarks", "local_models", "alerts"},
    {"curation", "versioning"},
    {"workers"},
    {"workflow"},
    {"conductor", "precaching"},
    {"results"},
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


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), filename=str(file))


def top(module: str) -> str:
    return module.partition(".")[0]


Walk = Callable[[ast.Module], Iterator[tuple[str, int]]]


def found(files: Iterable[Path], wrong: Callable[[Path, str], bool], walk: Walk = imported) -> list[str]:
    """The imports in `files` that are wrong."""
    return [
        f"{file}:{line} imports {module}"
        for file in files
        for module, line in walk(tree_of(file))
        if wrong(file, module)
    ]


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_a_layer_imports_nothing_above_it(layer: str) -> None:
    assert sources(layer), f"{layer}/ holds no module"
    assert found(sources(layer), lambda _, module: top(module) in FORBIDDEN[layer]) == []


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
    layer_of = {package: number for number, packages in enumerate(OPS_LAYERS) for package in packages}

    def wrong(file: Path, package: str) -> bool:
        return package != file.parts[1] and layer_of[package] >= layer_of[file.parts[1]]

    assert found((file for file in sources("ops") if len(file.parts) > 2), wrong, packages_imported) == []


def test_a_package_of_training_imports_only_packages_of_lower_layers() -> None:
    layer_of = {package: number for number, packages in enumerate(TRAINING_LAYERS, start=1) for package in packages}
    files = sources("ops/training")
    assert {file.parts[2] for file in files if len(file.parts) > 3} == set(layer_of)

    def wrong(file: Path, module: str) -> bool:
        if not module.startswith("ops.training.") or (package := module.split(".")[2]) == file.parts[2]:
            return False
        return layer_of.get(package, len(layer_of)) >= layer_of.get(file.parts[2], 2)

    assert found(files, wrong) == []


def outside_training(*layers: str) -> Iterator[Path]:
    return (file for layer in layers for file in sources(layer) if not file.is_relative_to("ops/training"))


def test_only_training_imports_its_libraries_at_module_level() -> None:
    assert found(outside_training(*FORBIDDEN), lambda _, module: top(module) in TRAINING_LIBRARIES, at_import) == []


def test_only_training_uses_dagster_pipes() -> None:
    assert found(outside_training("ops"), lambda _, module: top(module) == "dagster_pipes") == []


def test_nothing_outside_names_a_plugin_but_its_provider() -> None:
    outside = [file for layer in FORBIDDEN for file in sources(layer) if not file.is_relative_to("ops/synthetic")]
    naming = [str(file) for file in outside if "ops.synthetic" in (ROOT / file).read_text(encoding="utf-8")]
    assert naming == ["ops/providers/local.py"]  # by name, for `import_module`
    assert [module for module, _ in imported(tree_of(Path(naming[0]))) if module.startswith("ops.synthetic")] == []


def test_the_folder_mlflow_does_not_hide_the_library() -> None:
    spec = importlib.util.find_spec("mlflow")
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).is_relative_to(Path(sys.prefix))
    assert "site-packages" in Path(spec.origin).parts
    assert not (ROOT / "mlflow" / "__init__.py").exists()
    assert not (ROOT / "mlflow.py").exists()


def test_the_walk_sees_lazy_and_dynamic_imports() -> None:
    tree = ast.parse("def f():\n    import dagster.core\n    importlib.import_module('assets.x')\n")
    assert [top(module) for module, _ in imported(tree)] == ["dagster", "assets"]
    assert list(at_import(tree)) == []
    lazy = ast.parse("def f():\n    from ops import training\n    from ops.stages.raw_problems import x\n")
    assert [package for package, _ in packages_imported(lazy)] == ["training", "stages"]


# ── private names of libraries ───────────────────────────────────────────────


MODULES = {
    "trl": "ops/training/step/trl_private.py",
    "transformers": "ops/training/step/trl_private.py",
    "litellm": "ops/workers/litellm_private.py",
    "mlflow": "ops/release/tracing.py",
    "dagster": "assets/dagster_private.py",
}
"""Library → the module that imports its private names."""
UNDOCUMENTED = re.compile(
    r"trl\.trainer\.|transformers\.trainer_callback|litellm\.(?!integrations\.custom_logger$)|mlflow\.tracing\.(client|constant)|mlflow\.utils"
)
"""Modules that their libraries do not document, beside those whose path has a part with a leading underscore. LiteLLM
documents `custom_logger` as the base of callbacks."""


def private(module: str) -> bool:
    return any(part.startswith("_") for part in module.split(".")) or UNDOCUMENTED.match(module) is not None


def test_private_modules_are_imported_in_one_place() -> None:
    files = (file for layer in (*FORBIDDEN, "mlflow") for file in sources(layer))

    def wrong(file: Path, module: str) -> bool:
        return top(module) in MODULES and private(module) and str(file) != MODULES[top(module)]

    assert found(files, wrong) == [], f"only {MODULES.values()} may"


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
    [base] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind]
    return {name for name in of_self(base) if name.startswith("_") and not name.startswith("__")}


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
        if isinstance(node, ast.ClassDef) and ("Trainer" in node.name or node.name == "RoundsMixin")
        for name in sorted(theirs & set(of_self(node)))
    ]
    assert wrong == []
