"""Files for GitHub and for contributors: valid by their schemas, and consistent with the project."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import needs

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCHEMAS = {
    ".github/workflows/ci.yaml": "github-workflows",
    ".github/workflows/release.yaml": "github-workflows",
    ".github/ISSUE_TEMPLATE/bug.yaml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/idea.yaml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
    "CITATION.cff": "citation-file-format",
}
"""File → the name of its schema in check-jsonschema."""


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def loaded(name: str) -> Any:
    return yaml.safe_load(read(name))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_file_that_github_reads_keeps_to_its_schema(name: str) -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed (pip install -e '.[dev]')")
    import jsonschema

    schema = json.loads(
        (files("check_jsonschema") / "builtin_schemas" / "vendor" / f"{SCHEMAS[name]}.json").read_text(encoding="utf-8")
    )
    # YAML 1.1 reads the key `on` as true.
    values = {"on" if key is True else key: value for key, value in loaded(name).items()}
    jsonschema.validate(json.loads(json.dumps(values, default=str)), schema)


def test_every_file_that_github_reads_has_a_schema() -> None:
    found = {str(file.relative_to(ROOT)) for file in (ROOT / ".github").rglob("*.y*ml")}
    assert found <= SCHEMAS.keys()


@pytest.mark.parametrize("name", ["ci.yaml", "release.yaml"])
def test_the_programs_that_a_workflow_runs_exist(name: str) -> None:
    steps = [step for job in loaded(f".github/workflows/{name}")["jobs"].values() for step in job["steps"]]
    commands = " ".join(step.get("run", "") for step in steps)
    programs = re.findall(r"\.ci/\w+", commands)
    assert programs
    assert [program for program in programs if not (ROOT / program).stat().st_mode & 0o100] == []
    targets = set(re.findall(r"^([a-z0-9-]+):", read("Makefile"), re.MULTILINE))
    assert set(re.findall(r"make ([\w-]+)", commands)) <= targets


def test_make_test_is_the_first_thing_that_ci_does() -> None:
    lines = [line.strip() for line in read(".ci/run").splitlines()]
    commands = [line for line in lines if "make " in line and not line.startswith("#")]
    assert commands[0] == ".ci/bare make test"
    assert "make site" in commands


def test_the_citation_names_this_version_and_licence() -> None:
    citation = loaded("CITATION.cff")
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]


def test_the_changelog_describes_this_version() -> None:
    assert f"## {PROJECT['project']['version']}" in read("CHANGELOG.md")


def test_pre_commit_checks_with_the_versions_of_the_project() -> None:
    hooks = {hook["id"]: hook for repo in loaded(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]}
    assert set(hooks) == {"ruff", "mypy", "codespell"}
    [codespell] = re.findall(r"^codespell==\S+", read("constraints-site.txt"), re.MULTILINE)
    assert hooks["codespell"]["additional_dependencies"] == [codespell]
    for name in ("ruff", "mypy"):
        assert hooks[name]["entry"].startswith(f".venv/bin/{name}")


@needs.site
def test_no_word_is_misspelt() -> None:
    done = subprocess.run(
        [needs.SITE_PROGRAMS / "codespell"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """As `make site` checks, without MkDocs."""
    navigation = read("mkdocs.yml").partition("\nnav:\n")[2].partition("\nvalidation:")[0]
    named = set(re.findall(r"[\w/-]+\.md", navigation))
    pages = {str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs").rglob("*.md")}
    assert pages - named == set()
