"""The version of code: which edits of which modules change it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.core import code_version
from ops.core.code_version import PACKAGE_FOLDER, UNVERSIONED_PACKAGES, find_used_modules, module_file

ROOT = "ops.curation.selection"


def version() -> str:
    code_version.code_version.cache_clear()
    return code_version.code_version(ROOT)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package `ops`, of which versions are computed."""
    copied = Path(shutil.copytree(PACKAGE_FOLDER, tmp_path / "ops", ignore=shutil.ignore_patterns("__pycache__")))
    monkeypatch.setattr(code_version, "PACKAGE_FOLDER", copied)
    yield copied
    monkeypatch.undo()
    version()


def test_words_change_no_version_and_statements_do(source: Path) -> None:
    known, file = version(), source / "curation" / "selection.py"
    text = file.read_text(encoding="utf-8")
    rewritten = text.replace('"""', '"""Other words. ', 1)
    file.write_text(f"# A comment.\n\n{rewritten}", encoding="utf-8")
    assert version() == known
    file.write_text(f"{text}\n\nADDED = 1\n", encoding="utf-8")
    assert version() != known


def test_an_imported_module_counts_and_what_only_decides_how_does_not(source: Path) -> None:
    known = version()
    imported = find_used_modules([ROOT], without=UNVERSIONED_PACKAGES)
    assert len(imported) > 3
    other = next(name for name in imported if name != ROOT and not name.endswith("__init__"))
    for name, counts in (("ops.workers.client", False), ("ops.spending.ledger", False), (other, True)):
        with module_file(name).open("a", encoding="utf-8") as module:
            module.write("\n\nADDED = 1\n")
        assert (version() != known) == counts, name


def test_every_package_that_is_left_out_exists() -> None:
    assert [name for name in UNVERSIONED_PACKAGES if not module_file(name).is_file()] == []
