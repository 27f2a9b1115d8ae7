"""Fixtures of the data tests: a workspace in a temporary folder, local datasets, real rows beside the project."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ops.core.workspace import Workspace
from tests.unit.data.inputs import parquet

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real benchmark rows beside the project, which users' machines do not have."""
    folder = ROOT.parent / "shared" / "benchmarks"
    if not folder.is_dir():
        pytest.skip(f"no real benchmark rows at {folder}")
    return folder


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`dataset({(config, split): rows or a file's content})`: a folder that the library `datasets` reads."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def made(
        parts: Mapping[tuple[str | None, str], bytes | Sequence[Mapping[str, Any]]],
        folder: str = "upstream",
        suffix: str = ".parquet",
    ) -> Path:
        configs: dict[str, list[dict[str, str]]] = {}
        for (config, split), content in parts.items():
            path = Path(config or "default", f"{split}{suffix}")
            (tmp_path / folder / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / path).write_bytes(content if isinstance(content, bytes) else parquet(content))
            configs.setdefault(config or "default", []).append({"split": split, "path": str(path)})
        stated = [{"config_name": config, "data_files": files} for config, files in configs.items()]
        (tmp_path / folder / "README.md").write_text(f"---\nconfigs: {json.dumps(stated)}\n---\n", encoding="utf-8")
        return tmp_path / folder

    return made
