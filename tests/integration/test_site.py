"""The site of docs/ (mkdocs.yml, website/hooks.py): built from a small repository, with and without a broken link."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import needs

ROOT = Path(__file__).parents[2]
pytestmark = [needs.site, pytest.mark.slow]

DOCS = "docs"
CONFIGURATION = """\
INHERIT: mkdocs-all.yml
nav:
  - index.md
  - other.md
  - extend.md
  - Project: [project/read-me.md, project/contributing.md, project/changelog.md, project/security-policy.md,
      project/mlflow.md]
  - Reference: [reference/prices.md, API: api/index.md]
"""
PAGE = """\
# Home

[a page](other.md#a-part-of---two-words), [a page of the repository](../CONTRIBUTING.md#contributing),
[a file](../config/pools/small.yaml), [a folder](../config/pools).

```text
[not a link](nowhere.md)
```

| value | meaning |
| --- | --- |
| `one \\| two` | either |
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the settings and hooks of the site, two pages, and a package with a public function."""
    shutil.copytree(ROOT / "website", tmp_path / "website", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path / "mkdocs-all.yml")
    files = {
        "mkdocs.yml": CONFIGURATION,
        "README.md": f"# Read me\n\n[other]({DOCS}/other.md)\n",
        "CONTRIBUTING.md": "# Contributing\n",
        "CHANGELOG.md": "# Changelog\n",
        "SECURITY.md": "# Security policy\n",
        "mlflow/README.md": f"# mlflow/\n\n[other](../{DOCS}/other.md)\n",
        "config/pools/small.yaml": "name: small\n",
        "ops/__init__.py": "",
        "ops/adding/__init__.py": '"""Addition.\n\nMore."""\n',
        "ops/adding/two.py": '"""Of two numbers."""\n\n\n'
        'def add_two(a: int, b: int) -> int:\n    """Return the sum: [prices](prices.md)."""\n    return a + b\n\n\n'
        'def _hidden() -> None:\n    """Do nothing."""\n',
    }
    pages = {"index.md": PAGE, "other.md": "# Other\n\n## A part of - two words\n", "extend.md": "# Extend\n"}
    pages["reference/prices.md"] = "# Prices\n"
    for name, text in (files | {f"{DOCS}/{page}": text for page, text in pages.items()}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def build(repository: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [needs.SITE_PROGRAMS / "mkdocs", "build"], cwd=repository, capture_output=True, text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False, timeout=300,
    )  # fmt: skip


def test_links_out_of_docs_the_api_and_tables_are_as_on_github(repository: Path) -> None:
    done = build(repository)
    assert done.returncode == 0, done.stdout + done.stderr
    home = (repository / "site" / "index.html").read_text(encoding="utf-8")
    for target in ("other.html#a-part-of---two-words", "project/contributing.html#contributing"):
        assert f'href="{target}"' in home
    assert 'href="source/config/pools/small.yaml.html"' in home
    assert 'href="source/config/pools.html"' in home
    assert "[not a link](nowhere.md)" in home
    assert "<code>one | two</code>" in home
    shown = (repository / "site" / "source" / "config" / "pools" / "small.yaml.html").read_text(encoding="utf-8")
    assert "small" in shown
    api = (repository / "site" / "api" / "adding.html").read_text(encoding="utf-8")
    assert 'href="../reference/prices.html"' in api
    assert "_hidden" not in api
    overview = (repository / "site" / "api" / "index.html").read_text(encoding="utf-8")
    assert "Addition." in overview
    for page in (repository / "site").rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?://[^\s\">]+)", page.read_text("utf-8"))
        assert loaded == [], f"{page.name} loads files from another host"


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("[x](absent.md)", "absent.md"),
        ("[x](other.md#absent)", "#absent"),
        ("[x](#absent)", "#absent"),
        ("[x](../config/absent.yaml)", "config/absent.yaml"),
        ("[x](../CONTRIBUTING.md#absent)", "#absent"),
        ("![x](images/absent.svg)", "images/absent.svg"),
    ],
)
def test_a_broken_link_or_anchor_fails(repository: Path, link: str, said: str) -> None:
    (repository / "docs" / "other.md").write_text(f"# Other\n\n## A part of - two words\n\n{link}\n", encoding="utf-8")
    done = build(repository)
    assert done.returncode == 1
    assert said in done.stdout + done.stderr
